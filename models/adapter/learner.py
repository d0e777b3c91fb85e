"""Learn one tenant's judged sessions: make updates, watch for drift, and send candidates to the gate.

The learner has no broker and no clock: the caller says what arrived and what time it is. So the same judgments in the
same order give the same adapter, to the byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import Base, RiskNetwork
from fleetlore.wire.adapter_manifest import Blend, DataRange, Place, ProceduralManifest
from fleetlore.wire.trajectory import Judgment
from models.adapter.admission import Admission, Cadence
from models.adapter.beside import Beside, Line
from models.adapter.lora_trainer import ContrastiveTrainer, Losses, TrainerConfig
from models.adapter.reproduce import PROBE_SEED, Provenance
from models.data.dataset import NOWHERE, UNLABELLED, Example
from models.data.replay_buffer import ReplayBuffer
from models.promotion.drift import ChangeDetector, Residual
from models.promotion.gate import GateConfig, GateReport, PromotionGate, Where
from models.promotion.metrics import Predictions, predict
from models.promotion.prequential import Prequential

# Fewer held-out steps of a tool give no baseline error.
BASELINE_STEPS = 12
NO_LINE: Line = {}


@dataclass(frozen=True, slots=True)
class CandidateVersion:
    """An adapter that the gate has judged.

    Attributes:
        dropped: learning went back to the running version; only the replay buffer keeps what the candidate learned.
        blends: where it adds to the call model, of the tools that it may judge.
    """

    weights: bytes
    report: GateReport
    dropped: bool
    blends: tuple[Blend, ...]


@dataclass(slots=True)
class Course:
    """What happened since learning last began from a published version, or from the base.

    Attributes:
        stale: tools whose rules have changed since.
        updates: since the last candidate.
        refusals, fruitless: candidates in a row that would do harm, and that were merely not better.
    """

    evidence: Prequential
    stale: frozenset[str] = frozenset()
    provenance: Provenance = field(default_factory=Provenance)
    updates: int = 0
    refusals: int = 0
    fruitless: int = 0


class Learner:
    """Learns from one tenant's judgments. Not thread-safe.

    `update` and `candidate` take up to a second of one core; an update on sessions of more than a hundred calls takes
    up to twenty.

    Attributes:
        running: weights and manifest of the version in service; None before the first one.
        replay: learned examples, of which each update rehearses some.
        outliers: agents and tools whose steps are not learned.
    """

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
        self.running: tuple[bytes, ProceduralManifest] | None = None
        self.replay = ReplayBuffer(self.cadence.replay_capacity, self.config.seed)
        self.outliers: frozenset[tuple[str, str]] = frozenset()
        self._base = base
        self._encoder = encoder
        self._trainer = ContrastiveTrainer(self._base, self.config)
        self._gate = PromotionGate(base.network, self.config.rank, self.config.scale, gate)
        self._admission = Admission(encoder, self.cadence, self.config.new_sessions)
        self._held_out = ReplayBuffer(self.cadence.held_out_capacity, self.config.seed)
        self._unseen: deque[Example] = deque(maxlen=4 * self.config.new_sessions)  # held out, not yet observed
        self._drift = ChangeDetector()
        self._beside = self._new_beside()
        self._updates = 0
        self._running_network: RiskNetwork | None = None
        self.course = self._new_course()

    def _new_course(self, stale: frozenset[str] = frozenset()) -> Course:
        return Course(Prequential(self._gate.config.session_gain), stale)

    def _new_beside(self) -> Beside:
        return Beside(self._gate.config.session_gain, self._gate.needed)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of sessions that were taken and not learned yet."""
        return self._admission.waiting

    @property
    def network(self) -> RiskNetwork:
        """The running version's network; the bare base where there is none."""
        return self._running_network or self._base.network

    def resume(self, weights: bytes, manifest: ProceduralManifest) -> None:
        """Continue from a published version: after a start, a promotion or a rollback by someone else.

        Raises:
            AdapterRefused: `foreign` for a version over another base: the bytes would fit, and mean nothing.
        """
        if manifest.base_sha256 != self._base.sha256:
            raise AdapterRefused("foreign", f"{manifest.version[:12]} was made for another base: see FLEETLORE_BASE")
        self._trainer.resume(weights)
        self.running = (weights, manifest)
        self._running_network = self._trainer.network_of(weights)
        self.course = self._new_course()
        self._beside.go_on(manifest.blends)
        self._measure_baseline()

    def restart(self) -> None:
        """Begin again from the base, like a trainer that finds no published version."""
        self._trainer = ContrastiveTrainer(self._base, self.config)
        self.running = self._running_network = None
        self.course = self._new_course()
        self._beside = self._new_beside()

    def begin_again(self) -> None:
        """Begin again from the base, and forget every session."""
        self.restart()
        self.replay = ReplayBuffer(self.cadence.replay_capacity, self.config.seed)
        self._held_out = ReplayBuffer(self.cadence.held_out_capacity, self.config.seed)
        self._admission = Admission(self._encoder, self.cadence, self.config.new_sessions)
        self._unseen.clear()

    def restore(self, sessions: Iterable[tuple[Judgment, Place]]) -> None:
        """Refill the buffers after a restart with sessions learned before, without learning them again."""
        for judgment, place in sessions:
            for example in self._admission.admit(judgment, place):
                (self._held_out if example.held_out else self.replay).add([example])
        self._measure_baseline()

    def offer(self, judgment: Judgment, now: float, place: Place = NOWHERE) -> bool:
        """Take a judged session; False if it is known, unsure, or teaches nothing.

        Args:
            place: its record offset on `judgments`.
        """
        examples = self._admission.offer(judgment, now, place)
        held_out = [example for example in examples if example.held_out]
        self._held_out.add(held_out)
        self._unseen.extend(held_out)
        return bool(examples)

    def update_due(self, now: float) -> bool:
        """Whether enough sessions wait, or some have waited long enough."""
        return self._admission.batch_due(now)

    def update(self, now: float) -> Losses | None:
        """Learn a batch of waiting sessions with as many rehearsed ones; None if no agent of the batch is trusted."""
        batch = self._admission.take_batch(now)
        self._observe([example for session in batch for example in session.examples])
        new = [example for session in batch for example in session.examples if self._trusts(example)]
        self._updates += 1
        if not new:
            return None
        rehearsed = self.replay.draw(self.config.replayed_sessions, self.config.seed * 1_000_003 + self._updates)
        losses = self._trainer.update(new, rehearsed, self.course.stale)
        self.replay.add(new)
        self.course.updates += 1
        self.course.provenance.add(batch, new, rehearsed, self.course.stale)
        return losses

    def _observe(self, examples: list[Example]) -> None:
        """Compare the running version, and the learner, with new sessions; forget what is stale or not trusted."""
        met = [*examples, *self._unseen]  # held-out sessions are new once as well
        self._unseen.clear()
        excess = self._admission.take_excess()
        if self._running_network is None:
            if self.course.provenance.batches:
                self._beside.foresee(met, predict(self._trainer.network_of(self._trainer.weights()), met))
            return
        # Only agents that were trusted before count as evidence: a session must not decide whether it counts itself.
        trusted = [example for example in met if self._trusts(example)]
        examples = [*trusted, *(example for example in met if not self._trusts(example)), *excess]
        running = predict(self._running_network, examples)
        learner = running.first(sum(int((example.failed != UNLABELLED).sum()) for example in trusted))
        if self.course.provenance.batches and trusted:  # before the first update the learner is the running version
            learner = predict(self._trainer.network_of(self._trainer.weights()), trusted)
            self.course.evidence.observe(trusted, learner, running.first(len(learner.failed)))
        self._beside.foresee(trusted, learner)
        changed = self._drift.observe(_residuals(examples, running))
        self._beside.forget(changed)
        self.course.stale |= changed
        self.outliers = self._drift.outliers
        for buffer in (self.replay, self._held_out):
            buffer.drop(lambda example: not changed.isdisjoint(example.tools) or not self._trusts(example))

    def _trusts(self, example: Example) -> bool:
        return not any((example.agent, tool) in self.outliers for tool in example.tools)

    def _measure_baseline(self) -> None:
        """Tell the drift detector the running version's error on held-out steps, by tool and warning."""
        if self.running is None:
            return
        predictions = self._gate.foresight(self.running[0]).predict(self._held_out.all())
        errors = {}
        for tool in predictions.tool_counts:
            for warned in (True, False):
                steps = predictions.where((predictions.tools == tool) & ((predictions.probability > 0.5) == warned))
                if len(steps.failed) >= BASELINE_STEPS:
                    errors[tool, warned] = float(steps.squared_error.mean())
        self._drift.set_baseline(errors)

    def candidate_due(self, now: float) -> bool:
        """Whether the gate should be asked.

        After one update if no version runs, if there is evidence of a gain, or if nothing has arrived for a while;
        after `updates_per_candidate` in any case.
        """
        course = self.course
        if course.updates == 0:
            return False
        # Not at once after a harmful one: others would follow so fast that learning had no time to mend it.
        if self.running is None or (course.refusals == 0 and self._gate.evident(course.evidence)):
            return True
        return self._admission.is_quiet(now) or course.updates >= self.cadence.updates_per_candidate

    def candidate(self, line: Line = NO_LINE) -> CandidateVersion:
        """Let the gate decide on the adapter as it is.

        One that is merely not better goes on learning, a few times in a row; an unsound one is dropped at once.

        Args:
            line: what the call model foresaw of calls, for the tools where the adapter adds to it.
        """
        course, weights = self.course, self._trainer.weights()
        self._beside.learn(line)
        held_out = [example for example in self._held_out.all() if self._trusts(example)]
        running, tools, ineffective_tools, spoke = None, set[str](), set[str](), set[Where]()
        blends = self._beside.blends()
        if self.running is not None:
            running, manifest = self.running
            tools, ineffective_tools = set(manifest.tools) - course.stale, set(manifest.vain_tools) - course.stale
            spoke = {each.where for each in manifest.blends}
        report = self._gate.decide(
            weights,
            running,
            held_out,
            PROBE_SEED,
            course.evidence,
            tools,
            ineffective_tools,
            speaks={each.where for each in blends},
            spoke=spoke,
        )
        course.updates = 0
        if report.reason != "too_few":
            fruitless = report.reason == "no_gain" or (report.reason == "auroc" and running is None)
            course.refusals = course.refusals + 1 if not (report.passed or fruitless) else 0
            course.fruitless = course.fruitless + 1 if fruitless else 0
        unsound = course.refusals > 0 and not report.measured
        dropped = (
            unsound
            or course.refusals >= self.cadence.refusals_until_dropped
            or course.fruitless >= self.cadence.fruitless_until_dropped
        )
        if dropped:
            self._drop()
        heard = tuple(each for each in blends if each.tool in report.tools)
        return CandidateVersion(weights, report, dropped, heard)

    def _drop(self) -> None:
        """Go back to the running version. The replay buffer keeps the sessions, so what they teach is not lost."""
        self.course = self._new_course(self.course.stale)
        if self.running is not None:
            self._trainer.resume(self.running[0])
        else:
            self._trainer = ContrastiveTrainer(self._base, self.config)

    def manifest(
        self, candidate: CandidateVersion, ordinal: int, data: tuple[DataRange, ...], created: float
    ) -> ProceduralManifest:
        """Describe a candidate that passed."""
        return self.course.provenance.manifest(
            candidate.weights,
            candidate.report,
            self._trainer,
            self._encoder,
            [*self.replay.all(), *self._held_out.all()],
            candidate.blends,
            tenant=self.tenant,
            ordinal=ordinal,
            parent=self.running[1].version if self.running else None,
            data=data,
            created=created,
        )


def _residuals(examples: list[Example], predictions: Predictions) -> Iterable[Residual]:
    agents = list({example.session: example.agent for example in examples}.values())
    columns = (predictions.tools, predictions.probability, predictions.sessions, predictions.failed)
    for tool, probability, session, failed in zip(*(column.tolist() for column in columns), strict=True):
        yield Residual(tool, probability > 0.5, agents[session], probability - failed)
