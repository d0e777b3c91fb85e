"""Wait until the pipeline has processed everything that was sent.

Topics are checked in the order of the flow: a stage commits after its values are acknowledged on later topics. Opinions
of a language model, which may come much later, are not awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.kafka.read import POLL_MS, end_offsets, observer, partitions_of
from fleetlore.wire.topics import topic
from streams.stages.pipeline import FLOW

__all__ = ["BEHIND", "wait_drained"]

# Without the first stage, whose commits wait for open sessions.
BEHIND = FLOW[1:]
_POLL_SECONDS = 0.05
# What is left may be transaction markers and aborted records, which no stage commits. Check for them once a commit has
# not moved for this many seconds.
_STILL_SECONDS = 1.0

_Moves = dict[TopicPartition, tuple[int, float]]  # a commit, and the time of its last move or check


async def wait_drained(settings: Settings, tenant: str, timeout_seconds: float, flow: Sequence[str] = FLOW) -> None:
    """Wait until the workers have committed all records of the tenant, and all that follow from them."""
    name, left = "", 0
    moves: _Moves = {}
    async with observer(settings.cluster, settings.group) as consumer:
        try:
            async with asyncio.timeout(timeout_seconds):
                for name in flow:
                    # A running fleet never reaches its end, so wait only up to the current one.
                    ends = await end_offsets(consumer, await partitions_of(consumer, topic(tenant, name)))
                    while left := await _remaining(consumer, ends, moves):
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackError(
                f"not drained within {timeout_seconds:.0f} s: {left} records of {topic(tenant, name)} are not committed"
            ) from None


async def remaining(consumer: Any, name: str) -> int:
    return await _remaining(consumer, await end_offsets(consumer, await partitions_of(consumer, name)), None)


async def _remaining(consumer: Any, ends: dict[TopicPartition, int], moves: _Moves | None) -> int:
    """Remove finished partitions and count the rest. Without `moves`, do not wait."""
    left = 0
    for partition, end in list(ends.items()):
        committed = await consumer.committed(partition) or 0
        if committed >= end or (
            _stands_still(partition, committed, moves) and await _holds_nothing(consumer, partition, committed, end)
        ):
            del ends[partition]
        else:
            left += end - committed
    return left


def _stands_still(partition: TopicPartition, committed: int, moves: _Moves | None) -> bool:
    if moves is None:
        return True
    before, since = moves.get(partition, (-1, 0.0))
    still = before == committed and time.monotonic() - since >= _STILL_SECONDS
    if still or before != committed:
        moves[partition] = committed, time.monotonic()
    return still


async def _holds_nothing(consumer: Any, partition: TopicPartition, start: int, end: int) -> bool:
    consumer.seek(partition, start)
    fetched = await consumer.getmany(partition, timeout_ms=POLL_MS, max_records=1)
    return not fetched and await consumer.position(partition) >= end
