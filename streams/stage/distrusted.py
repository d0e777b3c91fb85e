"""Track which agents are distrusted: what they send is kept, so that the decision can be undone, but nothing is learned
from it.

The merging stages share one `Distrusted`. It learns of decisions from the topic `decisions`, and from the `Reconsider`
that goes to the owner of each state that the agent contributed to.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.lore import Decision
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import encode
from streams.stage.operator_topic import OperatorTopic


class Reconsider(msgspec.Struct, frozen=True, gc=False, tag="reconsider"):
    """Asks the owner of a state to publish it again, now that a decision has changed which agents count.

    It travels beside the contributions, on their topic.

    Attributes:
        id: of the pattern or the item.
    """

    id: str
    decision: Decision

    def to_json(self) -> bytes:
        return encode(self)


class Distrusted(OperatorTopic):
    """Distrusted agents, by tenant: all of a principal, whichever of them was named."""

    topic = "decisions"

    def __init__(self) -> None:
        self._newest: defaultdict[str, dict[str, tuple[float, bool]]] = defaultdict(dict)
        self._agents: dict[str, frozenset[int]] = {}

    def agents(self, tenant: str) -> frozenset[int]:
        """Hashes of the names of a tenant's distrusted agents."""
        return self._agents.get(tenant, frozenset())

    def holds(self, tenant: str, agent: str) -> bool:
        """Whether an agent is distrusted."""
        known = self.agents(tenant)
        return bool(known) and stable_hash(principal_of(agent)) in known

    def add(self, tenant: str, decided: Decision) -> None:
        """Take a decision in; the newest about an agent counts, in whatever order they come."""
        known, agent = self._newest[tenant], principal_of(decided.id)
        said = decided.time, decided.on
        if decided.kind != "agent" or said <= known.get(agent, (0.0, False)):
            return
        known[agent] = said
        self._agents[tenant] = frozenset(stable_hash(agent) for agent, (_, on) in known.items() if on)

    def decode(self, tenant: str, value: bytes) -> None:
        self.add(tenant, Decision.from_json(value))
