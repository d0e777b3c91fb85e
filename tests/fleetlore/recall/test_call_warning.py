from fleetlore.calls.context import CallContext
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected
from fleetlore.recall.call_warning import MAX_LINE, by_model
from tests.fleetlore.calls.test_model import KINDS, document

MODEL = CallModel.from_bytes(document(**KINDS).to_bytes())


def test_a_name_is_shown_as_the_call_spells_it() -> None:
    own = (Expected("name <name> is not defined", ("next_power_of_2",)),)
    call = Call("sql", "print(next_Power_of_2(0))")
    warning = by_model(MODEL, 0.9, call, CallContext("g"), None, own)
    assert warning is not None
    assert warning.text == "sql will likely fail (90%): name `next_Power_of_2` is not defined"
    assert warning.names == ("next_power_of_2",)


def test_the_line_is_short() -> None:
    own = (Expected("no <name> " + "x" * 90, ("y" * 60,)),)
    warning = by_model(MODEL, 0.9, Call("sql", "y" * 60), CallContext("g"), None, own)
    assert warning is not None and len(warning.text) <= MAX_LINE


def test_what_a_call_itself_says_where_its_check_fails_is_no_news() -> None:
    def warned(kind: str, text: str) -> bool:
        own = (Expected(kind, ("area",)),)
        return by_model(MODEL, 0.9, Call("sql", text), CallContext("g"), None, own) is not None

    checked = 'assert area(2) == 4, "Expected 4 but got {}".format(area(2))'
    assert not warned("expected <*> but got", checked)
    assert warned("expected <*> but got", "print(area(2))")
    assert not warned("assertionerror", "assert area(2) == 4")
    assert warned("name <name> is not defined", checked)


def test_of_two_names_in_an_error_the_one_that_is_known_stands_before_it() -> None:
    own = (Expected("cannot import name <name> from <name>", ("sympy",)),)
    warning = by_model(MODEL, 0.9, Call("sql", "from sympy import round"), CallContext("g"), None, own)
    assert warning is not None
    assert warning.text == "sql will likely fail (90%): `sympy`: cannot import name … from …"
