"""What agents refused of the adapter topics, counted where it can be alerted on: an agent exports no metrics.

Agents tell on `adapters.acks` what came of a version, and the trainer reads along, from where the topics end when it starts: what was
refused before it is told by `fleetlore adapters show`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import connect, disconnect
from fleetlore.kafka.offsets import end_offsets, observer, partitions_of
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 2_000  # nothing hurries, and each fetch that waits costs the broker something
RETRY_SECONDS = 5.0
# Those of `AdapterRefused`. Whoever may write acks must not be able to make series of what comes to his mind.
REASONS = frozenset(
    [
        "foreign",
        "malformed",
        "missing",
        "not_allowed",
        "not_finite",
        "oversized",
        "probe",
        "schema",
        "stale",
        "structure",
        "tampered",
        "truncated",
        "unknown_key",
        "unreachable",
    ]
)
FINE = frozenset({"applied", "revoked"})


def refusal_of(ack: bytes | None) -> str | None:
    """The reason that an ack gives for a refusal, `other` where it is none of ours; None where nothing was refused."""
    try:
        result = orjson.loads(ack or b"null")["result"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if not isinstance(result, str) or result in FINE:
        return None
    return result if result in REASONS else "other"


async def count_refusals(settings: Settings, tenants: Iterable[str], metrics: Metrics) -> None:
    """Count until cancelled. A broker that is away is tried again, and counting goes on where it was."""
    names = [topic(tenant, "adapters.acks") for tenant in tenants]
    reached: dict[TopicPartition, int] = {}
    while True:
        try:
            async with observer(settings.broker) as asking:
                partitions = [each for name in names for each in await partitions_of(asking, name)]
                reached = await end_offsets(asking, partitions) | reached
            if reached:
                await _follow(settings, reached, metrics)
        except (BrokerUnavailable, KafkaError, OSError) as error:
            log.info("acks of adapters cannot be read, next try in %.0f s: %s", RETRY_SECONDS, error)
        await asyncio.sleep(RETRY_SECONDS)


async def _follow(settings: Settings, reached: dict[TopicPartition, int], metrics: Metrics) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.broker, enable_auto_commit=False, fetch_max_wait_ms=FETCH_WAIT_MS
    )
    try:
        await connect(consumer)
        consumer.assign(list(reached))
        for partition, offset in reached.items():
            consumer.seek(partition, offset)
        while True:
            for partition, records in (await consumer.getmany(timeout_ms=FETCH_WAIT_MS)).items():
                for record in records:
                    if (reason := refusal_of(record.value)) is not None:
                        metrics.adapters_refused(reason).inc()
                reached[partition] = records[-1].offset + 1
    finally:
        await disconnect(consumer)
