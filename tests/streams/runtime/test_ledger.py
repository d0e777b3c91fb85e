"""The ledger gives each offset to commit once, and nothing of an old assignment."""

from streams.runtime.ledger import Ledger
from streams.stage.base import TopicPartition

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


def test_an_answer_that_comes_after_a_rebalance_says_nothing_of_the_new_assignment() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    taken = ledger.take()
    ledger.forget()
    ledger.settle(taken)
    ledger.put_back(taken)
    assert ledger.take() == {}
    ledger.allow(PARTITION, 5, 5)
    assert ledger.take() == {PARTITION: 5}


def test_after_a_rebalance_nothing_of_the_old_assignment_is_committed() -> None:
    ledger = Ledger()
    ledger.allow(PARTITION, 5, 5)
    ledger.settle({PARTITION: 2})
    ledger.forget()
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
