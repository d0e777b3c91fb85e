"""Offsets to commit are given once and nothing of an old assignment; a new owner repeats its first writes."""

from fleetlore.testing import FakeClock
from streams.runtime.delivery import Ledger, SecondWrites
from streams.stage.base import Effects, Outgoing, TopicPartition

PARTITION = TopicPartition("fleetlore.acme.events", 0)


def test_the_ledger_gives_what_has_moved_once() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 3)
    assert ledger.take() == {PARTITION: 3}
    ledger.settle({PARTITION: 3})
    assert ledger.take() == {}
    ledger.allow(PARTITION, 9, 3)
    assert ledger.take() == {}, "an open session holds it back: there is nothing new to commit"
    assert ledger.positions() == {PARTITION: 9}
    ledger.allow(PARTITION, 9, 9)
    assert ledger.take() == {PARTITION: 9}


def test_a_commit_that_failed_is_tried_again_where_nothing_more_comes() -> None:
    ledger, other = Ledger(), TopicPartition(PARTITION.topic, 99)
    ledger.allow(PARTITION, 5, 5)
    ledger.allow(other, 7, 7)
    taken = ledger.take()
    ledger.allow(other, 9, 9)
    ledger.put_back(taken)
    assert ledger.take() == {PARTITION: 5, other: 9}


def test_after_a_rebalance_nothing_of_the_old_assignment_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.settle({PARTITION: 2})
    taken = ledger.take()
    ledger.forget()
    ledger.settle(taken)  # its answer comes late
    ledger.put_back(taken)
    assert ledger.take() == {}
    assert ledger.positions() == {}
    ledger.allow(PARTITION, 2, 2)
    assert ledger.take() == {PARTITION: 2}, "what another worker committed meanwhile is not known"


def test_what_a_restart_reads_again_is_counted_until_it_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 3)
    assert ledger.uncommitted() == {PARTITION: 2}
    ledger.settle(ledger.take())
    ledger.allow(PARTITION, 900, 3)
    assert ledger.uncommitted() == {PARTITION: 897}, "a session that never ends holds the commit back"
    ledger.allow(PARTITION, 900, 900)
    assert ledger.uncommitted() == {PARTITION: 897}, "allowed is not committed"
    ledger.settle(ledger.take())
    assert ledger.uncommitted() == {PARTITION: 0}
    ledger.forget()
    assert ledger.uncommitted() == {}


def effects(*ids: str, version: int) -> Effects:
    rows = [{"id": id, "body": version} for id in ids]
    values = [Outgoing("acme", "items", id, b"%d" % version) for id in ids]
    return Effects(rows={"items": rows}, outgoing=[*values, Outgoing("acme", "candidates", "c", b"{}")])


def written(found: Effects) -> tuple[dict[str, int], list[tuple[str, bytes | None]]]:
    rows = {row["id"]: row["body"] for row in found.rows.get("items", [])}
    return rows, [(each.key, each.value) for each in found.outgoing]


def test_only_the_newest_is_written_again_and_before_what_is_new() -> None:
    clock = FakeClock()
    writes = SecondWrites(15.0, clock)
    writes.begin()
    for version in (1, 2):
        writes.take("items", effects("a", "b", version=version))
    clock.advance(14.0)
    assert not writes.owes("items")
    clock.advance(1.0)
    assert writes.owes("items") and not writes.owes("patterns")
    later = effects("b", version=3)
    writes.take("items", later)
    assert written(later) == ({"a": 2, "b": 3}, [("a", b"2"), ("b", b"3"), ("c", b"{}")])
    assert not writes.owes("items")
    writes.begin()
    writes.take("items", effects("a", version=1))
    clock.advance(15.0)
    empty = Effects()
    writes.take("items", empty)
    assert written(empty) == ({"a": 1}, [("a", b"1")]), "an idle stage writes again with an empty batch"
    writes.take("items", again := Effects())
    assert written(again) == ({}, [])
    writes.take("items", effects("a", version=1))
    assert not writes.owes("items"), "after its time nothing is kept"
    alone = SecondWrites(0.0, clock)
    alone.begin()
    alone.take("items", effects("a", version=1))
    assert not alone.owes("items"), "a worker that is alone writes nothing twice"
