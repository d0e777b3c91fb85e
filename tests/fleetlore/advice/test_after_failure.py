"""A failure at a place whose structure is known brings the right names."""

from dataclasses import replace
from functools import partial
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

import orjson

from benchmarks.security.times import AGENT_SECONDS, beside
from fleetlore.advice.advice import advise
from fleetlore.advice.before_call import look_up_quote
from fleetlore.advice.situation import Situation
from fleetlore.calls.document import LookUp
from fleetlore.calls.places import Ended, PlaceNames
from fleetlore.recall.index import LoreIndex
from tests.build import failed_call, memory_item
from tests.build import situation as moment
from tests.rows import for_each

MEMBERS = {"flight": ("flight_id", "departure_time", "from_airport"), "airport": ("airport_code", "airport_name")}
ERROR_TYPE = "OperationalError"


def names(members: dict[str, tuple[str, ...]]) -> dict[str, Ended]:
    return {name: Ended(3, 0) for owner, of in members.items() for name in (owner, *of)}


def situation(query: str, error: str, members: dict[str, tuple[str, ...]] = MEMBERS) -> Situation:
    arguments = orjson.dumps({"query": query}).decode()
    failed = failed_call("sql", arguments, ERROR_TYPE, error)
    place = PlaceNames(9, names(members), members=members)
    model: Any = SimpleNamespace(places={"atis": place}, look_ups={}, need=lambda *_: None, until=0.0)
    return moment(session="s", failed=failed, model=model, place="atis")


def said(query: str, error: str) -> str:
    return advise(LoreIndex(), situation(query, error)).text


@for_each(
    "query, error, shown",
    (  # all names of the call at once, each with the one that has its parts
        "SELECT MIN(departure) FROM flights",
        "no such table: flights",
        ["Use `flight` instead of `flights`. Use `departure_time` instead of `departure`.", "`flight` has: flight_id"],
    ),
    (  # a name that is rejected says nothing of the other, which may not be there either
        "SELECT MIN(departure) FROM flights JOIN planes",
        "no such table: flights",
        ["Use `flight` instead of `flights`."],
    ),
    (  # names that the error does not name may exist, so the tip does not call them absent
        "SELECT height FROM planes",
        "no such table: planes",
        ["Do not use `planes`, `height`. Use these names alone:", "airport(airport_code"],
    ),
    (
        "SELECT f.airport_name FROM flight AS f",
        "no such column: f.airport_name",
        ["`airport_name` is of something else. Use these names alone:", "flight(flight_id"],
    ),
)
def test_all_names_of_a_call_that_a_place_has_not_are_told_at_once(query: str, error: str, shown: list[str]) -> None:
    text = said(query, error)
    assert all(each in text for each in shown), text
    assert "query" not in text  # the key of the call's own argument


def test_what_is_surest_is_said_again_where_nothing_else_is_left() -> None:
    at, texts = situation("SELECT departure_time FROM flights", "no such table: flights"), []
    for _ in range(5):
        advice = advise(LoreIndex(), at)
        at = replace(at, asker=at.asker._replace(shown=(*at.asker.shown, *(tip.key for tip in advice.tips))))
        texts.append(advice.text)
    assert "Use `flight` instead of `flights`" in texts[0]
    assert texts[1] != texts[0] and texts[-1] == texts[-2] == texts[0]


@for_each(
    "query, error",
    ("SELECT age FROM player", "no such column: age"),  # of the owner that it asks nothing is known
    ("execute[SELECT flight_id FROM flight", "your last execute holds no query"),  # what is called is no name
    ("SELECT code FROM route", "no such table: route"),  # of what is there one name alone is known
)
def test_a_place_that_is_known_in_part_is_not_told_as_a_whole(query: str, error: str) -> None:
    members = {"course": ("miles",)} if "route" in query else MEMBERS
    assert "alone" not in advise(LoreIndex(), situation(query, error, members)).text
    assert said("SELECT heights FROM flights", "misuse of aggregate") == "", "the error names nothing"


