"""Write an operator's decision, and ask the owners of affected states to forget sessions or publish again.

The store's client costs 25 MB, so the functions that need it import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent, StackError
from fleetlore.kafka.read import read_to_end, records_of
from fleetlore.stats import stable_hash
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.principals import principal_of
from fleetlore.wire.topics import topic
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.producer import BatchProducer
from streams.offline.drain import BEHIND, wait_drained
from streams.stage.base import ListedStore, Outgoing, split
from streams.stage.operators import Forget, Reconsider

if TYPE_CHECKING:
    from sinks.milvus import MilvusStore

__all__ = ["Deliver", "decide", "is_known", "publish_again", "read_decisions", "reconsider"]

# The second round finds states that were in flight during the first.
_ROUNDS = 2

_CHUNK = 1_000

# Sends values to the states' owners: through topics, or to stages in this process.
Deliver = Callable[[Sequence[Outgoing]], Awaitable[object]]
_Request = Callable[[str, tuple[int, ...]], Forget | Reconsider]


@dataclass(slots=True)
class States:
    """Hashes of the affected sessions by state id. `empty`: ids of rows without content."""

    patterns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    items: dict[str, tuple[int, ...]] = field(default_factory=dict)
    empty: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.patterns or self.items)


@asynccontextmanager
async def beside_workers(
    settings: Settings, tenant: str, timeout_seconds: float
) -> AsyncIterator[tuple[MilvusStore, BatchProducer]]:
    from sinks.milvus import MilvusStore

    try:
        async with (
            asyncio.timeout(timeout_seconds),
            MilvusStore.from_settings(settings) as store,
            BatchProducer(settings.cluster) as producer,
        ):
            yield store, producer
    except TimeoutError:
        raise StackError(
            f"not done within {timeout_seconds:g} s: run it again; is a worker of tenant {tenant} running?"
        ) from None


async def states_that(
    know: Callable[[PatternState | ItemState], Collection[int]], store: ListedStore, tenant: str
) -> States:
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


async def ask_owners(
    settings: Settings, deliver: Deliver, tenant: str, found: States, request: _Request, gone: Collection[int] = ()
) -> None:
    """Send a request to each state's owner, then the log's contributions to its items without `gone`."""
    await deliver(requests(tenant, found, request))
    chunk: list[Outgoing] = []
    async for record in records_of(settings.cluster, topic(tenant, "candidates")):
        chunk += contributed(tenant, record.value or b"", found.items, gone)
        if len(chunk) >= _CHUNK:
            await deliver(chunk)
            chunk = []
    await deliver(chunk)


class _Contribution(msgspec.Struct, gc=False):
    item_id: str = ""
    session: str = ""


_read = msgspec.json.Decoder(_Contribution).decode


def contributed(tenant: str, value: bytes, items: Collection[str], gone: Collection[int]) -> Iterator[Outgoing]:
    """Yield the contributions to `items` in a record, except those of `gone` sessions (hashes)."""
    with suppress(InvalidEvent):
        for part in split(value):
            with suppress(msgspec.DecodeError):
                each = _read(part)
                if each.item_id in items and stable_hash(each.session) not in gone:
                    yield Outgoing(tenant, "candidates", each.item_id, part)


def _id(row: str) -> str:
    return row.partition("/")[2]


async def decide(settings: Settings, tenant: str, decided: Decision) -> None:
    async with BatchProducer(settings.cluster) as producer:
        for name, key in decided.records:
            await producer.deliver([Outgoing(tenant, name, key, decided.to_json())])


async def reconsider(settings: Settings, tenant: str, decided: Decision, timeout_seconds: float) -> States:
    async with beside_workers(settings, tenant, timeout_seconds) as (store, producer):
        await decide(settings, tenant, decided)
        for _ in range(_ROUNDS):
            known = await publish_again(settings, store, tenant, decided, producer.deliver)
            await wait_drained(settings, tenant, timeout_seconds, BEHIND)
        return known


async def publish_again(
    settings: Settings, store: ListedStore, tenant: str, decided: Decision, deliver: Deliver
) -> States:
    known = await known_to(store, tenant, decided.id)
    await ask_owners(settings, deliver, tenant, known, lambda id, _: Reconsider(id, decided))
    return known


async def read_decisions(
    settings: Settings, tenant: str, timeout_seconds: float, name: str = DECISIONS
) -> list[Decision]:
    """Return the newest decision about each thing, or all of `HISTORY`, oldest first. Raises BrokerUnavailable."""
    newest: dict[bytes, Decision] = {}
    for number, record in enumerate(await read_to_end(settings.cluster, [topic(tenant, name)], timeout_seconds)):
        with suppress(InvalidEvent):
            for place, part in enumerate(split(record.value or b"")):
                key = b"%d/%d" % (number, place) if name == HISTORY else record.key or b""
                with suppress(ValueError):  # another release's format
                    newest[key] = Decision.from_json(part)
        if not record.value:
            newest.pop(record.key or b"", None)
    return list(newest.values())


async def is_known(settings: Settings, tenant: str, agent: str) -> bool:
    from sinks.milvus import MilvusStore

    async with MilvusStore.from_settings(settings) as store:
        if await known_to(store, tenant, agent):
            return True
        async for row in store.rows("judgments", tenant, "agent"):
            if principal_of(row["agent"]) == principal_of(agent):
                return True
        return False


async def known_to(store: ListedStore, tenant: str, agent: str) -> States:
    agents = (stable_hash(principal_of(agent)),)
    return await states_that(lambda state: state.sessions_of(agents), store, tenant)
