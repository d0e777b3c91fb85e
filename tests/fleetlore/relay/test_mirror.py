from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from fleetlore.config import Settings
from fleetlore.kafka.by_relay import LORE
from fleetlore.relay.native import _Mirror, _Part
from fleetlore.testing import FakeClock
from fleetlore.wire.topics import TOMBSTONE_SECONDS, topic
from tests.build import memory_item


def record(offset: int, key: bytes | None, value: bytes | None, time: float = 0.0) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, int(time * 1000), 0, key, value, 0, 0, len(value or b""), ())


def test_from_every_position_it_gives_the_newest_of_each_key_in_order() -> None:
    part, random = _Part(), Random(3)
    log = [(number, b"%d" % random.randrange(40), random.choice((None, b"%d" % number))) for number in range(6_000)]
    for offset, key, value in log:
        part.put(record(offset, key, value))
        part.put(record(offset, key, value))  # what was not taken to the end comes again
    assert part.end == 6_000
    for position in (0, 1, 5_000, 5_990, 6_000):
        newest = {key: (offset, key, value) for offset, key, value in log if offset >= position}
        assert list(part.since(position)) == sorted(newest.values())
    assert len(part._records) < 1_200, "what was replaced is let go"


def test_a_record_that_is_left_out_is_deleted_at_agents_and_lastly_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlore.relay.native._LEFT_OUT", 2)
    part = _Part()
    for offset, key in enumerate((b"a", b"b", b"c", b"d")):
        part.put(record(offset, key, b"v"))
    for key in (b"a", b"b", b"c", b"unknown"):
        part.leave_out(key)
    assert list(part.since(0)) == [(1, b"b", None), (2, b"c", None), (3, b"d", b"v")]
    part.put(record(4, b"b", b"new"))
    part.leave_out(b"d")
    assert list(part.since(0)) == [(2, b"c", None), (3, b"d", None), (4, b"b", b"new")]


def test_a_tombstone_of_the_log_goes_with_its_time_and_not_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlore.relay.native._LEFT_OUT", 0)
    part = _Part()
    for offset in range(3):
        part.put(record(offset, b"%d" % offset, None, offset))
    part.put(record(3, b"1", b"back"))
    part.expire(0.5)
    assert list(part.since(0)) == [(2, b"2", None), (3, b"1", b"back")]
    part.expire(2.5)
    assert list(part.since(0)) == [(3, b"1", b"back")]


def item(id: str, agents: int = 1) -> bytes:
    return memory_item(id, tenant="t", agents=agents, support=10 * agents, content="x" * 300).to_json()


class World:
    """A mirror whose records a test gives."""

    def __init__(self, most_mb: float) -> None:
        self.clock = FakeClock(10 * TOMBSTONE_SECONDS)
        settings = Settings(replica_mb=most_mb / 4)
        fleet: Any = SimpleNamespace(tenant="t", bootstrap="nowhere:1", settings=settings, clock=self.clock)
        self.mirror = _Mirror(fleet, LORE)
        self.ends: dict[str, int] = {}

    async def give(self, name: str, values: Mapping[str, bytes | None]) -> None:
        found = []
        for key, value in values.items():
            offset = self.ends[name] = self.ends.get(name, -1) + 1
            found.append(record(offset, key.encode(), value, self.clock.now()))
        await self.mirror._take({TopicPartition(topic("t", name), 0): found})

    def values(self, position: int = 0) -> dict[str, bytes | None]:
        parts = self.mirror._parts["items"]
        return {key.decode(): value for _, key, value in parts[0].since(position)}

    @property
    def bytes(self) -> int:
        return sum(len(value or b"") for value in self.values().values())


async def test_lore_is_bounded_in_bytes_and_the_best_backed_stays() -> None:
    world = World(most_mb=0.2)
    strong = {f"s{n}": item(f"s{n}", 50) for n in range(10)}
    await world.give("items", strong)
    for start in range(0, 2_000, 100):
        await world.give("items", {f"w{n}": item(f"w{n}") for n in range(start, start + 100)})
    assert world.bytes < 200_000
    kept = {key: value for key, value in world.values().items() if value is not None}
    assert strong.items() <= kept.items() and len(kept) > 20
    await world.mirror.close()


async def test_an_update_that_does_not_fit_deletes_the_earlier_version_and_an_erased_one_stays_deleted() -> None:
    world = World(most_mb=0.2)
    await world.give("items", {f"s{n}": item(f"s{n}", 9) for n in range(300)})
    held = next(key for key, value in world.values().items() if value is not None)
    end = world.ends["items"] + 1
    new = {key: item(key, 99) for key in ("n0", "n1")}
    await world.give("items", {held: item(held), **new})  # the support of the first is gone
    assert world.values(end) == {held: None, **new}
    await world.give("items", {"n0": None, "odd": b"no json" * 20_000})
    assert world.values(end)["n0"] is None and world.values(end)["odd"] is None
    await world.mirror.close()


async def test_an_odd_key_or_a_replaced_log_does_not_disturb_the_bound() -> None:
    world = World(most_mb=0.1)
    part = TopicPartition(topic("t", "patterns"), 0)
    for offset, key in enumerate((b"\xff\xfe", None, b"")):
        await world.mirror._take({part: [record(offset, key, b"x" * 90_000)]})
    assert sum(value is not None for _, _, value in world.mirror._parts["patterns"][0].since(0)) == 1
    world.mirror._forget()
    await world.give("items", {"a": item("a")})
    assert list(world.values()) == ["a"]
    await world.mirror.close()
