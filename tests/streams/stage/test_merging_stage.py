"""Buffered changes hold the commit back and are written in time."""

from __future__ import annotations

from fleetlore.testing.clock import FakeClock
from streams.stage.base import Record, TopicPartition
from streams.stage.merging_stage import WriteBuffer

HERE = TopicPartition("t", 0)


def record(offset: int) -> Record:
    return Record(*HERE, offset, None, b"", {})


def held(clock: FakeClock, most: int = 10) -> WriteBuffer[int]:
    return WriteBuffer(clock, seconds=5.0, most=most)


def test_the_commit_waits_for_the_first_record_whose_change_waits() -> None:
    changes = held(FakeClock())
    assert not changes.due([record(3)])
    assert changes.committable(HERE, 4) == 4
    changes.waiting["t", "a"] = 1
    assert not changes.due([record(4), record(5)])
    changes.waiting["t", "a"] = 2
    assert not changes.due([record(6)])
    assert changes.committable(HERE, 7) == 4
    assert changes.committable(TopicPartition("t", 1), 7) == 7
    changes.write()()
    assert changes.committable(HERE, 7) == 7 and not changes.waiting


def test_it_is_due_after_a_while_or_when_nothing_comes_or_too_much_waits() -> None:
    clock = FakeClock()
    changes = held(clock, most=2)
    changes.waiting["t", "a"] = 1
    assert not changes.due([record(0)])
    assert changes.due([])
    clock.advance(5.0)
    assert changes.due([record(1)])
    changes.write()()
    changes.waiting |= {("t", "a"): 1, ("t", "b"): 1}
    assert not changes.due([record(2)])
    changes.waiting["t", "c"] = 1
    assert changes.due([record(3)])


def test_what_is_written_behind_is_covered_until_it_is_acknowledged() -> None:
    changes = held(FakeClock())
    changes.waiting["t", "a"] = 1
    changes.due([record(3)])
    first = changes.write()
    assert changes and not changes.waiting
    changes.waiting["t", "a"] = 2
    changes.due([record(5)])
    assert changes.newest(("t", "a")) == 2
    second = changes.write()
    assert changes.newest(("t", "a")) == 2
    assert changes.committable(HERE, 7) == 3
    first()
    assert changes.committable(HERE, 7) == 5
    second()
    assert changes.committable(HERE, 7) == 7 and not changes
    assert changes.newest(("t", "a")) is None


def test_nothing_counts_as_newer_than_another_store() -> None:
    changes = held(FakeClock())
    changes.waiting["t", "a"] = 1
    changes.due([record(3)])
    acknowledged = changes.write()
    changes.waiting["t", "b"] = 1
    changes.drop()
    assert changes.newest(("t", "a")) is changes.newest(("t", "b")) is None
    assert changes.committable(HERE, 7) == 3
    acknowledged()
    assert changes.committable(HERE, 7) == 7


def test_nothing_is_held_of_partitions_that_moved_away() -> None:
    changes = held(FakeClock())
    changes.waiting["t", "a"] = 1
    changes.due([record(0)])
    changes.write()
    changes.waiting["t", "a"] = 2
    changes.due([record(1)])
    changes.forget()
    assert changes.committable(HERE, 1) == 1
    assert not changes.due([])
