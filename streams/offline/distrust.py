"""Take a decision about an agent, and have every state that knows it published again, while the fleet goes on.

A state has one writer, its partition's owner. So the decision goes to the owners beside the contributions, and behind
it once more what was contributed to the items: examples of others take the places of the agent's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire import decision
from fleetlore.wire.decision import Decision
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.offline.contributions import contribute_again
from streams.offline.drain import BEHIND, wait_drained
from streams.stage.base import Outgoing, Store
from streams.stage.distrusted import Reconsider

# The second finds what was under way at the first.
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Known:
    """Ids of the patterns and items to which an agent contributed."""

    patterns: frozenset[str]
    items: frozenset[str]


async def decide(settings: Settings, tenant: str, decided: Decision) -> None:
    """Write a decision to the log, where agents and workers hear it.

    Raises:
        BrokerUnavailable: the broker does not take it.
    """
    async with BatchProducer(settings.cluster) as producer:
        await producer.deliver([Outgoing(tenant, decision.TOPIC, decided.key, decided.to_json())])


async def reconsider(settings: Settings, tenant: str, decided: Decision, timeout_seconds: float) -> Known:
    """Write a decision about an agent, and wait until all that it contributed to is published anew.

    Returns to what it contributed.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the workers did not do their part in time; run it again.
    """
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            MilvusStore.from_settings(settings, Metrics("distrust")) as store,
            BatchProducer(settings.cluster) as producer,
        ):
            await decide(settings, tenant, decided)
            for _ in range(ROUNDS):
                known = await known_to(store, tenant, decided.id)
                await producer.deliver(asked(tenant, known, decided))
                await contribute_again(settings, producer, tenant, known.items)
                await wait_drained(settings, tenant, timeout_seconds, BEHIND)
            return known
    except TimeoutError:
        raise StackError(
            f"not done within {timeout_seconds:g} s: run it again; is a worker of tenant {tenant} running?"
        ) from None


async def is_known(settings: Settings, tenant: str, agent: str) -> bool:
    """Whether an agent of that name had a session or contributed to anything.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    async with MilvusStore.from_settings(settings, Metrics("distrust")) as store:
        known = await known_to(store, tenant, agent)
        if known.patterns or known.items:
            return True
        async for row in store.rows("judgments", tenant, "agent"):
            if row["agent"] == agent:
                return True
        return False


async def known_to(store: Store, tenant: str, agent: str) -> Known:
    """Look through all states of a tenant for those to which an agent contributed.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    agents = (stable_hash(agent),)
    patterns: set[str] = set()
    items: set[str] = set()
    async for row in store.rows("patterns", tenant, "body", "state"):
        if row["state"] and PatternState.restore(row["body"], row["state"]).sessions_of(agents):
            patterns.add(row["id"].partition("/")[2])
    async for row in store.rows("items", tenant, "state"):
        if row["state"] and ItemState.from_json(row["state"].encode()).sessions_of(agents):
            items.add(row["id"].partition("/")[2])
    return Known(frozenset(patterns), frozenset(items))


def asked(tenant: str, known: Known, decided: Decision) -> list[Outgoing]:
    """What goes to the owners."""
    places = [("observations", id) for id in sorted(known.patterns)]
    places += [("candidates", id) for id in sorted(known.items)]
    return [Outgoing(tenant, name, id, Reconsider(id, decided).to_json()) for name, id in places]
