"""One tenant's learning: which judged sessions are learned, when an update is due, and when a candidate is.

No broker and no clock in here: the caller says what arrived and what time it is, so the same judgments in the same order
give the same adapter, to the byte. What each update learned from is written down, so that a version can be made again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import torch

from fleetlore.errors import AdapterRefused
from fleetlore.risk.encoder import StaticEncoder
from fleetlore.risk.network import LORA_TARGETS, Base, RiskNetwork, adapter_shapes, probe_answers
from fleetlore.wire.adapter_manifest import ADAPTER, AdapterManifest, DataRange, Familiar, Place, Probe, TrainedBatch
from fleetlore.wire.trajectory import Judgment
from models.adapter.lora_trainer import ContrastiveTrainer, Losses, TrainerConfig, version_of
from models.adapter.private import PRIVATE_UPDATES, PrivacyConfig, PrivateTrainer
from models.adapter.prototypes import goal_prototypes, signatures_of
from models.data.dataset import NOWHERE, Example, examples_of
from models.data.replay_buffer import ReplayBuffer
from models.promotion.drift import ChangeDetector, DriftConfig, Residual
from models.promotion.gate import GateConfig, GateReport, PromotionGate
from models.promotion.metrics import predict
from models.promotion.prequential import Prequential

PROBE_SEED = 1
REMEMBERED_SESSIONS = 200_000
BASELINE_STEPS = 12  # fewer held-out steps of a tool say too little of what is usual there


@dataclass(frozen=True, slots=True)
class Cadence:
    """When to do what. A busy fleet fills batches; a small one is served after `patience_seconds`.

    confidence: of a verdict, from .5 (none) to 1; what is less sure is not learned.
    refusals_until_dropped: candidates in a row that were worse than the running version, until learning goes back to it;
        `fruitless_until_dropped` those that were merely not better.
    agent_backlog: sessions of one agent that may wait while other agents wait too; what it sends beyond is not learned.
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


@dataclass(frozen=True, slots=True)
class CandidateVersion:
    """An adapter that stood before the gate, and what the gate said.

    dropped: learning went back to the running version; what the candidate knew is gone, but for the replay buffer.
    """

    weights: bytes
    report: GateReport
    dropped: bool


