"""A new owner repeats its first writes once no write of its predecessor can land any more."""

from fleetlore.testing import FakeClock
from streams.runtime.delivery import SecondWrites
from streams.stage.base import Effects, Outgoing


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


def test_after_its_time_and_after_another_assignment_nothing_is_kept() -> None:
    clock = FakeClock()
    writes = SecondWrites(15.0, clock)
    writes.begin()
    writes.take("items", effects("a", version=1))
    writes.begin()
    clock.advance(15.0)
    assert not writes.owes("items")
    writes.take("items", effects("b", version=1))
    assert not writes.owes("items")
    alone = SecondWrites(0.0, clock)
    alone.begin()
    alone.take("items", effects("a", version=1))
    assert not alone.owes("items"), "a worker that is alone writes nothing twice"
