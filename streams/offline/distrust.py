"""Take a decision about lore or an agent; every state that knows a distrusted agent is published again."""

from __future__ import annotations

from fleetlore.config import Settings
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire import decision
from fleetlore.wire.decision import Decision
from fleetlore.wire.principals import principal_of
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.offline.drain import BEHIND, wait_drained
from streams.offline.operator_word import States, ask_owners, beside_workers, requests, states_that
from streams.stage.base import Outgoing, Store
from streams.stage.distrusted import Reconsider

__all__ = ["decide", "is_known", "reconsider"]

# The second finds what was under way at the first.
_ROUNDS = 2


async def decide(settings: Settings, tenant: str, decided: Decision) -> None:
    """Write a decision to the log, where agents and workers hear it.

    Raises:
        BrokerUnavailable: the broker does not take it.
    """
    async with BatchProducer(settings.cluster) as producer:
        await producer.deliver([Outgoing(tenant, decision.TOPIC, decided.key, decided.to_json())])


async def reconsider(settings: Settings, tenant: str, decided: Decision, timeout_seconds: float) -> States:
    """Write a decision about an agent, and wait until all that it contributed to is published anew.

    Returns to what it contributed.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the workers did not do their part in time; run it again.
    """
    async with beside_workers(settings, tenant, timeout_seconds) as (store, producer):
        await decide(settings, tenant, decided)
        for _ in range(_ROUNDS):
            known = await known_to(store, tenant, decided.id)
            await ask_owners(settings, producer, tenant, asked(tenant, known, decided), known.items)
            await wait_drained(settings, tenant, timeout_seconds, BEHIND)
        return known


async def is_known(settings: Settings, tenant: str, agent: str) -> bool:
    """Whether an agent of that name had a session or contributed to anything.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    async with MilvusStore.from_settings(settings, Metrics("distrust")) as store:
        if await known_to(store, tenant, agent):
            return True
        async for row in store.rows("judgments", tenant, "agent"):
            if row["agent"] == agent:
                return True
        return False


async def known_to(store: Store, tenant: str, agent: str) -> States:
    """Look through all states of a tenant for those to which an agent contributed.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    agents = (stable_hash(principal_of(agent)),)
    return await states_that(lambda state: state.sessions_of(agents), store, tenant)


def asked(tenant: str, known: States, decided: Decision) -> list[Outgoing]:
    """What goes to the owners."""
    return requests(tenant, known, lambda id, _: Reconsider(id, decided).to_json())