class Learner:
    """Learns from one tenant's judgments. Not thread-safe; `update` and `candidate` take up to a second of one core, an update on sessions
    of more than a hundred calls up to twenty.
    """

    def __init__(
        self,
        tenant: str,
        base: Base,
        encoder: StaticEncoder,
        config: TrainerConfig | None = None,
        cadence: Cadence | None = None,
        gate: GateConfig | None = None,
        trust: DriftConfig | None = None,
        privacy: PrivacyConfig | None = None,
    ) -> None:
        self.tenant = tenant
        self.config = config or TrainerConfig()
        self.cadence = cadence or Cadence()
        if privacy is not None:
            self.config = replace(config or PRIVATE_UPDATES, replayed_sessions=0)
            # The noise is that of a whole batch, however few sessions have to be heard above it.
            self.cadence = replace(self.cadence, smallest_update=self.config.new_sessions)
        self.running: tuple[bytes, AdapterManifest] | None = None
        self._base = base
        self._encoder = encoder
        self._gate = PromotionGate(base.network, self.config.rank, self.config.scale, gate)
        self._privacy = privacy
        self._trainer = self._new_trainer()
        self._replay = ReplayBuffer(self.cadence.replay_capacity, self.config.seed)
        self._held_out = ReplayBuffer(self.cadence.held_out_capacity, self.config.seed)
        self._drift = ChangeDetector(trust)
        self._outliers: frozenset[tuple[str, str]] = frozenset()
        self._waiting: OrderedDict[str, list[Example]] = OrderedDict()
        self._waiting_of: Counter[str] = Counter()
        self._waiting_since = 0.0
        self._last_arrival = 0.0
        self._excess: deque[Judgment] = deque(maxlen=self.config.new_sessions)
        self._unseen: deque[Example] = deque(maxlen=4 * self.config.new_sessions)
        self._known: OrderedDict[str, None] = OrderedDict()
        self._judged_by: OrderedDict[str, str] = OrderedDict()
        self._learned: set[tuple[int, ...]] = set()
        self._updates = 0
        self._published_network: RiskNetwork | None = None
        self._begin_version()

    def _new_trainer(self) -> ContrastiveTrainer:
        if self._privacy is not None:
            return PrivateTrainer(self._base, self.config, self._privacy)
        return ContrastiveTrainer(self._base, self.config)

    def _begin_version(self) -> None:
        """What is counted from the version that learning goes on from."""
        self._evidence = Prequential(self._gate.config.session_gain)
        self._updates_since_candidate = 0
        self._refusals = 0
        self._fruitless = 0
        self._batches: list[TrainedBatch] = []
        self._agents: set[str] = set()
        self._sessions: set[str] = set()
        self._judges: Counter[str] = Counter()
        self._stale: frozenset[str] = frozenset()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of sessions that were taken and not learned yet."""
        return tuple(self._waiting)

    @property
    def network(self) -> RiskNetwork:
        """The running version's network; the bare base where there is none."""
        return self._published_network or self._base.network

    def resume(self, weights: bytes, manifest: AdapterManifest) -> None:
        """Continue from a published version: after a start, a promotion or a rollback by someone else.

        Raises AdapterRefused (`foreign`) for a version over another base: the bytes would fit, and mean nothing.
        """
        if manifest.base_sha256 != self._base.sha256:
            raise AdapterRefused("foreign", f"{manifest.version[:12]} was made for another base: see FLEETLORE_BASE")
        if isinstance(self._trainer, PrivateTrainer):
            self._trainer.take_over(manifest.privacy)
        self._trainer.resume(weights)
        self.running = (weights, manifest)
        self._published_network = self._trainer.network_of(weights)
        self._begin_version()
        self._measure_baseline()

    def restart(self) -> None:
        """Begin again from the base, as a trainer that finds no version to go on from."""
        self._trainer = self._new_trainer()
        self.running = self._published_network = None
        self._begin_version()

    def learned(self, versions: Iterable[AdapterManifest]) -> None:
        """With privacy, after a start: nothing that a published version holds is learned again, for its ledger counts that once."""
        if self._privacy is not None:
            self._learned.update(place[:3] for version in versions for batch in version.batches for place in batch.new)

    def recall(self, judgment: Judgment, place: Place = NOWHERE) -> None:
        """Put a session that was learned before a restart back into the buffers, without learning it again."""
        for example in self._admit(judgment, place):
            (self._held_out if example.held_out else self._replay).add([example])

    def recalled(self) -> None:
        """Say that all was recalled: what is usual on held-out sessions is then known again."""
        self._measure_baseline()

    def offer(self, judgment: Judgment, now: float, place: Place = NOWHERE) -> bool:
        """Take a judged session; False if it is known, unsure, or teaches nothing.

        place: where it lies on `judgments`.
        """
        agent = judgment.trajectory.agent
        if self._waiting_of[agent] >= self.cadence.agent_backlog and len(self._waiting) > self._waiting_of[agent]:
            self._excess.append(judgment)
            return False
        examples = self._admit(judgment, place)
        if place[:3] in self._learned:
            return False
        held_out = [example for example in examples if example.held_out]
        self._held_out.add(held_out)
        self._unseen.extend(held_out)
        new = [example for example in examples if not example.held_out]
        if new:
            self._waiting_since = self._waiting_since if self._waiting else now
            self._waiting[judgment.trajectory.id] = new
            self._waiting_of[agent] += 1
            self._judged_by[judgment.trajectory.id] = f"{judgment.verdict.source}/{judgment.verdict.version}"
        if examples:
            self._last_arrival = now
        return bool(examples)

    def update_due(self, now: float) -> bool:
        waiting = len(self._waiting)
        if waiting >= self.config.new_sessions:
            return True
        return waiting >= self.cadence.smallest_update and now - self._waiting_since >= self.cadence.patience_seconds

    def update(self, now: float) -> Losses | None:
        """Learn some of the waiting sessions, with as many rehearsed ones; None if none of them may be learned.

        Agents take turns, and of each the session that waited longest comes first.
        """
        sessions = self._in_turn()
        waiting = {session: self._waiting.pop(session) for session in sessions}
        self._waiting_of -= Counter(examples[0].agent for examples in waiting.values())
        judged_by = {session: self._judged_by.pop(session) for session in sessions}
        self._waiting_since = now
        self._observe([example for examples in waiting.values() for example in examples])
        new = [example for examples in waiting.values() for example in examples if self._trusted(example)]
        self._updates += 1
        if not new:
            return None
        rehearsed = self._replay.draw(self.config.replayed_sessions, self.config.seed * 1_000_003 + self._updates)
        losses = self._trainer.update(new, rehearsed, self._stale)
        self._replay.add(new)
        self._updates_since_candidate += 1
        self._batches.append(TrainedBatch(_places(new), _places(rehearsed), tuple(sorted(self._stale))))
        self._agents.update(example.agent for example in new)
        learned = {example.session for example in new}
        taken = [session for session, examples in waiting.items() if examples[0].session in learned]
        self._sessions.update(taken)
        self._judges.update(judged_by[session] for session in taken)
        return losses

    def _in_turn(self) -> list[str]:
        queues: dict[str, list[str]] = {}
        for session, examples in self._waiting.items():
            queues.setdefault(examples[0].agent, []).append(session)
        turns = [(turn, place, s) for place, queue in enumerate(queues.values()) for turn, s in enumerate(queue)]
        return [session for _, _, session in sorted(turns)][: self.config.new_sessions]

    def _observe(self, examples: list[Example]) -> None:
        """See what the published version, and the learner, did not expect of new sessions, and forget what is no longer believed."""
        met = [*examples, *self._unseen]  # held-out sessions are new once as well
        self._unseen.clear()
        # Who sends more than is learned is still listened to, for what it says about him.
        excess = [e for judgment in self._excess for e in examples_of(judgment, self._encoder)]
        self._excess.clear()
        if self._published_network is None:
            return
        # Bets are on those who were believed before: what happens in a session must not decide whether it is a bet.
        bets = [example for example in met if self._trusted(example)]
        examples = [*bets, *(example for example in met if not self._trusted(example)), *excess]
        predictions = predict(self._published_network, examples)
        if self._batches and bets:  # before the first update the learner is the running version
            mine = predict(self._trainer.network_of(self._trainer.weights()), bets)
            self._evidence.observe(bets, mine, predictions.first(len(mine.failed)))
        agents = list({example.session: example.agent for example in examples}.values())
        changed = self._drift.observe(
            Residual(tool, probability > 0.5, agents[session], probability - failed)
            for tool, probability, session, failed in zip(
                predictions.tools.tolist(),
                predictions.probability.tolist(),
                predictions.sessions.tolist(),
                predictions.failed.tolist(),
                strict=True,
            )
        )
        self._stale |= changed
        self._outliers = self._drift.outliers
        for buffer in (self._replay, self._held_out):
            buffer.drop(lambda example: not changed.isdisjoint(example.tools) or not self._trusted(example))

    def _trusted(self, example: Example) -> bool:
        return not any((example.agent, tool) in self._outliers for tool in example.tools)

    def _measure_baseline(self) -> None:
        if self.running is None:
            return
        predictions = self._gate.foresight(self.running[0]).predict(self._held_out.all())
        usual = {}
        for tool in predictions.tool_counts:
            for warned in (True, False):
                side = predictions.where((predictions.tools == tool) & ((predictions.probability > 0.5) == warned))
                if len(side.failed) >= BASELINE_STEPS:
                    usual[tool, warned] = float(side.squared_error.mean())
        self._drift.set_baseline(usual)

    def candidate_due(self, now: float) -> bool:
        """After some updates; after one, when no version runs or there is evidence of a gain, or nothing has arrived for a while."""
        if self._updates_since_candidate == 0:
            return False
        # Not after a harmful one: others would follow so fast that learning had no time to mend it.
        if self.running is None or (self._refusals == 0 and self._gate.evident(self._evidence)):
            return True
        quiet = now - self._last_arrival >= self.cadence.patience_seconds and not self.update_due(now)
        return quiet or self._updates_since_candidate >= self.cadence.updates_per_candidate

    def candidate(self) -> CandidateVersion:
        """Let the gate decide on the adapter as it is.

        One that is merely not better yet goes on learning, a few times in a row; one that is unsound is dropped at once.
        """
        weights = self._trainer.weights()
        held_out = [example for example in self._held_out.all() if self._trusted(example)]
        running = self.running[0] if self.running else None
        judged = (
            [set(known) - self._stale for known in (self.running[1].tools, self.running[1].vain_tools)]
            if self.running
            else []
        )
        report = self._gate.decide(weights, running, held_out, PROBE_SEED, self._evidence, *judged)
        self._updates_since_candidate = 0
        if report.reason != "too_few":
            fruitless = report.reason == "no_gain" or (report.reason == "auroc" and running is None)
            self._refusals = self._refusals + 1 if not (report.passed or fruitless) else 0
            self._fruitless = self._fruitless + 1 if fruitless else 0
        dropped = self._refusals > 0 and (not report.measured or self._refusals >= self.cadence.refusals_until_dropped)
        dropped = dropped or self._fruitless >= self.cadence.fruitless_until_dropped
        if dropped:
            self._drop()
        return CandidateVersion(weights, report, dropped)

    def manifest(
        self, candidate: CandidateVersion, ordinal: int, data: tuple[DataRange, ...], created: float
    ) -> AdapterManifest:
        """What is said about a candidate that passed."""
        network = self._trainer.network_of(candidate.weights)
        known = [*self._replay.all(), *self._held_out.all()]
        private = self._privacy is not None
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
            sessions=len(self._sessions),
            agents=len(self._agents),
            tools=candidate.report.tools,
            vain_tools=() if private else candidate.report.ineffective_tools,
            metrics=candidate.report.figures,
            probe=Probe(PROBE_SEED, probe_answers(network, PROBE_SEED)),
            created=created,
            batches=tuple(self._batches),
            training=asdict(self.config),
            torch=torch.__version__,
            judges=dict(self._judges),
            # Both are made of single sessions, which no noise has covered.
            signatures=() if private else signatures_of(network, known),
            familiar=Familiar() if private else goal_prototypes(known),
            privacy=self._trainer.ledger if isinstance(self._trainer, PrivateTrainer) else None,
        )

    def _drop(self) -> None:
        stale = self._stale
        self._begin_version()
        self._stale = stale
        # The sessions stay in the replay buffer, so what they teach is not lost with the candidate.
        if self.running is not None:
            self._trainer.resume(self.running[0])
        else:
            self._trainer = self._new_trainer()

    def _admit(self, judgment: Judgment, place: Place) -> list[Example]:
        verdict, session = judgment.verdict, judgment.trajectory.id
        sure = max(verdict.probability, 1 - verdict.probability) >= self.cadence.confidence
        if verdict.label == "abstained" or not sure or session in self._known:
            return []
        self._known[session] = None
        while len(self._known) > REMEMBERED_SESSIONS:
            self._known.popitem(last=False)
        return examples_of(judgment, self._encoder, place)


def _places(examples: list[Example]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(example.place) for example in examples)
