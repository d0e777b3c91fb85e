"""Sending dead letters back, on a log in memory. On a real broker: tests/streams/commands/test_redrive.py."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from fleetlore.errors import BrokerUnavailable, RecordsRefused
from fleetlore.wire.dead_letter import MAX_VALUE_BYTES, REDRIVEN, ROW_REFUSED, Mark, RawRecord, read_dead_letter
from fleetlore.wire.topics import topic
from sinks import redrive as module
from sinks.redrive import Redriven, redrive
from tests.build import letter
from tests.doubles.memory_log import InMemoryLog, Record

PARTITIONS = 3


class World:
    """One tenant's events and dead letters, and all that `redrive` reads and sends them by."""

    tenant, events, letters = "acme", topic("acme", "events"), topic("acme", "dead-letters")

    def __init__(self) -> None:
        self.log = InMemoryLog(PARTITIONS)

    def source(self, value: bytes, **fields: Any) -> int:
        """Write an event record; its offset."""
        return self.log.append(self.events, value, partition=1, **fields).offset

    async def add_dead_letter(self, value: bytes = b"{", **changes: Any) -> None:
        fields: dict[str, Any] = {"to": self.letters, "topic": self.events, "partition": 1, "offset": 0}
        await self.send([letter(**(fields | {"key": b"session", "value": value, "headers": {}} | changes))])

    async def redrive(self, send: bool = True, at_once: int = 100, **choice: Any) -> Redriven:
        return await redrive("nowhere:1", self.tenant, send=send, at_once=at_once, **choice)

    async def marks(self) -> list[Mark]:
        return [each async for each in self.read_dead_letters() if isinstance(each, Mark)]

    def sent(self, partition: int = 1) -> list[Record]:
        return self.log.read(self.events, partition)

    async def read_dead_letters(self, *_: object) -> AsyncIterator[Any]:
        for record in self.log.read_all(self.letters):
            yield read_dead_letter(record)

    @asynccontextmanager
    async def observer(self, _: object) -> AsyncIterator[Self]:
        yield self

    async def __aenter__(self) -> Self:
        """It is its own producer."""
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def partitions_of(self, _: object, name: str) -> Sequence[int]:
        return range(self.log.partitions(name))

    async def record_at(self, _: object, name: str, partition: int, offset: int) -> Record | None:
        return next((each for each in self.log.read(name, partition) if each.offset == offset), None)

    async def send(self, records: Sequence[RawRecord]) -> None:
        for name, partition, key, value, headers in records:
            self.log.append(name, value, key=key, partition=partition % PARTITIONS, headers=headers)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    for name in ("read_dead_letters", "observer", "partitions_of", "record_at"):
        monkeypatch.setattr(module, name, getattr(made, name))
    monkeypatch.setattr(module, "BatchProducer", lambda *_: made)
    return made


async def test_a_letter_goes_back_to_its_place_with_its_bytes_its_key_and_its_headers(world: World) -> None:
    await world.add_dead_letter(b"\xff\x00", headers={"ce_type": b"x", "dlq.redriven": b"1"})
    done = await world.redrive()
    assert [each.place for each in done.sent] == ["1:0"]
    [record] = world.sent()
    assert (record.key, record.value) == (b"session", b"\xff\x00")
    assert dict(record.headers) == {"ce_type": b"x", REDRIVEN: b"2"}
    assert await world.marks() == [Mark("1:0")]


async def test_a_dry_run_sends_nothing_and_says_the_same(world: World) -> None:
    for number in range(4):
        await world.add_dead_letter(b"%d" % number, offset=number)
    dry = await world.redrive(send=False, limit=3)
    assert world.sent() == [] and await world.marks() == []
    wet = await world.redrive(limit=3)
    assert [each.place for each in dry.sent] == [each.place for each in wet.sent] == ["1:0", "1:1", "1:2"]
    assert dry.beyond == wet.beyond == 1


async def test_a_letter_that_the_broker_refuses_keeps_no_other_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await world.add_dead_letter(b"%d" % number, offset=number)
    send = world.send

    async def send_others(records: Sequence[RawRecord]) -> None:
        refused = [each for each in records if each.topic == world.events and each.value == b"1"]
        await send([each for each in records if each not in refused])
        if refused:
            raise RecordsRefused(tuple((each.topic, each.value or b"") for each in refused), "too large")

    monkeypatch.setattr(world, "send", send_others)
    done = await world.redrive()
    assert [each.place for each in done.sent] == ["1:0", "1:2"] == [each.place for each in await world.marks()]
    assert [(each.place, why) for each, why in done.refused] == [("1:1", "the broker refuses it: too large")]


