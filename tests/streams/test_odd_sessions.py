"""A session whose id holds quotes, backslashes or a filter is processed like any other, and touches no other."""

import asyncio
from collections import Counter

import pytest
from aiokafka import TopicPartition

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.batches import Unreadable
from fleetlore.kafka.client import connected, make_consumer
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from streams.offline.erase import Erasing, erase
from streams.offline.erase_search import Wanted
from tests.doubles.raw_batches import Raw, batch, produce
from tests.odd_texts import INJECTION, ODD_IDS
from tests.rows import for_each
from tests.streams.broker_pipeline import BrokerPipeline, Reference
from tests.streams.log_pipeline import RIGHT, WRONG, LogPipeline, Story, flat

Pipeline = LogPipeline | BrokerPipeline

# The tool's name starts with a slash, so the id of its judge record contains one, like that of a session.
SLASHED = ("/bin/x", {"command": "x"}, "", "ERROR: no such file")


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


@for_each("kind", "session", "agent", "user")
def test_a_name_that_is_no_unicode_is_refused_before_anything_is_read(kind: str) -> None:
    with pytest.raises(ConfigError, match="Unicode"):
        Wanted(tenant="acme", **{kind: "caf\udce9"})


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
