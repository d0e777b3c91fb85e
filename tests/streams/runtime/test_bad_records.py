"""Bad records and refused rows become dead letters, and a stream of nothing else stops the worker."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import BreakerTripped, RowRefused, StoreUnavailable
from fleetlore.testing import FakeClock
from fleetlore.wire.principals import Principals, signer
from sinks.metrics import Metrics
from streams.runtime.bad_records import RUN_SECONDS, Breaker, sender_of
from streams.runtime.delivery import Delivery, Ledger
from streams.stage.base import DeadLetter, Effects, Record, TopicPartition
from tests.streams.runtime.world import EVENTS, PARTITION, World, record


def sent(offset: int, value: bytes = b"") -> Record:
    """A record of one of three agents, two minutes after the one before."""
    named = value or orjson.dumps({"agent": f"agent-{offset % 3}"})
    return record(offset, value=named)._replace(time=1_000_000.0 + RUN_SECONDS * offset)


def lost(offset: int) -> DeadLetter:
    return DeadLetter(sent(offset), sent(offset).value or b"", "missing_field", "no")


Breaking = Callable[..., tuple[Delivery, Callable[[int, int, bool], Awaitable[None]], Ledger]]


@pytest.fixture
def breaking(world: World, metrics: Metrics, clock: FakeClock) -> Breaking:
    """A delivery whose breaker trips early; and `send(first, last, good)`: a batch of one partition's records."""

    def make(run_records: int, **options: Any) -> tuple[Delivery, Callable[[int, int, bool], Awaitable[None]], Ledger]:
        ledger = Ledger(clock)
        delivery = Delivery(world, world, metrics, clock, ledger, 60.0, Breaker(run_records), **options)

        async def send(first: int, last: int, good: bool) -> None:
            world.effects = Effects(dead_letters=[] if good else [lost(offset) for offset in range(first, last)])
            await delivery.run(world, [sent(offset) for offset in range(first, last)])

        return delivery, send, ledger

    return make


async def test_a_stream_that_is_refused_wholesale_stops_before_its_batch_has_any_effect(
    world: World, breaking: Breaking, metrics: Metrics, clock: FakeClock
) -> None:
    _, send, ledger = breaking(20)
    await send(0, 19, False)
    ledger.settle(ledger.take())
    happened, buried = list(world.happened), len(world.dead_letters)
    with pytest.raises(BreakerTripped) as raised:
        await send(19, 40, False)
    said = str(raised.value)
    assert said.startswith(
        f"{EVENTS}: the last 20 records were refused, every one of them (missing_field 20; partition"
    )
    for part in ("0 from 0), over", "dead-letters list", "FLEETLORE_BREAKER_RUN_RECORDS (now 20)"):
        assert part in said
    assert world.happened == [*happened, "process"]
    assert len(world.dead_letters) == buried == 19
    clock.advance(3600)
    assert ledger.take() == {}, "however long the stop takes"
    assert metrics.registry.get_sample_value("fleetlore_lost_run_records", {"stream": EVENTS}) == 20


async def test_a_tenants_stream_that_is_refused_stops_that_tenant_and_not_the_others(
    world: World, breaking: Breaking, metrics: Metrics, clock: FakeClock
) -> None:
    other, (delivery, _, ledger) = TopicPartition("fleetlore.other.events", 0), breaking(20, tenants=2)

    async def send(first: int, last: int, bad: tuple[str, ...]) -> None:
        batch = [sent(offset)._replace(topic=name) for offset in range(first, last) for name in (EVENTS, other.topic)]
        letters = [DeadLetter(each, each.value or b"", "not_json", "no") for each in batch if each.topic in bad]
        world.effects = Effects(dead_letters=letters)
        await delivery.run(world, batch)

    await send(0, 25, (EVENTS,))
    assert ledger.take() == {other: 25}
    ledger.settle({other: 25})
    assert world.dead_letters == [], "they would come again after each start"
    await send(25, 50, ())
    clock.advance(3600)
    assert ledger.take() == {other: 50}
    assert metrics.registry.get_sample_value("fleetlore_lost_run_records", {"stream": EVENTS}) == 20
    with pytest.raises(BreakerTripped, match=r"fleetlore\.other\.events"):
        await send(50, 150, (other.topic,))