async def test_no_letter_is_sent_back_twice(world: World) -> None:
    """A worker that dies between writing letters and committing writes them again."""
    for number in (1, 2, 1):
        await world.add_dead_letter(b"%d" % number, offset=number)
    assert len((await world.redrive(limit=1)).sent) == 1
    second = await world.redrive()
    assert ([each.offset for each in second.sent], second.before) == ([2], 1)
    third = await world.redrive()
    assert (third.sent, third.before) == ([], 2)
    assert [record.value for record in world.sent()] == [b"1", b"2"]


async def test_only_what_is_chosen_is_sent_in_the_order_of_the_source(world: World) -> None:
    for number in range(6):
        await world.add_dead_letter(b"%d" % number, offset=number, reason="not_json" if number % 2 else "future_time")
    await world.add_dead_letter(b"x", topic=topic(world.tenant, "trajectories"), reason="wrong_shape")
    by_reason = await world.redrive(send=False, reasons=frozenset({"future_time"}))
    assert [each.offset for each in by_reason.sent] == [0, 2, 4]
    by_place = await world.redrive(send=False, places=frozenset({"1:5", "1:1"}))
    assert [each.place for each in by_place.sent] == ["1:1", "1:5"]


async def test_what_cannot_go_back_is_refused_with_the_reason(world: World) -> None:
    no_topic = "no topic that the workers of tenant"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"topic": "fleetlore.another.events"}, no_topic),
        ({"topic": "somebodys-payments"}, no_topic),
        ({"topic": topic(world.tenant, "items")}, no_topic),
        ({"topic": topic(world.tenant, "dead-letters")}, no_topic),
        ({"partition": PARTITIONS}, "has no partition 3 any more"),
        ({"headers": {REDRIVEN: b"3"}}, "sent back 3 times"),
        ({"reason": ROW_REFUSED}, "a row that the store refused"),
        ({"value": b"x" * (MAX_VALUE_BYTES + 1)}, "is deleted"),
    ]
    for number, (changes, _) in enumerate(refused):
        await world.add_dead_letter(**changes, offset=90 + number)
    done = await world.redrive()
    said = {each.offset - 90: why for each, why in done.refused}
    for number, (changes, why) in enumerate(refused):
        assert why in said[number], changes
    assert done.sent == [] and len(said) == len(refused)
    assert await world.marks() == []
    assert [world.sent(partition) for partition in range(PARTITIONS)] == [[], [], []]


async def test_what_nobody_signed_is_not_sent_back(world: World) -> None:
    await world.add_dead_letter(reason="unsigned")
    done = await world.redrive(self_declared=False)
    assert [why for _, why in done.refused] == ["no principal signed it"] and not world.sent()


async def test_a_letter_that_was_cut_is_read_where_it_came_from(world: World) -> None:
    large = b"x" * (MAX_VALUE_BYTES + 1000)
    world.source(b"other")
    offset = world.source(large, key=b"k", headers=[("h", b"1")])
    await world.add_dead_letter(large, offset=offset)
    await world.redrive()
    back = world.sent()[-1]
    assert (back.value, back.key, dict(back.headers)) == (large, b"k", {"h": b"1", REDRIVEN: b"1"})
    event = b'"' + large + b'"'
    record = b"[1," + event + b"]"
    await world.add_dead_letter(event, offset=world.source(record), whole=False)
    await world.redrive()
    assert world.sent()[-1].value == record, "the whole record of an event"


async def test_where_another_record_lies_by_now_nothing_is_sent(world: World) -> None:
    """The topic was deleted and made again."""
    world.source(b"a record of another life")
    await world.add_dead_letter(b"x" * (MAX_VALUE_BYTES + 1), offset=0)
    [(_, why)] = (await world.redrive()).refused
    assert "another record" in why


async def test_what_was_sent_before_a_failure_is_marked_and_the_rest_goes_with_the_next_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await world.add_dead_letter(b"%d" % number, offset=number)
    send, calls = world.send, 0

    async def fails_at_the_second_chunk(records: Sequence[RawRecord]) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise BrokerUnavailable("away")
        await send(records)

    monkeypatch.setattr(world, "send", fails_at_the_second_chunk)
    with pytest.raises(BrokerUnavailable):
        await world.redrive(at_once=2)
    assert await world.marks() == [Mark("1:0"), Mark("1:1")]
    assert [each.offset for each in (await world.redrive()).sent] == [2, 3, 4]
    assert [record.value for record in world.sent()] == [b"0", b"1", b"2", b"3", b"4"]
