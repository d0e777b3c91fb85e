"""Show where the time between a failure and the advice goes: by the timestamps that the clients give their records.

Read after the run from the topics themselves, so that nobody watches while it is measured; whole milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from aiokafka import AIOKafkaConsumer

from benchmarks.immunity_load import Plan, marker, new_call
from fleetlore.config import DEFAULT_TENANT
from fleetlore.kafka.read import end_offsets, partitions_of
from fleetlore.wire.topics import topic

HOPS = (
    "failure → its record is made (the emitter's linger)",
    "→ the sessions stage sends the observation (produce, fetch, linger, decode, session)",
    "→ the patterns stage sends the pattern (produce, fetch, linger, merge; behind the batch before it)",
    "→ another agent is advised (produce, the replica's fetch, the next ask)",
)
_TIMEOUT_MS = 500


async def hops(broker: str, plan: Plan, met: dict[int, float], learned: dict[int, float]) -> list[list[float]]:
    """For each of `HOPS` the milliseconds that it took each new failure that was learned of."""
    events, observations, patterns = [
        await _times(broker, name, min(met.values()) * 1000) for name in ("events", "observations", "patterns")
    ]
    taken: list[list[float]] = [[] for _ in HOPS]
    for number, failed in met.items():
        name = marker(plan.run, number)
        sent, seen = events.get(f"'{name}'"), observations.get(f"'{name}'")
        known = patterns.get(new_call(plan.run, number).failure.exact)
        if sent and seen and known and number in learned:
            times = (failed * 1000, sent, seen, known, learned[number] * 1000)
            for hop, (before, after) in enumerate(pairwise(times)):
                taken[hop].append(max(0.0, after - before))
    return taken


async def _times(broker: str, name: str, since_ms: float) -> dict[str, float]:
    """When each key and each marker first occurred on a topic."""
    found: dict[str, float] = {}
    async for record in _records(broker, topic(DEFAULT_TENANT, name)):
        if record.timestamp >= since_ms:
            for text in _names(record):
                found[text] = min(record.timestamp, found.get(text, record.timestamp))
    return found


def _names(record: Any) -> Iterable[str]:
    if record.key is not None:
        yield record.key.decode()
    # In quotes only in the failure itself; the event before it, of the call that is about to be made, has it as an
    # argument.
    yield from {name.decode() for name in re.findall(rb"'flaw_\d+_\d+_'", record.value or b"")}


async def _records(broker: str, name: str) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker, enable_auto_commit=False, auto_offset_reset="earliest", fetch_max_wait_ms=20
    )
    await consumer.start()
    try:
        parts = await partitions_of(consumer, name)
        left = {part: end for part, end in (await end_offsets(consumer, parts)).items() if end}
        consumer.assign(list(left))
        await consumer.seek_to_beginning(*left)
        while left:
            for part, records in (await consumer.getmany(timeout_ms=_TIMEOUT_MS)).items():
                for record in records:
                    yield record
                if part in left and records[-1].offset + 1 >= left[part]:
                    del left[part]
    finally:
        await consumer.stop()