async def test_the_next_worker_finds_the_run_in_the_log_and_stops_there_again(
    breaking: Breaking, clock: FakeClock
) -> None:
    async def worker(offset: int) -> tuple[int, int]:
        """Batches of three, as from a slow producer; where it stopped, and what it had committed by then."""
        committed = offset
        _, send, ledger = breaking(40)
        while True:
            try:
                await send(offset, offset + 3, offset < 30)
            except BreakerTripped:
                return offset, max([committed, *ledger.take().values()])
            moved = ledger.take()
            ledger.settle(moved)
            committed = max([committed, *moved.values()])
            offset += 3
            clock.advance(1)

    stopped, committed = await worker(0)
    assert (stopped, committed) == (69, 39), "the run begins at 30 and is suspect after 10 records"
    for _ in range(5):
        assert await worker(committed) == (78, 39)


async def test_a_few_bad_records_hold_no_commit_back_and_a_run_only_for_some_seconds(
    breaking: Breaking, clock: FakeClock
) -> None:
    _, send, ledger = breaking(1000)
    await send(0, 1, True)
    await send(1, 9, False)
    assert ledger.take() == {PARTITION: 9}
    ledger.settle({PARTITION: 9})
    await send(9, 15, False)
    assert ledger.take() == {}
    clock.advance(11)
    assert ledger.take() == {PARTITION: 15}
    ledger.settle({PARTITION: 15})
    await send(15, 25, False)
    assert ledger.take() == {}
    await send(25, 26, True)
    clock.advance(11)
    assert ledger.take() == {PARTITION: 26}


async def test_a_rebalance_starts_the_count_anew(breaking: Breaking) -> None:
    delivery, send, ledger = breaking(20)
    await send(0, 15, False)
    delivery.forget()
    assert ledger.positions() == {}
    await send(0, 15, False)
    with pytest.raises(BreakerTripped):
        await send(15, 30, False)


async def test_a_record_with_one_good_event_is_not_lost(world: World, breaking: Breaking) -> None:
    delivery, _, _ = breaking(5)
    for offset in range(20):
        value = b"[1, 2, 3]"
        bad = [DeadLetter(record(offset, value=value), b"%d" % n, "wrong_shape", "") for n in (1, 2)]
        world.effects = Effects(dead_letters=bad)
        await delivery.run(world, [record(offset, value=value)])
    assert len(world.dead_letters) == 40
    with pytest.raises(BreakerTripped):
        for offset in range(21):
            value = b'[{"agent":"a%d"},2]' % offset
            bad = [DeadLetter(sent(offset, value), b"%d" % n, "wrong_shape", "") for n in (1, 2)]
            world.effects = Effects(dead_letters=bad)
            await delivery.run(world, [sent(offset, value)])


@pytest.mark.parametrize("signed", [0, 1, 2])
async def test_the_junk_of_one_sender_becomes_dead_letters_and_the_others_go_on(
    world: World, breaking: Breaking, metrics: Metrics, signed: int
) -> None:
    """However much it is and however long it lasts; with principals, whatever names it holds and whether it signs."""
    delivery, _, ledger = breaking(20)
    world.principals = principals = Principals("k" * 32) if signed else None
    sign = signer(principals.key_of("eve")) if principals else None
    for start in range(0, 1_000, 100):
        batch = [
            sent(offset, b'{"agent":"a%d"}' % offset if signed else b"junk") for offset in range(start, start + 100)
        ]
        if sign is not None and signed == 2:
            batch[::2] = [each._replace(headers=dict([sign(EVENTS, each.value or b"")])) for each in batch[::2]]
        world.effects = Effects(dead_letters=[DeadLetter(each, each.value or b"", "unsigned", "") for each in batch])
        await delivery.run(world, batch)
        assert ledger.take() == {PARTITION: start + 100}, "it holds no commit back"
        ledger.settle({PARTITION: start + 100})
    assert len(world.dead_letters) == 1_000
    assert metrics.registry.get_sample_value("fleetlore_lost_run_records", {"stream": EVENTS}) == 0