def test_a_name_that_the_place_has_is_not_said_to_be_wrong() -> None:
    at = situation("SELECT flight.airport_name FROM flight JOIN airport", "no such column: flight.airport_name")
    at.known_place.names["airport_name"] = Ended(0, 9)  # it is mostly asked of the wrong table
    assert "airport_name" not in advise(LoreIndex(), at).text


@for_each(
    "error, agents, place, told",
    ("no such column: price", 2, None, False),  # every table may say so
    ("no such column: price", 3, None, True),
    ("no such column: price", 2, {"offer": ("cost",)}, True),
    ("no such column: price", 3, {"offer": ("amount",)}, False),
    ("price is no table of shop.eu", 2, None, True),
)
def test_a_name_that_worked_elsewhere_is_told_where_it_may_be_used(
    error: str, agents: int, place: dict[str, tuple[str, ...]] | None, told: bool
) -> None:
    at = situation("SELECT price FROM offer", error, place or {})
    if place is None:
        at = replace(at, known=at.known._replace(place=""))
    index = LoreIndex()
    made = {"was": ("price",), "now": ("cost",), "when": f"sql fails with: {error}", "support": 4, "goals": 4}
    index.put_item(memory_item("a", tool="sql", pattern=at.failed.failure.class_, agents=agents, **made))
    assert ("`cost`" in advise(index, at).text) is told


def test_advice_at_a_large_place_stalls_no_agent() -> None:
    owners = [f"{letter}bcde_{number}" for number in range(4) for letter in ascii_lowercase]
    members = {owner: tuple(f"{owner}x{number}" for number in range(38)) for owner in owners}
    query = "SELECT " + ", ".join(f"{owner}y" for owner in owners) + " FROM " + ", ".join(owners)
    made = partial(situation, query, f"no such column: {owners[0]}y", members)  # a place that no cache knows
    assert len(made().known_place.names) > 4_000
    assert beside(lambda at: advise(LoreIndex(), at), made) < 2 * AGENT_SECONDS  # twice the aim


NO_VERSION = "module 'ft' has no attribute '__version__'. Did you mean: '__spec__'?"


@for_each(
    "tool, code, error_type, error, shown",
    ("python", "df.append(row)", "AttributeError", "'DataFrame' object has no attribute 'append'", "`append`"),
    ("python", "f(x, axes=1)", "TypeError", "f() got an unexpected keyword argument 'axes'", "`axes`"),
    ("python", "import sympy\nsympy.oo2", "AttributeError", "module 'sympy' has no attribute 'oo2'", "`oo2`"),
    ("python", "print(ft.__version__)", "AttributeError", NO_VERSION, "`__version__`"),
    ("python", "b.insort(a, keys=f)", "TypeError", "b.insort() got an unexpected keyword argument 'keys'", "`keys`"),
    ("python", "x.append(df.abs)", "TypeError", "df.abs takes no attribute lists", None),
    ("python", "cabinets[0]", "NameError", "name 'cabinets' is not defined", None),  # it wants a definition
    ("python", "a + b", "TypeError", "unsupported operand type(s) for +: 'int' and 'str'", None),
    ("bash", "cp folder/a b", "1", "cp: cannot stat 'folder/a': No such file or directory", None),
)
def test_a_name_that_does_not_exist_is_forbidden_and_no_other(
    tool: str, code: str, error_type: str, error: str, shown: str | None
) -> None:
    arguments = orjson.dumps({"code": code}).decode()
    failed = failed_call(tool, arguments, error_type, error)
    text = advise(LoreIndex(), moment(session="s", failed=failed)).text
    assert (f"Do not use {shown} again." in text) if shown else ("Do not use" not in text)


@for_each(
    "text, shown",
    ("pragma table_info(<name>)", "`pragma table_info(NAME)`"),
    ("kubectl get <resource kind> -A", "`kubectl get RESOURCE_KIND -A`"),
    ("select name from t where a < 3 and b > 2", "`select name from t where a < 3 and b > 2`"),
)
def test_the_slots_of_a_look_up_have_names_that_can_be_read(text: str, shown: str) -> None:
    assert look_up_quote(LookUp("sql", "no such table", "sql", text, 3, 3, 3)).text == shown


