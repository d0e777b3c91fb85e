"""Have the states that an operator's word is about rewritten, while the fleet goes on.

A state has one writer, its partition's owner. So nothing is changed here: a request goes to the owner on the topic of
the contributions, and behind it once more what others contributed to the items, for what takes the freed places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent, StackError
from fleetlore.kafka.read import records_of
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.topics import topic
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing, Store, split

__all__ = ["States", "ask_owners", "beside_workers", "requests", "states_that"]

_CHUNK = 1_000


@dataclass(slots=True)
class States:
    """What knows the sessions that the word is about: by id, the hashes of those.

    Attributes:
        cases: sessions that records of judges count.
        empty: by collection, ids of rows in which nothing is left.
    """

    patterns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    items: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cases: set[int] = field(default_factory=set)
    empty: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.patterns or self.items or self.cases)


@asynccontextmanager
async def beside_workers(
    settings: Settings, tenant: str, timeout_seconds: float
) -> AsyncIterator[tuple[MilvusStore, BatchProducer]]:
    """A store and a producer for a job in which the workers have their part.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the workers did not do their part in time; run it again.
    """
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            MilvusStore.from_settings(settings, Metrics("operator")) as store,
            BatchProducer(settings.cluster) as producer,
        ):
            yield store, producer
    except TimeoutError:
        raise StackError(
            f"not done within {timeout_seconds:g} s: run it again; is a worker of tenant {tenant} running?"
        ) from None


async def states_that(know: Callable[[PatternState | ItemState], Collection[int]], store: Store, tenant: str) -> States:
    """Look through all patterns and items of a tenant.

    Args:
        know: the hashes of the sessions in a state that the word is about.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
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


def requests(tenant: str, found: States, request: Callable[[str, tuple[int, ...]], bytes]) -> list[Outgoing]:
    """What goes to the owners: of each state, what `request` makes of its id and of the sessions that it knows."""
    places = (("observations", found.patterns), ("candidates", found.items))
    return [Outgoing(tenant, name, id, request(id, known)) for name, of in places for id, known in of.items()]


async def ask_owners(
    settings: Settings,
    producer: BatchProducer,
    tenant: str,
    asked: Sequence[Outgoing],
    items: Collection[str],
    gone: Collection[int] = (),
) -> None:
    """Send the requests, and what lies on the log for some items, but for sessions that are gone (hashes)."""
    await producer.deliver(asked)
    chunk: list[Outgoing] = []
    async for record in records_of(settings.cluster, topic(tenant, "candidates")):
        chunk += contributed(tenant, [record.value or b""], items, gone)
        if len(chunk) >= _CHUNK:
            await producer.deliver(chunk)
            chunk = []
    await producer.deliver(chunk)


class _Contribution(msgspec.Struct, gc=False):
    item_id: str = ""
    session: str = ""


_read = msgspec.json.Decoder(_Contribution).decode


def contributed(
    tenant: str, values: Iterable[bytes], items: Collection[str], sessions: Collection[int]
) -> Iterator[Outgoing]:
    """Of records of `candidates`, what all but some sessions (hashes) have contributed to items."""
    gone = frozenset(sessions)
    for value in values:
        try:
            parts = split(value)
        except InvalidEvent:
            continue
        for part in parts:
            try:
                each = _read(part)
            except msgspec.DecodeError:
                continue
            if each.item_id in items and stable_hash(each.session) not in gone:
                yield Outgoing(tenant, "candidates", each.item_id, part)


def _id(row: str) -> str:
    return row.partition("/")[2]