async def test_gaps_are_no_sign_of_a_broken_stream(world: World, breaking: Breaking) -> None:
    delivery, _, _ = breaking(3)
    for offset in range(9):
        world.effects = Effects(dead_letters=[DeadLetter(record(offset), b"{}", "after_end", "")])
        await delivery.run(world, [record(offset)])


async def test_a_record_of_a_thousand_bad_events_is_one_letter(world: World, delivery: Delivery) -> None:
    value = orjson.dumps([1] * 1000)
    world.effects.dead_letters += [DeadLetter(record(3, value=value), b"1", "wrong_shape", "no object")] * 1000
    await delivery.run(world, [record(3, value=value), record(4)])
    [letter] = world.dead_letters
    assert letter.value == value
    assert dict(letter.headers)["dlq.detail"].startswith(b"1000 bad events")


async def test_a_row_that_the_store_never_takes_is_a_dead_letter(
    world: World, delivery: Delivery, ledger: Ledger, metrics: Metrics
) -> None:
    rows = [{"id": "acme/1", "tenant": "acme", "body": "x"}, {"id": "acme/2", "tenant": "acme", "body": "y"}]
    world.effects.rows = {"items": rows}
    world.outages["upsert"] = [StoreUnavailable("away"), RowRefused("items", ("acme/2",), "body is too long")]
    await delivery.run(world, [record(6), record(7)])
    [letter] = world.dead_letters
    assert orjson.loads(letter.value) == rows[1]
    headers = dict(letter.headers)
    assert (headers["dlq.reason"], headers["dlq.detail"]) == (b"row_refused", b"body is too long")
    assert (headers["dlq.topic"], headers["dlq.offset"]) == (EVENTS.encode(), b"7")
    assert world.happened.index("bury") < world.happened.index("allow")
    assert ledger.take() == {PARTITION: 8}
    assert metrics.registry.get_sample_value("fleetlore_dead_letters_total", {"reason": "row_refused"}) == 1


async def test_a_tenant_whose_rows_are_all_refused_stops_and_the_others_do_not(
    world: World, breaking: Breaking, metrics: Metrics
) -> None:
    other, (delivery, _, ledger) = TopicPartition("fleetlore.other.events", 0), breaking(3, tenants=2)
    ids = {"acme": ("acme/1", "acme/2"), "other": ("other/1", "other/2")}
    rows = [{"id": id, "tenant": tenant} for tenant, of_tenant in ids.items() for id in of_tenant]

    async def send(offset: int, refused: tuple[str, ...]) -> None:
        world.effects = Effects(rows={"items": rows})
        world.outages["upsert"] = [RowRefused("items", refused, "no such column")] if refused else []
        await delivery.run(world, [sent(offset)._replace(topic=name) for name in (EVENTS, other.topic)])

    for offset in range(5):  # the other row is taken each time
        await send(offset, (ids["acme"][0], ids["other"][1]))
    assert len(world.dead_letters) == 10
    await send(5, ids["acme"])
    ledger.settle(ledger.take())
    buried = len(world.dead_letters)
    await send(6, ids["acme"])
    assert ledger.take() == {other: 7}
    assert len(world.dead_letters) == buried, "they would come again after each start"
    stream = {"stream": f"{EVENTS}/items"}
    assert metrics.registry.get_sample_value("fleetlore_lost_run_records", stream) == 3
    await send(7, ())
    assert ledger.take() == {other: 8}
    await send(8, ids["other"])
    with pytest.raises(BreakerTripped, match=r"^fleetlore\.other\.events/items: the last 3 .*row_refused 3"):
        await send(9, ids["other"])


