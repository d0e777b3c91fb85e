"""A failure and the way out of it are known while their session goes on, and its end counts none of it twice."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from tests.streams.log_pipeline import RIGHT, WRONG, LogPipeline

WORSE = ("bash", {"command": "pip isntall numpy"}, "", "ERROR: unknown command 'isntall'")
SILENT = ("bash", {"command": "pip install numpy"}, "", None)
BUSY = ("bash", {"command": "pip install numpy"}, "", "HTTP 503 Service Unavailable")
SELECTED = ("sql", {"query": "SELECT name FROM users"}, "7 rows", None)
REJECTED = ("sql", {"query": "SELECT nam FROM users"}, "", "no such column: 'nam'")
CALLS = (RIGHT, WRONG, WORSE, SILENT, BUSY, SELECTED, REJECTED)


def handed_on(pipeline: LogPipeline) -> list[bool]:
    """Whether the session was open, for each trajectory on the topic."""
    return [value.get("is_open", False) for value in pipeline.published("trajectories")]


async def items(pipeline: LogPipeline) -> list[dict[str, Any]]:
    return sorted(await pipeline.bodies("items"), key=lambda each: str(each["id"]))


async def known(pipeline: LogPipeline) -> tuple[object, ...]:
    """All that the pipeline knows: rows, the items with their times, and what the compacted topic of items holds."""
    live: dict[bytes, bytes] = {}
    for record in pipeline.log.read_all(topic(pipeline.tenant, "items")):
        live.pop(record.key or b"", None)
        if record.value:
            live[record.key or b""] = record.value
    return await pipeline.knowledge(), await items(pipeline), live


async def test_a_way_out_is_known_while_its_session_is_open() -> None:
    pipeline = LogPipeline()
    events = pipeline.story.session("s", REJECTED, SELECTED, RIGHT)
    await pipeline.take(events[:3])
    (item,) = await items(pipeline)
    assert (item["now"], item["was"], item["support"]) == (["name"], ["nam"], 1)
    knowledge = await pipeline.knowledge()
    assert knowledge.judgments == [] and knowledge.patterns["class"] == 1
    assert pipeline.published("judgments") == []
    await pipeline.take(events[3:])
    (item,) = await items(pipeline)
    assert item["support"] == 1 and handed_on(pipeline) == [True, False]


async def test_a_way_out_without_a_result_is_known_with_the_next_call() -> None:
    pipeline = LogPipeline(batch_records=1)
    silent = (*SELECTED[:2], "", None)
    events = pipeline.story.session("s", REJECTED, silent, RIGHT)
    await pipeline.take(events[:3])
    assert handed_on(pipeline) == []
    await pipeline.take(events[3:4])
    assert [item["now"] for item in await items(pipeline)] == [["name"]]


async def test_ever_new_failures_hand_on_a_session_only_so_often() -> None:
    pipeline = LogPipeline(batch_records=1)
    wrong = [("bash", {"command": f"pip {word} numpy"}, "", f"unknown command '{word}'") for word in WORDS]
    events = pipeline.story.session("s", *[call for each in wrong for call in (each, RIGHT)])
    await pipeline.take(events)
    assert handed_on(pipeline) == [True] * 8 + [False]


WORDS = "instal", "insta", "inst", "add", "get", "fetch", "load", "pull", "take", "bring", "place", "put"


def sessions_of(calls: list[list[tuple[Any, ...]]], pipeline: LogPipeline, agents: int) -> list[list[Event]]:
    return [
        pipeline.story.session(f"s{number}", *made, agent=f"a{number % agents}") for number, made in enumerate(calls)
    ]


@given(
    calls=st.lists(st.lists(st.sampled_from(CALLS), max_size=7), min_size=1, max_size=3),
    agents=st.integers(1, 3),
    seed=st.integers(0, 99),
    crashes=st.sets(st.integers(0, 20), max_size=3),
    again=st.integers(0, 6),
    swapped=st.integers(0, 20),
)
@settings(max_examples=settings.default.max_examples // 2)
async def test_what_is_known_early_changes_nothing_of_what_is_known_in_the_end(
    calls: list[list[tuple[Any, ...]]], agents: int, seed: int, crashes: set[int], again: int, swapped: int
) -> None:
    """Batches of one record with crashes, repeats and swapped events, against sessions that end in their own batch."""
    at_once = LogPipeline(batch_records=1)
    for session in sessions_of(calls, at_once, agents):
        await at_once.send(session, per_record=64)
    await at_once.drain()
    assert not any(handed_on(at_once))
    early = LogPipeline(batch_records=1)
    events = early.story.interleaved(sessions_of(calls, early, agents), seed)
    place = swapped % len(events)
    events[place : place + 2] = reversed(events[place : place + 2])
    for number, event in enumerate(events):
        await early.take([event, *events[max(0, number - again) : number]] if number == swapped else [event])
        if number in crashes:
            early.crash()
    await early.drain()
    assert await known(early) == await known(at_once)
