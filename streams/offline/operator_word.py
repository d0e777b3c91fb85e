"""Write an operator's decision, ask the affected states' owners to forget or publish again, and wait for them.

The store's client costs 25 MB, so the functions that need it import it. Topics are drained in flow order: a stage
commits after later topics acknowledge its values. Opinions of a language model are not awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from aiokafka import TopicPartition

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.kafka.read import POLL_MS, end_offsets, observer, partitions_of, read_to_end, records_of
from fleetlore.wire.decode import json_reader
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing, Store, readable
from streams.stage.operators import Erasure, Forget, Reconsider, put_in_history
from streams.stages.pipeline import FLOW

if TYPE_CHECKING:
    from sinks.milvus import MilvusStore

__all__ = ["decide", "is_known", "newest_of", "read_decisions", "reconsider", "wait_drained"]

# The second finds states in flight during the first.
_ROUNDS = 2

_CHUNK = 1_000

# Sends values to the states' owners: by topics, or to stages in this process.
Deliver = Callable[[Sequence[Outgoing]], Awaitable[object]]
_Request = Callable[[str, tuple[int, ...]], Forget | Reconsider]
_Record = TypeVar("_Record", Decision, Erasure)


@dataclass(slots=True)
class States:
    """Hashes of the affected sessions by state id. `empty`: ids of rows without content."""

    patterns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    items: dict[str, tuple[int, ...]] = field(default_factory=dict)
    empty: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.patterns or self.items)


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of a tenant's states: workers beside this process, or stages in it.

    `deliver` sends them values. `drained` waits until the rows of what was sent are stored.
    """

    settings: Settings
    tenant: str
    store: MilvusStore
    deliver: Deliver
    drained: Callable[[], Awaitable[object]]

    async def ask(self, found: States, request: _Request, gone: Collection[int] = ()) -> None:
        """Send a request to each state's owner, then the log's contributions to its items without `gone`."""
        await self.deliver(requests(self.tenant, found, request))
        chunk: list[Outgoing] = []
        async for record in records_of(self.settings.cluster, topic(self.tenant, "candidates")):
            chunk += contributed(self.tenant, record.value or b"", found.items, gone)
            if len(chunk) >= _CHUNK:
                await self.deliver(chunk)
                chunk = []
        await self.deliver(chunk)

    async def publish_again(self, decided: Decision) -> States:
        known = await known_to(self.store, self.tenant, decided.id)
        # An erasure does not reach the owners' topics, so no name or text of a person goes there.
        plain = msgspec.structs.replace(decided, by="", why="", hint=None)
        await self.ask(known, lambda id, _: Reconsider(id, plain))
        return known

    async def settle(self, decided: Decision) -> States:
        for _ in range(_ROUNDS):
            known = await self.publish_again(decided)
            await self.drained()
        return known


@asynccontextmanager
async def beside_workers(settings: Settings, tenant: str, timeout_seconds: float) -> AsyncIterator[Owners]:
    from sinks.milvus import MilvusStore

    drained = partial(wait_drained, settings, tenant, timeout_seconds, _BEHIND)
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            MilvusStore.from_settings(settings) as store,
            BatchProducer(settings.cluster) as producer,
        ):
            yield Owners(settings, tenant, store, producer.deliver, drained)
    except TimeoutError:
        raise StackError(
            f"not done within {timeout_seconds:g} s: run it again; is a worker of tenant {tenant} running?"
        ) from None


async def states_that(know: Callable[[PatternState | ItemState], Collection[int]], store: Store, tenant: str) -> States:
    found = States()
    async for row in store.rows("patterns", tenant, "body", "state"):
        if not row["state"]:
            found.empty.setdefault("patterns", []).append(row["id"])
        elif known := know(PatternState.restore(row["body"], row["state"])):
            found.patterns[_id(row["id"])] = tuple(sorted(known))
    async for row in store.rows("items", tenant, "state"):
        if row["state"]:
            state = ItemState.from_json(row["state"].encode())
            if known := know(state):
                found.items[_id(row["id"])] = tuple(sorted(known))
            elif not state.sessions:
                found.empty.setdefault("items", []).append(row["id"])
    return found