async def test_rows_written_behind_that_are_all_refused_stop_their_tenant(world: World, breaking: Breaking) -> None:
    other, (delivery, _, ledger) = TopicPartition("fleetlore.other.events", 0), breaking(2, tenants=2)
    rows = [{"id": f"{tenant}/{number}", "tenant": tenant} for tenant in ("acme", "other") for number in (1, 2)]
    for offset in range(2):
        world.effects = Effects(rows={"items": rows}, acknowledged=lambda: None)
        world.outages["upsert"] = [RowRefused("items", ("acme/1", "acme/2"), "no such column")]
        await delivery.run(world, [sent(offset)._replace(topic=name) for name in (EVENTS, other.topic)])
        ledger.settle(ledger.take())
        world.effects = Effects()
        await delivery.run(world, [])
    await delivery.run(world, [sent(2)._replace(topic=name) for name in (EVENTS, other.topic)])
    assert ledger.take() == {other: 3}
    assert len(world.dead_letters) == 2, "those of the first batch, which could still have been a burst"


async def test_a_record_that_could_not_be_read_reaches_no_stage_and_is_a_dead_letter_with_its_place(
    world: World, delivery: Delivery, ledger: Ledger, metrics: Metrics
) -> None:
    given: list[int] = []

    async def process(batch: Sequence[Record]) -> Effects:
        given.extend(each.offset for each in batch)
        return Effects()

    world.process = process
    odd = record(4, value=b"raw")._replace(unreadable="the name of a header is not UTF-8")
    await delivery.run(world, [record(3), odd, record(5)])
    assert given == [3, 5]
    [letter] = world.dead_letters
    headers = dict(letter.headers)
    assert letter.value == b"raw" and headers["dlq.reason"] == b"unreadable" and b"UTF-8" in headers["dlq.detail"]
    assert (headers["dlq.topic"], headers["dlq.partition"], headers["dlq.offset"]) == (EVENTS.encode(), b"0", b"4")
    assert ledger.take() == {PARTITION: 6}
    assert metrics.registry.get_sample_value("fleetlore_dead_letters_total", {"reason": "unreadable"}) == 1


RUN = 4


records = st.tuples(st.booleans(), st.integers(0, 40), st.sampled_from(["", "alice", "bob"]))


@given(st.lists(records, max_size=60))
def test_it_trips_where_the_definition_says(outcomes: list[tuple[bool, int, str]]) -> None:
    breaker, expected, found, now = Breaker(RUN), None, None, 1_000.0
    run: list[tuple[float, str]] = []
    for number, (good, seconds, sender) in enumerate(outcomes):
        now += seconds
        run = [] if good else [*run, (now, sender)]
        long = len(run) >= RUN and run[-1][0] - run[0][0] >= RUN_SECONDS
        if expected is None and long and len({who for _, who in run}) > 1:
            expected = number
        try:
            if good:
                breaker.good(EVENTS)
            else:
                breaker.lost(EVENTS, "not_json", now, sender)
        except BreakerTripped:
            found = number if found is None else found
    assert found == expected


KEY = "k" * 32


def junk(value: bytes, topic: str = EVENTS, **headers: bytes) -> Record:
    return Record(topic, 1, 7, None, value, headers)


def test_a_sender_is_who_signed_or_without_principals_the_agent_that_is_named() -> None:
    assert sender_of(junk(b'{"agent":"alice:2"}'), None) == "alice"
    assert sender_of(junk(b'[{"agent":"bob"},1]'), None) == "bob"
    assert sender_of(junk(b"{}", ce_agent=b"carol"), None) == "carol"
    for nobody in (b"", b"junk", b"[]", b"[1]", b"1", b'{"agent":[1]}', b"\xff", b"[" * 5_000):
        assert sender_of(junk(nobody), None) == ""
    principals, value = Principals(KEY), b'{"agent":"eve"}'
    assert sender_of(junk(value), principals) == "", "anybody may write a name"
    for key, expected in ((principals.key_of("dave"), "dave"), (KEY, "eve")):
        sign = signer(key)
        assert sign is not None
        header, mark = sign(EVENTS, value)
        assert sender_of(Record(EVENTS, 1, 7, None, value, {header: mark}), principals) == expected


def test_on_topics_that_only_workers_write_each_record_counts() -> None:
    assert sender_of(junk(b"junk", "fleetlore.acme.trajectories"), None) == "1@7"
