"""A session whose id holds quotes, backslashes or a filter is processed like any other, and touches no other."""

import asyncio
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
from aiokafka import TopicPartition

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.batches import Unreadable
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.recall.search import row_id
from fleetlore.wire.events import Event
from fleetlore.wire.principals import session_key
from fleetlore.wire.topics import topic
from models.judge import SessionState
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.offline.erase import Erasing, erase
from streams.offline.erase_search import Wanted
from tests.doubles.raw_batches import Raw, batch, produce
from tests.fuzz import batches, records
from tests.odd_texts import INJECTION, ODD_IDS
from tests.streams.broker_pipeline import DRAIN_SECONDS, BrokerPipeline, LonePipeline, Reference, StartWorker
from tests.streams.log_pipeline import PARTITIONS, RIGHT, WRONG, LogPipeline, Story, flat

Pipeline = LogPipeline | BrokerPipeline

# The tool's name starts with a slash, so the id of its judge record contains one, like that of a session.
SLASHED = ("/bin/x", {"command": "x"}, "", "ERROR: no such file")


@pytest.fixture
async def on_milvus(milvus: str) -> AsyncIterator[Callable[[str], LogPipeline]]:
    """Makes the pipeline of a tenant on a log in memory, with Milvus as its store."""
    store = MilvusStore(milvus, "", StaticEncoder())
    await store.open()

    def make(tenant: str) -> LogPipeline:
        pipeline = LogPipeline(tenant)
        pipeline.store = store  # type: ignore[assignment]
        pipeline.start()
        return pipeline

    yield make
    await store.close()


def sessions(story: Story) -> list[list[Event]]:
    made = [story.session(id, WRONG, RIGHT, SLASHED, agent=f"agent of {id}"[:256]) for id in ODD_IDS]
    return [*made, story.session("slashed", SLASHED, outcome="unknown"), *story.fleet()]


async def test_each_is_judged_and_again_after_a_correction_and_a_restart(
    pipeline: Pipeline, reference: Reference
) -> None:
    events = [*flat(sessions(pipeline.story)), *(pipeline.story.feedback(id, "failure") for id in ODD_IDS)]
    await pipeline.take(events)
    knowledge = await pipeline.knowledge()
    labels = {session: label for session, label, _ in knowledge.judgments}
    assert {id: labels.get(id) for id in ODD_IDS} == dict.fromkeys(ODD_IDS, "failure")
    assert labels.keys() - set(ODD_IDS) == {"slashed", *(each[0].session for each in pipeline.story.fleet())}
    assert await pipeline.dead_letters() == []
    assert knowledge == await reference(pipeline.tenant, events)


async def test_a_row_that_nobody_asked_for_stops_no_worker(
    on_milvus: Callable[[str], LogPipeline], tenant: str
) -> None:
    innocent, crafted = on_milvus(f"{tenant}-2"), on_milvus(tenant)
    await innocent.take(flat(innocent.story.fleet()))
    before = await innocent.knowledge()
    evil = INJECTION.replace("victim", innocent.tenant)
    for _ in range(2):
        await crafted.take([*crafted.story.session(evil, WRONG, RIGHT), *crafted.story.session("later", RIGHT)])
        crafted.crash()
    assert {session for session, *_ in (await crafted.knowledge()).judgments} == {evil, "later"}
    row = row_id(tenant, session_key(f"agent-of-{evil}", evil))
    state = (await crafted.store.get("judgments", [row], "state"))[row]["state"]
    known = SessionState.from_json(state).trajectory
    assert known is not None and known.session == evil
    assert await innocent.knowledge() == before


async def erase_of(pipeline: BrokerPipeline, session: str, *, dry_run: bool = False) -> Erasing:
    wanted = Wanted(tenant=pipeline.tenant, session=session)
    return await erase(pipeline.settings, wanted, dry_run=dry_run, timeout_seconds=120)


async def test_erasing_one_deletes_no_other_row(broker_pipeline: BrokerPipeline) -> None:
    pipeline = broker_pipeline
    made = sessions(pipeline.story)
    await pipeline.take([*flat(made), pipeline.story.feedback("slashed", "success")])
    assert sum((await erase_of(pipeline, "bin/x", dry_run=True)).rows.values()) == 0
    others = {each[0].session for each in made}
    for session in (INJECTION.replace("victim", pipeline.tenant), ODD_IDS[0]):
        report = await erase_of(pipeline, session)
        assert report.rows["judgments"] == (session in others)
        others.discard(session)
        assert {judged for judged, *_ in (await pipeline.knowledge()).judgments} == others