def requests(tenant: str, found: States, request: _Request) -> list[Outgoing]:
    topics = (("observations", found.patterns), ("candidates", found.items))
    return [Outgoing(tenant, name, id, request(id, known).to_json()) for name, of in topics for id, known in of.items()]


class _Contribution(msgspec.Struct, gc=False):
    item_id: str = ""
    session: str = ""


_read = json_reader(_Contribution)


def contributed(tenant: str, value: bytes, items: Collection[str], gone: Collection[int]) -> Iterator[Outgoing]:
    """Yield the contributions to `items` in a record, except those of `gone` sessions (hashes)."""
    for part, each in readable(value, lambda part: (part, _read(part))):
        if each.item_id in items and stable_hash(each.session) not in gone:
            yield Outgoing(tenant, "candidates", each.item_id, part)


def _id(row: str) -> str:
    return row.partition("/")[2]


async def decide(settings: Settings, tenant: str, *decided: Decision) -> None:
    async with BatchProducer(settings.cluster) as producer:
        for name in (HISTORY, DECISIONS):
            await producer.deliver([Outgoing(tenant, name, each.key, each.to_json()) for each in decided])


async def reconsider(settings: Settings, tenant: str, decided: Decision, timeout_seconds: float) -> States:
    async with beside_workers(settings, tenant, timeout_seconds) as owners:
        await decide(settings, tenant, decided)
        return await owners.settle(decided)


async def read_decisions(
    settings: Settings, tenant: str, timeout_seconds: float, name: str = DECISIONS
) -> list[Decision]:
    """Return each thing's newest decision, or all of `HISTORY`, oldest first. Raises BrokerUnavailable."""
    if name != HISTORY:
        return list((await newest_of(settings, tenant, name, Decision, timeout_seconds)).values())
    history: dict[str, Decision] = {}
    for record in await read_to_end(settings.cluster, [topic(tenant, name)], timeout_seconds):
        put_in_history(history, record.value or b"")
    return list(history.values())


async def newest_of(
    settings: Settings, tenant: str, name: str, kind: type[_Record], timeout_seconds: float
) -> dict[str, _Record]:
    """Return the newest record of each key. Raises BrokerUnavailable."""
    newest: dict[str, _Record] = {}
    for record in await read_to_end(settings.cluster, [topic(tenant, name)], timeout_seconds):
        key = (record.key or b"").decode("utf-8", "replace")
        if not record.value:
            newest.pop(key, None)
            continue
        with suppress(ValueError):  # another release's format: agents keep the one before, too
            newest[key] = json_reader(kind)(record.value)
    return newest


async def is_known(settings: Settings, tenant: str, agent: str) -> bool:
    from sinks.milvus import MilvusStore

    async with MilvusStore.from_settings(settings) as store:
        if await known_to(store, tenant, agent):
            return True
        async for row in store.rows("judgments", tenant, "agent"):
            if principal_of(row["agent"]) == principal_of(agent):
                return True
        return False


async def known_to(store: Store, tenant: str, agent: str) -> States:
    agents = (stable_hash(principal_of(agent)),)
    return await states_that(lambda state: state.sessions_of(agents), store, tenant)


# Without the first stage, whose commits wait for open sessions.
_BEHIND = FLOW[1:]
_POLL_SECONDS = 0.05
# The rest may be transaction markers and aborted records, which no stage commits. Check for them once a commit has
# stood still for so many seconds.
_STILL_SECONDS = 1.0

_Moves = dict[TopicPartition, tuple[int, float]]  # a commit, and the time of its last move or check


async def wait_drained(settings: Settings, tenant: str, timeout_seconds: float, flow: Sequence[str] = FLOW) -> None:
    """Wait until the workers have committed the tenant's records and those that follow from them."""
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
    left = 0
    for partition, end in list(ends.items()):
        done = committed = await consumer.committed(partition) or 0
        if committed < end and _stands_still(partition, committed, moves):
            consumer.seek(partition, committed)
            if not await consumer.getmany(partition, timeout_ms=POLL_MS, max_records=1):
                done = await consumer.position(partition)
        if done >= end:
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
