"""One tenant's learning: which judged sessions are learned, when an update is due, and when a candidate is.

No broker and no clock in here: the caller says what arrived and what time it is, so the same judgments in the same order
give the same adapter, to the byte.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from fleetlore.encoder import StaticEncoder
from fleetlore.manifest import ADAPTER, AdapterManifest, DataRange, Probe
from fleetlore.network import LORA_TARGETS, Base, adapter_shapes, probe_answers
from fleetlore.trajectory import Judgment
from models.episodes import Episode, episodes_of
from models.gate import GateConfig, GateReport, PromotionGate
from models.replay_buffer import ReplayBuffer
from models.trainer import ContrastiveTrainer, Losses, TrainerConfig, version_of

PROBE_SEED = 1
REMEMBERED_SESSIONS = 200_000


@dataclass(frozen=True, slots=True)
class Cadence:
    """When to do what. A busy fleet fills batches; a small one is served after `patience_seconds`.

    confidence: of a verdict, from .5 (none) to 1; what is less sure is not learned.
    """

    smallest_update: int = 8
    patience_seconds: float = 2.0
    updates_per_candidate: int = 3
    refusals_until_dropped: int = 4
    confidence: float = 0.8
    replay_capacity: int = 400
    held_out_capacity: int = 400


@dataclass(frozen=True, slots=True)
class Candidate:
    """An adapter that stood before the gate, and what the gate said.

    dropped: learning went back to the running version; what the candidate knew is gone, but for the replay buffer.
    """

    weights: bytes
    report: GateReport
    dropped: bool


class Learner:
    """Learns from one tenant's judgments. Not thread-safe; `update` and `candidate` take up to a second of one core."""

    def __init__(
        self,
        tenant: str,
        base: Base,
        encoder: StaticEncoder,
        config: TrainerConfig | None = None,
        cadence: Cadence | None = None,
        gate: GateConfig | None = None,
    ) -> None:
        self.tenant = tenant
        self.config = config or TrainerConfig()
        self.cadence = cadence or Cadence()
        self.running: tuple[bytes, AdapterManifest] | None = None
        self._base = base
        self._encoder = encoder
        self._gate = PromotionGate(base.network, self.config.rank, self.config.scale, gate)
        self._trainer = ContrastiveTrainer(base, self.config)
        self._replay = ReplayBuffer(self.cadence.replay_capacity, self.config.seed)
        self._held_out = ReplayBuffer(self.cadence.held_out_capacity, self.config.seed)
        self._waiting: OrderedDict[str, list[Episode]] = OrderedDict()
        self._waiting_since = 0.0
        self._last_arrival = 0.0
        self._known: OrderedDict[str, None] = OrderedDict()
        self._updates = 0
        self._updates_since_candidate = 0
        self._refusals = 0
        self._sessions_since_running = 0
        self._agents_since_running: set[str] = set()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of sessions that were taken and not learned yet."""
        return tuple(self._waiting)

    def resume(self, weights: bytes, manifest: AdapterManifest) -> None:
        """Continue from a published version: after a start, a promotion or a rollback by someone else."""
        self._trainer.resume(weights)
        self.running = (weights, manifest)
        self._updates_since_candidate = 0
        self._refusals = 0
        self._sessions_since_running = 0
        self._agents_since_running.clear()

    def recall(self, judgment: Judgment) -> None:
        """Put a session that was learned before a restart back into the buffers, without learning it again."""
        for episode in self._admit(judgment):
            (self._held_out if episode.held_out else self._replay).add([episode])

    def offer(self, judgment: Judgment, now: float) -> bool:
        """Take a judged session; False if it is known, unsure, or teaches nothing."""
        episodes = self._admit(judgment)
        self._held_out.add(episode for episode in episodes if episode.held_out)
        new = [episode for episode in episodes if not episode.held_out]
        if new:
            self._waiting_since = self._waiting_since if self._waiting else now
            self._waiting[judgment.trajectory.id] = new
        if episodes:
            self._last_arrival = now
        return bool(episodes)

    def update_due(self, now: float) -> bool:
        waiting = len(self._waiting)
        if waiting >= self.config.new_sessions:
            return True
        return waiting >= self.cadence.smallest_update and now - self._waiting_since >= self.cadence.patience_seconds

    def update(self, now: float) -> Losses:
        """Learn the sessions that waited longest, with as many rehearsed ones."""
        sessions = list(self._waiting)[: self.config.new_sessions]
        new = [episode for session in sessions for episode in self._waiting.pop(session)]
        self._waiting_since = now
        replayed = self._replay.draw(self.config.replayed_sessions, self.config.seed * 1_000_003 + self._updates)
        losses = self._trainer.update(new, replayed)
        self._replay.add(new)
        self._updates += 1
        self._updates_since_candidate += 1
        self._sessions_since_running += len(sessions)
        self._agents_since_running.update(episode.agent for episode in new)
        return losses

    def candidate_due(self, now: float) -> bool:
        """After some updates; after one, when nothing has arrived for a while."""
        if self._updates_since_candidate == 0:
            return False
        quiet = now - self._last_arrival >= self.cadence.patience_seconds and not self.update_due(now)
        return quiet or self._updates_since_candidate >= self.cadence.updates_per_candidate

    def candidate(self) -> Candidate:
        """Let the gate decide on the adapter as it is.

        One that is merely not better yet goes on learning, a few times in a row; one that is unsound is dropped at once.
        """
        weights = self._trainer.weights()
        report = self._gate.decide(weights, self.running[0] if self.running else None, self._held_out.all(), PROBE_SEED)
        self._updates_since_candidate = 0
        self._refusals = 0 if report.passed or report.reason == "too_few" else self._refusals + 1
        dropped = self._refusals > 0 and (not report.measured or self._refusals >= self.cadence.refusals_until_dropped)
        if dropped:
            self._drop()
        return Candidate(weights, report, dropped)

    def manifest(
        self, candidate: Candidate, ordinal: int, data: tuple[DataRange, ...], created: float
    ) -> AdapterManifest:
        """What is said about a candidate that passed."""
        network = self._trainer.folded(candidate.weights)
        return AdapterManifest(
            name=ADAPTER,
            version=version_of(candidate.weights),
            ordinal=ordinal,
            parent=self.running[1].version if self.running else None,
            tenant=self.tenant,
            base_sha256=self._base.sha256,
            encoder=self._encoder.name,
            encoder_sha256=self._encoder.sha256,
            rank=self.config.rank,
            alpha=self.config.alpha,
            targets=LORA_TARGETS,
            tensors=dict(adapter_shapes(self.config.rank)),
            size_bytes=len(candidate.weights),
            data=data,
            sessions=self._sessions_since_running,
            agents=len(self._agents_since_running),
            tools=candidate.report.tools,
            metrics=candidate.report.figures,
            probe=Probe(PROBE_SEED, probe_answers(network, PROBE_SEED)),
            created=created,
        )

    def _drop(self) -> None:
        self._refusals = 0
        # The sessions stay in the replay buffer, so what they teach is not lost with the candidate.
        if self.running is not None:
            self._trainer.resume(self.running[0])
        else:
            self._trainer = ContrastiveTrainer(self._base, self.config)

    def _admit(self, judgment: Judgment) -> list[Episode]:
        verdict, session = judgment.verdict, judgment.trajectory.id
        sure = max(verdict.probability, 1 - verdict.probability) >= self.cadence.confidence
        if verdict.label == "abstained" or not sure or session in self._known:
            return []
        self._known[session] = None
        while len(self._known) > REMEMBERED_SESSIONS:
            self._known.popitem(last=False)
        return episodes_of(judgment, self._encoder)
