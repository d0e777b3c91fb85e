import pytest

from tests.models.backtest.made import call, heard, log


@pytest.mark.parametrize(
    ("tool", "text"), [("sql", " Submit;"), ("invalid_action", "x = 1"), ("python", "YOUR_CODE_HERE")]
)
def test_a_pseudo_call_is_none(tool: str, text: str) -> None:
    of = log(call("select 1"), call(text, tool=tool), call("select 2"))
    assert [turn.call.text for turn in of.turns()] == ["select 1", "select 2"]
    assert [turn.place for turn in of.turns()] == [0, 2]


def test_a_transient_failure_passes() -> None:
    of = log(call("a", error="no such table: cars"), call("b", error="503 Service Unavailable"), call("c"))
    assert [turn.call.passes for turn in of.turns()] == [False, True, False]


def test_the_kind_of_a_failure_has_the_names_of_the_call() -> None:
    kind = call("select * from cars", error="Table 'shop.cars' doesn't exist").kind
    assert kind is not None and kind.names == ("cars",) and "cars" not in kind.kind
    assert call("select 1").kind is None


def test_all_that_is_told_has_its_length() -> None:
    of = log(call("a", error="x"), call("b"))
    said = heard(of).start._replace(text="four")
    assert heard(of, said, said, after={0: said}, start=said).characters == 16