@pytest.mark.parametrize("kind", ["session", "agent", "user"])
def test_a_name_that_is_no_unicode_is_refused_before_anything_is_read(kind: str) -> None:
    with pytest.raises(ConfigError, match="Unicode"):
        Wanted(tenant="acme", **{kind: "caf\udce9"})  # type: ignore[arg-type]


RECORDS, BATCHES, PER_BATCH = 3_000, 200, 20
# Place of the last record's offset, counted from the first, in a batch.
_LAST_OFFSET = 23


async def test_a_checksum_that_fails_costs_no_record_of_another_partition(broker: EmbeddedBroker, tenant: str) -> None:
    settings, name = Settings(broker=broker.address, tenants=(tenant,), partitions=8), topic(tenant, "events")
    await ensure_topics(settings)
    for partition in range(8):
        for number in range(5):
            produce(broker.address, name, batch([Raw()], crc=(partition % 2) * (8 * number + partition)), partition)
    found = Counter[tuple[int, bool]]()
    async with connected(make_consumer(settings.cluster)) as consumer:
        consumer.assign(partitions := [TopicPartition(name, number) for number in range(8)])
        await consumer.seek_to_beginning(*partitions)
        async with asyncio.timeout(120):
            while found.total() < 40:
                for each in (await consumer.getmany(timeout_ms=100)).values():
                    found.update((record.partition, isinstance(record, Unreadable)) for record in each)
    assert found == {(partition, bool(partition % 2)): 5 for partition in range(8)}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_good_session_among_odd_records_is_judged(
    lone_pipeline: LonePipeline, milvus: str, start_worker: StartWorker
) -> None:
    pipeline = await lone_pipeline(milvus)
    worker, random = start_worker(pipeline.settings), Random("live")
    good = [pipeline.story.session(f"good#{number}", agent=f"good-{number}") for number in range(20)]
    await pipeline.send([event for session in good[:10] for event in session])
    by_place: dict[tuple[str, int], list[Raw]] = {}
    # On a thread: the first one runs a pipeline in memory, for its values.
    for odd in await asyncio.to_thread(lambda: [records.make(random) for _ in range(RECORDS)]):
        value = None if odd.value is None else odd.value.replace(records.TENANT.encode(), pipeline.tenant.encode())
        headers = [(name.encode("utf-8", "surrogatepass"), value) for name, value in odd.headers]
        by_place.setdefault((odd.topic, odd.partition), []).append(Raw(value, odd.key, headers))
    sent, now = Counter[bool](), int(time.time() * 1000)
    for (name, partition), raws in by_place.items():
        for start in range(0, len(raws), PER_BATCH):
            sent[await _sent(pipeline, name, partition, batch(raws[start : start + PER_BATCH], time_ms=now))] += 1
    for each in (batches.make(random) for _ in range(BATCHES)):
        # Apache Kafka refuses a batch whose offsets are not as many as its records. tansu counts on by them, and gives
        # the next batch an offset that is taken.
        if struct.unpack_from(">i", each.odd, _LAST_OFFSET)[0] == each.next_offset - 1:
            sent[await _sent(pipeline, "events", random.randrange(PARTITIONS), each.odd)] += 1
    await pipeline.send([event for session in good[10:] for event in session])
    left = {session[0].session for session in good}
    async with asyncio.timeout(DRAIN_SECONDS):
        while left := left - {session for session, _, _ in (await pipeline.knowledge()).judgments}:
            await asyncio.sleep(0.1)
    letters = await pipeline.dead_letters()
    assert len(letters) > RECORDS / 3 and all(headers["dlq.reason"] for headers, _ in letters)
    assert sent[True] > sum(sent.values()) / 2, f"the broker has refused most of them: {sent}"
    assert worker.poll() is None


async def _sent(pipeline: BrokerPipeline, name: str, partition: int, content: bytes) -> bool:
    """Whether the broker took a batch; it may refuse one, or close the connection."""
    try:
        address, full = pipeline.settings.broker, topic(pipeline.tenant, name)
        error, _ = await asyncio.to_thread(produce, address, full, content, partition)
    except (AssertionError, OSError):
        return False
    return not error
