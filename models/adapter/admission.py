"""Admit judged sessions to learning: which are taken, how long they wait, and whose turn it is."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.wire.adapter_manifest import Place
from fleetlore.wire.trajectory import Judgment
from models.data.dataset import Example, examples_of

REMEMBERED_SESSIONS = 200_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """When to learn. A busy fleet fills batches; a small one is served after `patience_seconds`.

    Attributes:
        refusals_until_dropped: harmful candidates in a row, until learning goes back to the running version.
        fruitless_until_dropped: candidates in a row that were merely not better.
        agent_backlog: sessions of one agent that may wait while other agents wait too; those beyond are not learned.
        confidence: least confidence of a verdict that is learned, from .5 (none) to 1.
    """

    smallest_update: int = 8
    patience_seconds: float = 2.0
    updates_per_candidate: int = 3
    refusals_until_dropped: int = 4
    fruitless_until_dropped: int = 12
    agent_backlog: int = 32
    confidence: float = 0.8
    replay_capacity: int = 400
    held_out_capacity: int = 400


class WaitingSession(NamedTuple):
    """A session that waits to be learned; `judge` is the source and version of its verdict."""

    id: str
    agent: str
    judge: str
    examples: list[Example]


class Admission:
    """The queue of sessions before the learner."""

    def __init__(self, encoder: StaticEncoder, cadence: Cadence, batch_sessions: int) -> None:
        self._encoder = encoder
        self._cadence = cadence
        self._batch_sessions = batch_sessions
        self._known: OrderedDict[str, None] = OrderedDict()
        self._waiting: OrderedDict[str, WaitingSession] = OrderedDict()
        self._waiting_of: Counter[str] = Counter()
        self._waiting_since = 0.0
        self._last_arrival = 0.0
        self._excess: deque[Judgment] = deque(maxlen=batch_sessions)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the sessions that wait."""
        return tuple(self._waiting)

    def admit(self, judgment: Judgment, place: Place) -> list[Example]:
        """The session's examples; none if it is known or its verdict is unsure."""
        verdict, session = judgment.verdict, judgment.trajectory.id
        sure = max(verdict.probability, 1 - verdict.probability) >= self._cadence.confidence
        if verdict.label == "abstained" or not sure or session in self._known:
            return []
        self._known[session] = None
        while len(self._known) > REMEMBERED_SESSIONS:
            self._known.popitem(last=False)
        return examples_of(judgment, self._encoder, place)

    def offer(self, judgment: Judgment, now: float, place: Place) -> list[Example]:
        """Take a session, so that what is not held out waits; returns all its examples, none if it is not taken."""
        session, agent = judgment.trajectory.id, judgment.trajectory.agent
        if self._waiting_of[agent] >= self._cadence.agent_backlog and len(self._waiting) > self._waiting_of[agent]:
            self._excess.append(judgment)
            return []
        examples = self.admit(judgment, place)
        if not examples:
            return []
        new = [example for example in examples if not example.held_out]
        if new:
            self._waiting_since = self._waiting_since if self._waiting else now
            judge = f"{judgment.verdict.source}/{judgment.verdict.version}"
            self._waiting[session] = WaitingSession(session, agent, judge, new)
            self._waiting_of[agent] += 1
        self._last_arrival = now
        return examples

    def batch_due(self, now: float) -> bool:
        """Whether a batch is full, or a small one has waited long enough."""
        waiting = len(self._waiting)
        if waiting >= self._batch_sessions:
            return True
        patience = self._cadence.patience_seconds
        return waiting >= self._cadence.smallest_update and now - self._waiting_since >= patience

    def is_quiet(self, now: float) -> bool:
        """Whether nothing is due and nothing has arrived for a while."""
        return now - self._last_arrival >= self._cadence.patience_seconds and not self.batch_due(now)

    def take_batch(self, now: float) -> list[WaitingSession]:
        """The next batch: agents take turns, and of each agent the session that waited longest comes first."""
        queues: dict[str, list[str]] = {}
        for session in self._waiting.values():
            queues.setdefault(session.agent, []).append(session.id)
        turns = sorted(
            (turn, place, id) for place, queue in enumerate(queues.values()) for turn, id in enumerate(queue)
        )
        batch = [self._waiting.pop(id) for _, _, id in turns[: self._batch_sessions]]
        self._waiting_of -= Counter(session.agent for session in batch)
        self._waiting_since = now
        return batch

    def take_excess(self) -> list[Example]:
        """Examples of sessions that agents sent beyond their backlog: not learned, but evidence about their agents."""
        excess = [example for judgment in self._excess for example in examples_of(judgment, self._encoder)]
        self._excess.clear()
        return excess
