"""Train the adapters of one tenant: from judgments to versions in service, and the offsets to commit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka import ConsumerRecord, TopicPartition

from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ChannelMoved
from fleetlore.kafka.client import backoff
from fleetlore.wire.adapter_manifest import PROCEDURAL, DataRange, Place, ProceduralManifest
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics
from streams.stage.erased import Erased
from streams.training.backlog import Backlog
from streams.training.judgment_log import Judged, judgments_of

if TYPE_CHECKING:
    from fleetlore.adapters.registry import RegistryView
    from models.adapter.learner import CandidateVersion, Learner
    from models.calls.thresholds import CallsForeseen
    from models.promotion.canary import CanaryTrial

log = logging.getLogger(__name__)

# Updates' worth of sessions offered to the learner ahead of time; the others wait in the backlog, where they cost
# nothing.
OFFERED_UPDATES = 2
MOST_WAITING = 1_024
PUBLISH_ATTEMPTS = 8


class TenantTrainer:
    """Feeds a tenant's learner and publishes the candidates that pass its gate, after a canary trial if one is set.

    Attributes:
        name: topic of its judgments.
    """

    def __init__(
        self,
        tenant: str,
        learner: Learner,
        publisher: AdapterPublisher[ProceduralManifest],
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        erased: Erased | None = None,
        foreseen: CallsForeseen | None = None,
    ) -> None:
        self._erased = erased or Erased()
        self._foreseen = {} if foreseen is None else foreseen
        self.name = topic(tenant, "judgments")
        self._tenant = tenant
        self._learner = learner
        self._publisher = publisher
        self._canary_share = settings.canary_share
        self._metrics = metrics
        self._clock = clock
        self._backlog = Backlog(MOST_WAITING)
        self._ordinal = 0
        self._offered_from: dict[int, int] = {}  # by partition: first offset since the version in service
        self._read_to: dict[int, int] = {}
        self._offered: dict[str, Place] = {}  # sessions offered to the learner and not learned yet
        self._trial: tuple[CanaryTrial, bytes, ProceduralManifest] | None = None

    async def resume(self) -> None:
        """Continue from the version that the channel points to."""
        await self._publisher.restate(self._tenant)
        published = await self._publisher.published(self._tenant)
        self._ordinal = max((m.ordinal for m in published.versions.values()), default=0)
        running = published.complete()
        if published.canary is not None and running is not None:
            # The trainer that counted its sessions is gone; a canary must not run without one.
            with contextlib.suppress(ChannelMoved):
                await self._publisher.move(published, running[1].version, "the trial was interrupted")
            running = (await self._publisher.published(self._tenant)).complete()
        if running is not None:
            self._learner.resume(*running)
            self._metrics.show_adapter(PROCEDURAL, running[1].version)
            log.info(
                "tenant %s continues from adapter %d (%s)", self._tenant, running[1].ordinal, running[1].version[:12]
            )

    async def forget(self) -> None:
        """Begin again from the version in service: what was learned since, and is kept, may hold what was erased."""
        self._learner.begin_again()
        self._trial = None  # its canary ends as well
        self._backlog = Backlog(MOST_WAITING)
        self._offered.clear()
        self._offered_from.clear()
        self._read_to.clear()
        await self.resume()

    def _is_erased(self, judged: Judged) -> bool:
        return self._erased.holds(self._tenant, judged.judgment.trajectory.session)

    def recall(self, sessions: Iterable[Judged]) -> None:
        """Fill the buffers again with sessions that were learned before."""
        self._learner.restore(each for each in sessions if not self._is_erased(each))

    def take(self, record: ConsumerRecord) -> None:
        """Add the judgments of a record to the backlog."""
        self._metrics.received_records(record.topic).inc()
        self._offered_from.setdefault(record.partition, record.offset)
        for judged in judgments_of(record):
            if self._is_erased(judged):
                continue
            self._metrics.trainer_sessions().inc()
            if self._trial is not None:
                self._trial[0].add(judged.judgment, self._clock.monotonic())
            if not self._backlog.add(judged):
                self._metrics.trainer_shed().inc()
        self._read_to[record.partition] = record.offset + 1

    async def learn(self) -> bool:
        """Make an update and a candidate, if they are due; return whether there are offsets to commit.

        Raises BrokerUnavailable if the broker stays away while a version is published.
        """
        learner, now = self._learner, self._clock.monotonic
        while self._backlog and len(learner.waiting) < OFFERED_UPDATES * learner.config.new_sessions:
            judgment, place = self._backlog.take()
            if learner.offer(judgment, now(), place):
                self._offered[judgment.trajectory.id] = place
        if learner.update_due(now()):
            began = now()
            # On a thread, so that the consumer's heartbeats go on.
            losses = await asyncio.to_thread(learner.update, began)
            if losses is not None:
                self._metrics.trainer_updates().inc(losses.steps)
                self._metrics.trainer_step_duration().observe((now() - began) / losses.steps)
            log.info("tenant %s: %s", self._tenant, losses or "no update: all waiting agents are distrusted")
        if self._trial is not None or not learner.candidate_due(now()):
            return False
        candidate = await asyncio.to_thread(self._candidate)
        self._metrics.gate_decisions(candidate.report.reason).inc()
        log.info("tenant %s: the gate decided %s %s", self._tenant, candidate.report.reason, candidate.report.figures)
        if candidate.report.passed:
            await self._publish(candidate)
        return (candidate.report.passed or candidate.dropped) and self._trial is None

    def _candidate(self) -> CandidateVersion:
        from models.adapter.beside import line_of

        candidate = self._learner.candidate(line_of(self._tenant, self._foreseen.get(self._tenant, ())))
        log.info("tenant %s: it adds to the call model at %s", self._tenant, candidate.blends or "no tool")
        return candidate

    async def end_trial(self) -> bool:
        """End a canary's trial once its sessions or its time decide; return whether there are offsets to commit."""
        if self._trial is None:
            return False
        trial, weights, manifest = self._trial
        decision = trial.decide(self._clock.monotonic())
        if decision == "waiting":
            return False
        self._trial = None
        log.info("tenant %s: the canary trial decided %s %s", self._tenant, decision, trial.counts)
        self._metrics.gate_decisions(f"canary_{decision}").inc()
        published = await self._publisher.published(self._tenant)
        promoted = decision == "promote"
        version = trial.canary if promoted else trial.stable
        reason = "promoted after its trial" if promoted else "the trial was lost"
        try:
            if published.canary is None or published.canary.version != trial.canary:
                raise ChannelMoved("the channel was pointed elsewhere during the trial: that decision counts")
            await self._publisher.move(published, version, reason)
        except ChannelMoved:
            promoted, published = False, await self._publisher.published(self._tenant)
        if promoted:
            self._set_in_service(weights, manifest)
        else:
            self._follow(published)
        return True

    def done(self) -> dict[TopicPartition, int]:
        """Return the offsets to commit: the end of what was read, or the first session that still waits."""
        waiting = set(self._learner.waiting)
        self._offered = {session: place for session, place in self._offered.items() if session in waiting}
        offsets = dict(self._read_to)
        for place in (*self._offered.values(), *self._backlog.places()):
            if place.partition in offsets:
                offsets[place.partition] = min(offsets[place.partition], place.offset)
        return {TopicPartition(self.name, partition): offset for partition, offset in offsets.items()}

    async def _publish(self, candidate: CandidateVersion) -> None:
        learner = self._learner
        published = await self._publisher.published(self._tenant)
        running = learner.running[1].version if learner.running else None
        pointed = published.complete()
        pinned = published.pointer is not None and published.pointer.pinned
        if pointed is not None and (pinned or pointed[1].version != running):
            self._follow(published)
            return
        if running is not None and published.revoked(running):
            # No other version took its place. A child would bring back all that the revoked parent learned.
            log.warning("tenant %s begins again from the base: %s is revoked", self._tenant, running[:12])
            learner.restart()
            return
        self._ordinal = max((self._ordinal, *(m.ordinal for m in published.versions.values()))) + 1
        manifest = learner.manifest(candidate, self._ordinal, self._data(), self._clock.now())
        share = self._canary_share if running is not None else 0.0
        for attempt, delay in zip(range(PUBLISH_ATTEMPTS), backoff(), strict=False):
            try:
                await self._publisher.publish(candidate.weights, manifest, canary_share=share, known=published)
                break
            except ChannelMoved:
                self._follow(await self._publisher.published(self._tenant))
                return
            except BrokerUnavailable:
                self._metrics.adapters_published("broker_unavailable").inc()
                if attempt == PUBLISH_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(delay)
        if share and running is not None:
            from models.promotion.canary import CanaryTrial

            trial = CanaryTrial(manifest.version, running, share, self._clock.monotonic())
            self._trial = trial, candidate.weights, manifest
            log.info("tenant %s: %s runs on %.0f %% of agents", self._tenant, manifest.version[:12], 100 * share)
            return
        self._set_in_service(candidate.weights, manifest)

    def _follow(self, published: RegistryView[ProceduralManifest]) -> None:
        """Continue from the channel's version: a child of a withdrawn version must not undo the withdrawal."""
        pointed = published.complete()
        if pointed is not None:
            log.warning("tenant %s continues from %s; the candidate is dropped", self._tenant, pointed[1].version[:12])
            self._learner.resume(*pointed)

    def _set_in_service(self, weights: bytes, manifest: ProceduralManifest) -> None:
        self._learner.resume(weights, manifest)
        self._offered_from = {}
        self._metrics.adapters_published("ok").inc()
        self._metrics.show_adapter(PROCEDURAL, manifest.version)
        log.info("tenant %s: adapter %d (%s) is published", self._tenant, manifest.ordinal, manifest.version[:12])

    def _data(self) -> tuple[DataRange, ...]:
        starts = sorted(self._offered_from.items())
        return tuple(DataRange(self.name, partition, start, self._read_to[partition]) for partition, start in starts)