def after_a_rename(call: dict[str, Any]) -> Any:
    """The call that is proposed after several agents sent `max` in place of `limit`."""
    index, failed = LoreIndex(), failed_call("api", call, "", "unknown field limit")
    index.put_item(
        memory_item(
            "r", tool="api", pattern=failed.failure.class_, was=("limit",), now=("max",), agents=3, support=3,
            when="api fails with: unknown field limit",
        )
    )  # fmt: skip
    advice = advise(index, moment(failed=failed))
    assert "Use `max` instead of `limit`" in advice.text
    return advice.call


def test_a_renamed_field_overwrites_no_other_argument() -> None:
    assert after_a_rename({"limit": 5, "sort": "a"}) == {"max": 5, "sort": "a"}
    assert after_a_rename({"limit": 5, "max": 3}) is None


def test_arguments_that_are_nested_too_deeply_are_not_changed() -> None:
    deep: Any = 1
    for _ in range(3_000):
        deep = {"a": deep}
    assert after_a_rename({"limit": 1, "x": deep}) is None


HINT = 'HINT:  Perhaps you meant to reference the column "t.name".'
SIMILAR = "The most similar command is\n\tcheckout"


def shown(tool: str, call: str, error: str) -> str:
    return advise(LoreIndex(), moment(session="s", failed=failed_call(tool, {"code": call}, "", error))).text


@for_each("tool, call, error, name",
    ("python", "df.groupy('a')", "'T' object has no attribute 'groupy'. Did you mean: 'groupby'?", "groupby"),
    ("python", "s.resample('M')", "ValueError: Invalid frequency: M. Did you mean ME?", "ME"),
    ("python", "s.resample('M')", "FutureWarning: 'M' is deprecated, please use 'ME' instead.", "ME"),
    ("python", "np.float(1)", "`np.float` was removed. Use `np.float64` instead.", "np.float64"),
    ("python", "f()", "f is deprecated; instead use `g`", "g"),
    ("python", "sklearn.cv", "the module cv has been renamed to model_selection", "model_selection"),
    ("python", "x.ix[0]", "ix was removed in favor of iloc", "iloc"),
    ("sql", "SELECT nme FROM t", 'column "nme" does not exist\n' + HINT, "t.name"),
    ("sql", "SELECT STRLEN(a) FROM t", "unknown function strlen; did you mean `length`?", "length"),
    ("bash", "git chekout dev", "git: 'chekout' is not a git command.\n\n" + SIMILAR, "checkout"),
    ("bash", "ls --colour", "error: unexpected argument '--colour' found; did you mean '--color'?", "--color"),
    ("api", "customer=ann", "unknown field `customer`, did you mean `customer_id`?", "customer_id"),
    ("api", "customer=ann", '{"error": "unknown field \\"customer\\", did you mean \\"client\\"?"}', "client"),
    ("api", "customer=ann", "422: did you mean the field 'client'?", "client"),
    ("api", "customer=ann", "Please use the parameter `client` instead of `customer`.", "client"),
    ("api", "customer=ann", "use `client` field instead", "client"),
    ("api", "customer=ann", "customer was renamed to the property client", "client"),
    ("api", "qty=1", "unknown column qty: it was renamed from qty to quantity", "quantity"),
    ("bash", "npm isntall", 'Unknown command: "isntall"\n\nDid you mean "install"?', "install"),
)  # fmt: skip
def test_a_proposed_name_is_told(tool: str, call: str, error: str, name: str) -> None:
    text = shown(tool, call, error)
    assert f"Use `{name}`" in text and "the error itself proposes it" in text, text
    assert "Use `checkout` instead of `chekout`" in text or name != "checkout", "with the rejected one"


@for_each(
    "error",
    "use the force instead",
    "please use it instead",
    "no such table: users",
    "Did you mean to do this?",
    "did you mean: 'groupby'?",  # the call holds it
    "module 'df' has no attribute '__version__'. Did you mean: '__spec__'?",
    "did you mean `<b>rm -rf /</b>`",
    "the column was not renamed because it is locked",
    "it cannot be renamed while locked",
    "Do not use field client instead of customer",
    "never use `client` instead",
)
def test_nothing_is_proposed_where_the_error_names_nothing(error: str) -> None:
    assert "proposes" not in shown("python", "df.groupby('a')", error)
