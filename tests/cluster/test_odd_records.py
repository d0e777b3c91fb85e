"""A worker goes on behind records that no client can read and sessions larger than a record."""

import asyncio
import string
import zlib
from random import Random
from typing import Any

import pytest

from benchmarks.cloudevents import encode_record
from benchmarks.replay import count_dead_letters
from fleetlore.kafka.read import read_dead_letters
from fleetlore.wire import events as ev
from fleetlore.wire.dead_letter import UNREADABLE, DeadLetterRecord
from fleetlore.wire.events import Event
from fleetlore.wire.topics import MAX_MESSAGE_BYTES, topic
from sinks.topics import ensure_topics
from streams.offline.operator_word import wait_drained
from tests.chaos.emitting import emit_in_bursts, in_order
from tests.chaos.fleet import BASE_TIME, fleet_events
from tests.cluster.kafka_cluster import KafkaCluster
from tests.doubles.raw_batches import CODECS, Raw, batch, produce
from tests.streams.broker_pipeline import StartWorker, known

ODD = Raw(b"{}", b"x", [(b"\xff\xfe", b"1")])
GOOD = Raw(b"{}")
BOMB = 100 * 1024 * 1024


def odd_batches() -> list[bytes]:
    found = [batch([GOOD, ODD, GOOD], name) for name in CODECS]
    found += [batch([Raw(b"0" * BOMB)], name) for name in ("zstd", "gzip")]
    return [*found, batch([Raw(b"{}", b"x", [(b"ce_specversion", None), (b"", None)])])]


@pytest.mark.slow
async def test_a_worker_goes_on_behind_what_cannot_be_read(
    three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    settings, address = three.settings(milvus, tenant).with_(partitions=1), three.address
    await ensure_topics(settings)
    worker = await asyncio.to_thread(start_worker, settings)
    events, places = fleet_events(tenant, 1, 6), set[tuple[int, int]]()
    half = len(events) // 2
    async with in_order(address, tenant, Random(1)) as send:
        await send(events[:half])
        for number, content in enumerate(odd_batches()):
            error, offset = await asyncio.to_thread(produce, address, topic(tenant, "events"), content)
            if not error:  # a broker may refuse it, too
                places.add((0, offset + (1 if number < len(CODECS) else 0)))
        await send(events[half:])
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    judged = {session for session, _, _ in (await known(settings.milvus, tenant)).judgments}
    assert judged == {each.session for each in events}
    letters = [each async for each in read_dead_letters(address, tenant, 30.0) if isinstance(each, DeadLetterRecord)]
    unreadable = {(each.partition, each.offset) for each in letters if each.reason == UNREADABLE}
    assert unreadable and unreadable <= places
    assert {(0, offset) for _, offset in places} - unreadable <= {max(places)}, "the last one can be read"
    assert worker.poll() is None


DRAIN_SECONDS = 400.0
STEPS = 510  # a part of a session
STEP_CHARACTERS = 2_000  # that are kept, of arguments and of the result each
ALPHABETS = {
    "base62": string.ascii_letters + string.digits,
    "Chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 3_000))),
}


def large_session(tenant: str, name: str, alphabet: str) -> list[Event]:
    """Texts that no compression makes small."""
    rng = Random(name)

    def text() -> str:
        return "".join(rng.choices(alphabet, k=STEP_CHARACTERS))

    data: list[tuple[ev.Kind, dict[str, Any]]] = [("session.started", {ev.GOAL: "decode", ev.TASK: name})]
    data += [("outcome", {ev.TOOL: "decode", ev.ARGUMENTS: text(), ev.RESULT: text()}) for _ in range(STEPS)]
    data.append(("session.ended", {ev.OUTCOME: "success"}))
    return [Event(kind, tenant, "a", name, n, BASE_TIME + n, each) for n, (kind, each) in enumerate(data)]


@pytest.mark.slow
@pytest.mark.parametrize("alphabet", ALPHABETS)
async def test_a_session_larger_than_a_record_may_be_stops_nobody(
    alphabet: str, three: KafkaCluster, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    settings = three.settings(milvus, tenant)
    await ensure_topics(settings)
    large, others = large_session(tenant, "large", ALPHABETS[alphabet]), fleet_events(tenant, 1, 5)
    assert len(zlib.compress(encode_record(large))) > MAX_MESSAGE_BYTES
    worker = await asyncio.to_thread(start_worker, settings)
    for events in (large, others):
        await emit_in_bursts(three.address, tenant, events)
    await wait_drained(settings, tenant, DRAIN_SECONDS)
    assert worker.poll() is None
    judged = {session: count for session, _, count in (await known(milvus, tenant)).judgments}
    assert judged.keys() == {each.session for each in (*large, *others)}
    assert judged["large"] == len(large)
    assert await count_dead_letters(settings, tenant) == 0
