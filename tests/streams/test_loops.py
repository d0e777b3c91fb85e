"""Patterns count loops, and how the sessions ended that met them."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.index import LoreIndex, worth_showing
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.stats import health
from tests.streams.log_pipeline import LogPipeline, flat

NOW = 1_767_225_600.0
POLL = ("job_status", {"job": 7}, "queued", None)
KICK = ("job_start", {"job": 7}, "started", None)
DONE = ("job_status", {"job": 7}, "finished", None)
LOOK = ("read", {"path": "a"}, "text", None)
HARMLESS = ("find", {"email": "a@x.org"}, "", "Error: user not found")
HARMFUL = ("find", {"email": "a@x.org"}, "", "disk full")
FINE = ("find", {"email": "b@x.org"}, "found", None)


async def loops(pipeline: LogPipeline) -> dict[str, Pattern]:
    """By level."""
    found = [Pattern.from_json(orjson.dumps(body)) for body in await pipeline.bodies("patterns")]
    return {each.level: each for each in found if each.is_loop}


async def index_of(pipeline: LogPipeline) -> LoreIndex:
    index = LoreIndex()
    for body in await pipeline.bodies("patterns"):
        index.put_pattern(Pattern.from_json(orjson.dumps(body)))
    for body in await pipeline.bodies("items"):
        index.put_item(MemoryItem.from_json(orjson.dumps(body)))
    return index


async def test_a_loop_is_counted_as_a_pattern_and_not_as_a_failure() -> None:
    pipeline = LogPipeline()
    await pipeline.send(pipeline.story.session("a", POLL, POLL, POLL, POLL, KICK))
    await pipeline.take(pipeline.story.session("b", *([POLL, LOOK] * 3), outcome="failure"))
    rows = (await index_of(pipeline)).patterns.values()
    classes = [each for each in rows if each.is_loop and each.level == "class"]
    assert sorted((each.tool, each.template, each.calls, each.sessions) for each in classes) == [
        ("job_status", "the same call gives the same result", 2, 1),
        ("job_status → read", "2 calls in turn give the same results", 1, 1),
    ]
    assert [(each.tool, each.calls, each.failures, each.errors) for each in health(rows)] == [
        ("job_start", 1, 0, ()),
        ("job_status", 7, 0, ()),
        ("read", 3, 0, ()),
    ]
    assert health(rows, by="error") == []


async def test_polling_that_gets_on_and_silence_are_no_loops() -> None:
    pipeline = LogPipeline()
    polls = [("job_status", {"job": 7}, f"{done} % done", None) for done in range(0, 90, 10)]
    silent = [("note", {"text": "hm"}, "", None)] * 6
    long = [("write", {"text": "x" * 9_000 + str(number)}, "written", None) for number in range(4)]
    await pipeline.take(pipeline.story.session("a", *polls, *silent, *long))
    assert await loops(pipeline) == {}


async def test_others_hear_of_a_loop_while_the_session_is_still_open() -> None:
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("a", POLL, POLL, POLL, outcome=None))
    assert set(await loops(pipeline)) == {"family", "class", "exact"}


@given(order=st.permutations(range(8)), batch_records=st.integers(1, 8), again=st.integers(0, 7))
async def test_any_order_and_repetition_counts_the_same(order: list[int], batch_records: int, again: int) -> None:
    """Without the one in between, three equal calls would be a loop."""
    events = LogPipeline().story.session("s", POLL, POLL, LOOK, POLL, POLL, POLL)
    expected = LogPipeline()
    await expected.take(events)
    pipeline = LogPipeline(batch_records=batch_records)
    await pipeline.take([events[place] for place in [*order, order[again]]])
    assert await pipeline.knowledge() == await expected.knowledge()
    assert (await loops(pipeline))["exact"].calls == 2


async def test_harmless_and_harmful_patterns_are_told_apart(pipeline: Any) -> None:
    story = pipeline.story
    sessions = [
        story.session(
            f"{name}-{n}", call, FINE, outcome="failure" if n in failing else "success", agent=f"agent-{n % 5}"
        )
        for name, call, failing in (
            ("harmless", HARMLESS, {1, 2}),
            ("harmful", HARMFUL, set(range(9))),
            ("fine", FINE, {1, 2, 3}),
        )
        for n in range(10)
    ]
    unsure = story.session("unsure", HARMFUL, outcome="unknown")
    await pipeline.take(flat(sessions) + unsure)
    rows = [Pattern(**row) for row in await pipeline.bodies("patterns")]
    [tool] = [row for row in rows if row.level == "tool"]
    shown = {
        row.template: (row.sessions, row.sessions_ended, row.sessions_failed) for row in rows if row.level == "class"
    }
    assert shown == {"user not found": (10, 10, 2), "disk full": (11, 10, 9)}
    assert (tool.sessions_ended, tool.sessions_failed) == (30, 14)
    assert {row.template for row in rows if row.level == "class" and worth_showing(row, tool)} == {"disk full"}
