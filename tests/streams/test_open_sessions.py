"""A failure and the way out of it are known while their session goes on, and its end counts none of it twice."""

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from tests.streams.log_pipeline import BASE_TIME, LogPipeline

MakePipeline = Callable[..., LogPipeline]

RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
WORSE = ("bash", {"command": "pip isntall numpy"}, "", "ERROR: unknown command 'isntall'")
SILENT = ("bash", {"command": "pip install numpy"}, "", None)
BUSY = ("bash", {"command": "pip install numpy"}, "", "HTTP 503 Service Unavailable")
SELECTED = ("sql", {"query": "SELECT name FROM users"}, "7 rows", None)
REJECTED = ("sql", {"query": "SELECT nam FROM users"}, "", "no such column: 'nam'")
CALLS = (RIGHT, WRONG, WORSE, SILENT, BUSY, SELECTED, REJECTED)


def handed_on(pipeline: LogPipeline) -> list[bool]:
    """Whether the session was open, for each trajectory on the topic."""
    records = pipeline.log.read_all(topic(pipeline.tenant, "trajectories"))
    values = [value for record in records for value in orjson.loads(record.value or b"[]")]
    return [value.get("is_open", False) for value in values]


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


async def test_a_way_out_is_known_while_its_session_is_open(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    events = pipeline.story.session("s", REJECTED, SELECTED, RIGHT)
    await pipeline.send(events[:3])
    await pipeline.drain()
    (item,) = await items(pipeline)
    assert (item["now"], item["was"], item["support"]) == (["name"], ["nam"], 1)
    knowledge = await pipeline.knowledge()
    assert knowledge.judgments == [] and knowledge.patterns["class"] == 1
    assert list(pipeline.log.read_all(topic(pipeline.tenant, "judgments"))) == []
    await pipeline.send(events[3:])
    await pipeline.drain()
    (item,) = await items(pipeline)
    assert item["support"] == 1 and handed_on(pipeline) == [True, False]


async def test_a_way_out_without_a_result_is_known_with_the_next_call(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=1)
    silent = (*SELECTED[:2], "", None)
    events = pipeline.story.session("s", REJECTED, silent, RIGHT)
    await pipeline.send(events[:3])
    await pipeline.drain()
    assert handed_on(pipeline) == []
    await pipeline.send(events[3:4])
    await pipeline.drain()
    assert [item["now"] for item in await items(pipeline)] == [["name"]]


async def test_a_session_that_ends_in_the_same_batch_is_handed_on_once(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=16)
    await pipeline.send(pipeline.story.session("s", WRONG, RIGHT))
    await pipeline.drain()
    assert handed_on(pipeline) == [False]


async def test_ever_new_failures_hand_on_a_session_only_so_often(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=1)
    wrong = [("bash", {"command": f"pip {word} numpy"}, "", f"unknown command '{word}'") for word in WORDS]
    events = pipeline.story.session("s", *[call for each in wrong for call in (each, RIGHT)])
    await pipeline.send(events)
    await pipeline.drain()
    assert handed_on(pipeline) == [True] * 8 + [False]


WORDS = "instal", "insta", "inst", "add", "get", "fetch", "load", "pull", "take", "bring", "place", "put"


async def test_a_session_that_was_closed_for_its_silence_goes_on_from_what_is_stored(
    log_pipeline: MakePipeline,
) -> None:
    pipeline = log_pipeline(batch_records=1, silent_seconds=60.0)
    events = pipeline.story.session("s", WRONG, RIGHT, REJECTED, SELECTED)
    later = [event._replace(time=event.time + 1000) for event in events]
    await pipeline.send([*events[:2], *pipeline.story.session("o", start=events[0].time + 500), *later[2:]])
    await pipeline.drain()
    pipeline.crash()
    await pipeline.drain()
    assert await pipeline.dead_letters() == []
    assert ("s", "success", 6) in (await pipeline.knowledge()).judgments


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
@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_what_is_known_early_changes_nothing_of_what_is_known_in_the_end(
    log_pipeline: MakePipeline,
    calls: list[list[tuple[Any, ...]]],
    agents: int,
    seed: int,
    crashes: set[int],
    again: int,
    swapped: int,
) -> None:
    """Batches of one record with crashes, repeats and swapped events, against sessions that end in their own batch."""
    at_once = log_pipeline(batch_records=1)
    for session in sessions_of(calls, at_once, agents):
        await at_once.send(session, per_record=64)
    await at_once.drain()
    assert not any(handed_on(at_once))
    early = log_pipeline(batch_records=1)
    events = early.story.interleaved(sessions_of(calls, early, agents), seed)
    place = swapped % len(events)
    events[place : place + 2] = reversed(events[place : place + 2])
    for number, event in enumerate(events):
        await early.send([event, *events[max(0, number - again) : number]] if number == swapped else [event])
        await early.drain()
        if number in crashes:
            early.crash()
    await early.drain()
    assert await known(early) == await known(at_once)


async def test_under_the_id_of_another_agent_an_open_session_is_its_own(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=1)
    await pipeline.send(pipeline.story.session("s", REJECTED, SELECTED, agent="a"))
    await pipeline.drain()
    await pipeline.send(pipeline.story.session("s", WRONG, RIGHT, RIGHT, agent="b", start=BASE_TIME + 50))
    await pipeline.drain()
    assert [headers["dlq.reason"] for headers, _ in await pipeline.dead_letters()] == []
    assert sorted((await pipeline.knowledge()).judgments) == [("s", "success", 4), ("s", "success", 5)]
    assert [item["tool"] for item in await items(pipeline)] == ["sql"]  # an install waits for three agents
