"""What the first stage holds of sessions is bounded: in bytes, and in records that a restart would read again."""

import pytest

from benchmarks.cloudevents import encode_record
from fleetlore.testing import FakeClock
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Effects, Record, TopicPartition
from streams.stages.s1_sessions.partition import MAX_OPEN_RECORDS
from streams.stages.s1_sessions.stage import MAX_BYTES, MAX_TAIL_BYTES, SessionsStage

NOW = 1_767_225_600.0
EVENTS = TopicPartition(topic("acme", "events"), 0)
# A worker's bytes are shared by its partitions.
PARTITIONS = 96
TEXT = "x" * 1_900


@pytest.fixture
async def stage() -> SessionsStage:
    """With as many partitions, each of which has one open session."""
    made = SessionsStage(MemoryStore(), FakeClock(NOW), Metrics("test"), 600.0)
    await made.process([record(partition, 0, event(f"first{partition}", 0)) for partition in range(PARTITIONS)])
    return made


def event(session: str, sequence: int) -> Event:
    """No two have one text: a text that was seen before costs nothing."""
    data = {ev.TOOL: "bash", ev.ARGUMENTS: {"command": f"{session} {sequence} {TEXT}"}, ev.RESULT: TEXT}
    return Event("outcome", "acme", "a", session, sequence, NOW, data)


def record(partition: int, offset: int, *events: Event) -> Record:
    return Record(EVENTS.topic, partition, offset, None, encode_record(events), dict(BATCH_HEADERS))


def closed(effects: Effects) -> int:
    return sum(each.value.count(b'"ending":"continued"') for each in effects.outgoing if each.topic == "trajectories")


async def test_of_open_sessions_the_oldest_are_closed_early(stage: SessionsStage) -> None:
    bytes_of_one, offset, early = 8 * 2 * len(TEXT), 0, 0
    while offset * bytes_of_one < 3 * MAX_BYTES / PARTITIONS:
        offset += 1
        early += closed(await stage.process([record(0, offset, *(event(f"s{offset}", n) for n in range(8)))]))
    open_still = offset + 1 - stage.committable(EVENTS, offset + 1)
    assert early == offset + 1 - open_still, "what is not open any more was handed on"
    assert 0 < open_still * bytes_of_one <= MAX_BYTES / PARTITIONS


async def test_of_tails_the_oldest_become_dead_letters(stage: SessionsStage) -> None:
    letters = []
    size = 0
    while size < 3 * MAX_TAIL_BYTES / PARTITIONS:
        one = record(1, 1 + len(letters), event(f"tail{size}", 7))
        letters.append((await stage.process([one])).dead_letters)
        size += len(one.value or b"")
    assert not letters[0] and {letter.reason for some in letters for letter in some} == {"missing_start"}
    held = len(letters) - sum(map(len, letters))
    assert 0 < held * size / len(letters) <= MAX_TAIL_BYTES / PARTITIONS


async def test_a_session_that_begins_too_far_back_is_closed(stage: SessionsStage) -> None:
    last = MAX_OPEN_RECORDS
    assert not closed(await stage.process([record(0, last, event("s", 0))]))
    assert stage.committable(EVENTS, last + 1) == 0
    assert closed(await stage.process([record(0, last + 1, event("s", 1))])) == 1
    assert stage.committable(EVENTS, last + 2) == last
