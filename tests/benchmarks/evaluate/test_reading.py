"""How an agent reads what its memory says of past calls, at the level of names."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.evaluate.reading import LEAST, factors, stories, told
from benchmarks.evaluate.recall import Note, Recall, Story
from fleetlore.advice import before_call, sources
from fleetlore.advice.changes import change_tip, item_tip
from fleetlore.advice.gate import Quote, Tip, tell
from fleetlore.advice.situation import Situation
from fleetlore.advice.sources import SOURCES, proposed
from fleetlore.calls.context import CallContext
from fleetlore.calls.document import LookUp, Need, Threshold
from fleetlore.calls.model import Expected, Outlook
from fleetlore.calls.places import Ended, PlaceNames
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import failed_call, memory_item, met, situation

GOOD = "SELECT name FROM singer"
BAD = "SELECT name FROM singers"
RAW = """sql(SELECT name FROM singers) -> error Table 'concert.singers' doesn't exist
sql(SELECT age FROM singer) -> ok"""


def test_a_stated_chance_scales_the_weight_and_never_to_nothing() -> None:
    assert factors([GOOD, BAD], Recall(risks=(0.25, 1.0))).tolist() == [0.75, LEAST]


def test_a_name_that_an_error_named_speaks_against_the_calls_that_hold_it() -> None:
    good, bad = factors([GOOD, "SELECT x FROM singers"], Recall([Note(RAW)]))
    assert bad == pytest.approx(0.1)
    assert good > 1  # a note says that singer works


def test_the_same_call_that_failed_is_avoided_and_one_that_solved_is_preferred() -> None:
    solved = "- How to: names\n  What worked:\n  1. sql(SHOW TABLES)\n  2. sql(SELECT name FROM singer)"
    first, last, failed = factors(["SHOW TABLES", GOOD, BAD], Recall([Note(solved), Note(RAW)]))
    assert last == pytest.approx(40)
    assert first < 3
    assert failed == pytest.approx(0.01)


def test_the_words_of_a_call_that_failed_are_not_held_against_others() -> None:
    (story,) = stories("- Tried in vain: sql(SELECT 'age' FROM singer)")
    assert not story.fails
    assert not story.works
    assert story.failed == {"select 'age' from singer"}


def test_a_heading_gives_its_verdict_to_what_stands_under_it() -> None:
    (story,) = stories("- Only in a session that failed:\n  - x(a = b)\n  What worked:\n  1. y(c = d)")
    assert story.failed == {"a = b"}
    assert story.solved == "c = d"


# --- tips are read by their parts ---

MEMBERS = {"singer": ("name", "age"), "concert": ("year",)}
WRONG = '{"query": "SELECT age FROM singers"}'
MISSING = "no such table: singers"


def model(**fields: Any) -> Any:
    names = {name: Ended(3, 0) for owner, of in MEMBERS.items() for name in (owner, *of)}
    place = PlaceNames(9, names, members=MEMBERS)
    place.look_up = "SHOW TABLES"
    look_up = LookUp("sql", "no such table: <name>", "sql", "DESC <name>", 3, 3, 3)
    known = {"places": {"db": place}, "until": 0.0, "look_ups": {("sql", "no such table: <name>"): look_up}}
    return SimpleNamespace(**known | {"need": lambda *_: None} | fields)


def asked(**fields: Any) -> Situation:
    return situation("sql", {"query": "SELECT age FROM singers"}, context=CallContext("g"), place="db", **fields)


def failed(error: str = MISSING, arguments: str = WRONG, **fields: Any) -> Situation:
    return situation(failed=failed_call("sql", arguments, "", error), place="db", model=model(), **fields)


def recovery(**fields: Any) -> MemoryItem:
    return memory_item("i", tool="sql", was=("singers",), now=("singer",), agents=3, **fields)


def first(found: Iterable[Tip]) -> Tip:
    return next(iter(found))


def foreseen(expected: Expected) -> Tip:
    said = model(expected=lambda *_: expected)
    outlook = Outlook(0.75, Threshold("sql", "first", 0.5, 9, 9))
    return first(before_call.foreseen(LoreIndex(), asked(outlook=outlook, model=said)))


def counted() -> Tip:
    index = LoreIndex()
    index.put_pattern(met("sql", {"query": "SELECT age FROM singers"}, "OperationalError", MISSING))
    return first(before_call.counted(index, asked()))


def sent_again() -> Tip:
    index, call = LoreIndex(), failed_call("sql", WRONG, "", MISSING)
    known = Pattern(id=call.failure.class_, level="class", tenant="default", tool="sql", again=(20, 0, 9, 0))
    index.put_pattern(known)
    return first(before_call.sent_again(index, asked(unchanged=call)))


NEED = Need("sql", "id", "status", "open", "locked", 8, 8, 3)
NAME_LOST = Expected("no such table: <name>", ("singers",), 8, 8, 3)
STRATEGY = {"kind": "strategy", "content": "What worked:\n1. sql(SHOW TABLES)\n2. sql(SELECT name FROM singer)"}
NOWHERE = '{"query": "SELECT height FROM planes"}'
GONE = '{"query": "SELECT singer.nam FROM singer"}'

# What an agent reads in the tip of each source: names that work, names that fail, and besides those what is listed.
READ: dict[str, tuple[Callable[[], Tip], set[str], set[str], dict[str, object]]] = {
    "loop": (lambda: Tip("l", "loop", ("This fails again.",)), set(), set(), {}),
    "budget": (lambda: Tip("b", "budget", ("Finish.",)), set(), set(), {}),
    "safety": (lambda: Tip("s", "safety", ("This deletes things that worked.",)), set(), set(), {}),
    "changed": (lambda: change_tip(recovery(), "changed", BAD, 0.75), {"singer"}, {"singers"}, {"chance": 0.75}),
    "needed": (lambda: before_call.need_tip(NEED), set(), set(), {"chance": 8.5 / 9}),
    "foreseen": (lambda: foreseen(NAME_LOST), {"singer", "name", "age"}, {"singers"}, {"chance": 0.75}),
    "counted": (counted, set(), {"singers"}, {"chance": 3.5 / 4}),
    "worked instead": (lambda: change_tip(recovery(), "worked instead"), {"singer"}, {"singers"}, {}),
    "renamed": (lambda: first(sources.renamed(LoreIndex(), failed())), {"singer", "name", "age"}, {"singers"}, {}),
    "got past": (lambda: change_tip(recovery(), "got past"), {"singer"}, {"singers"}, {}),
    "known here": (
        lambda: first(sources.known_here(LoreIndex(), failed("no such table: planes", NOWHERE))),
        {"singer", "name", "age"},
        {"height", "planes"},
        {},
    ),
    "proposed": (
        lambda: first(proposed(LoreIndex(), failed("no such table: singers; did you mean `singer`?"))),
        {"singer"},
        {"singers"},
        {},
    ),
    "looked up": (lambda: first(sources.looked_up(LoreIndex(), failed())), set(), set(), {"look_up": "DESC NAME"}),
    "forbidden": (
        lambda: first(sources.forbidden(LoreIndex(), failed("'T' object has no attribute 'nam'", GONE))),
        set(),
        {"nam"},
        {},
    ),
    "way": (
        lambda: item_tip(memory_item("w", **STRATEGY), "way"),
        {"sql", "show", "tables", "name", "singer"},
        set(),
        {"solved": "select name from singer"},
    ),
    "card": (
        lambda: first(sources.card(LoreIndex(), asked(model=model(), goal="singers of a concert"))),
        {"singer", "name", "age"},
        set(),
        {"look_up": "SHOW TABLES"},
    ),
    "person": (lambda: Tip("h", "person", (Quote("use `age`, it worked", 1, "person"),)), set(), set(), {}),
    "sent again": (sent_again, set(), {"singers"}, {"chance": 20.5 / 21}),
    "recoveries": (lambda: change_tip(recovery(), "recoveries"), {"singer"}, {"singers"}, {}),
    "passing": (lambda: Tip("p", "passing", ("Wait: `singer` has a passing fault.",)), set(), set(), {}),
}  # fmt: skip


def test_each_source_has_its_reading() -> None:
    assert set(READ) == set(SOURCES)


@pytest.mark.parametrize("source", READ)
def test_a_tip_is_read_by_its_parts(source: str) -> None:
    make, works, fails, other = READ[source]
    tip = make()
    assert tip.source == source
    assert told(tip).story == Story(frozenset(works), frozenset(fails))._replace(**other)


@pytest.mark.parametrize("source", READ)
def test_another_wording_of_a_tip_is_read_alike(source: str) -> None:
    tip = READ[source][0]()
    reworded = tuple(
        part if isinstance(part, Quote) else "error, failed, worked `age`: 1. x(y) -> ok" for part in tip.parts
    )
    assert told(tip._replace(parts=reworded, text="known here: age")).story == told(tip).story


def test_a_chance_scales_the_call_that_the_tip_is_about_alone() -> None:
    good, bad = factors([GOOD, "SELECT 1 FROM t"], Recall([told(before_call.need_tip(NEED), about=1)]))
    assert good == 1
    assert bad == pytest.approx(1 - 8.5 / 9)


def test_the_look_up_that_a_tip_gives_is_made_before_others() -> None:
    note = told(READ["looked up"][0]())
    assert factors(["DESC concert", "DESC", "SHOW TABLES"], Recall([note])).tolist() == [2, 1, 1]


def test_a_tip_that_the_gate_made_is_read_by_its_parts_too() -> None:
    tip = tell(READ["renamed"][0](), failed().reader)
    assert tip is not None
    good, bad = factors([GOOD, BAD], Recall([told(tip)]))
    assert good == 2
    assert bad == pytest.approx(0.1)


def test_a_line_without_a_verdict_is_passed_over() -> None:
    assert factors([GOOD], Recall([Note("- Goal: the name of each singer")])).tolist() == [1]
