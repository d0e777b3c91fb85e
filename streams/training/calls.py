"""Train the call model of a tenant: from closed sessions to versions in service.

A version is learned from the newest sessions of the log, whatever was published before. So there is nothing to commit:
a trainer that starts again reads these sessions once more and comes to the same bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from aiokafka import ConsumerRecord

from fleetlore.calls.model import CallModel
from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import ChannelMoved, InvalidEvent
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import POLL_MS
from fleetlore.wire.adapter_manifest import CALLS, CallsManifest, DataRange
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.calls.gate import CallsReport, judge_candidate
from models.calls.thresholds import CallsForeseen
from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import SESSIONS, KeptSession, SessionWindow
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics
from streams.stage.base import split
from streams.stage.erased import Erased
from streams.training.backlog import BURST_SECONDS, CpuBudget

log = logging.getLogger(__name__)

# How long after an erasure it looks again whether the version in service was revoked.
FORGETTING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CallsCadence:
    """When to learn: after so many new sessions, or when the first of them has waited so long."""

    new_sessions: int = 20
    patience_seconds: float = 5.0


class CallsTrainer:
    """Learns one tenant's call model anew from its newest sessions, and publishes what passes the gate.

    Attributes:
        name: topic of its sessions.
        cpu_seconds: what learning has cost so far.
    """

    def __init__(
        self,
        tenant: str,
        publisher: AdapterPublisher[CallsManifest],
        metrics: Metrics,
        clock: Clock,
        *,
        horizon: int = SESSIONS,
        cadence: CallsCadence | None = None,
        erased: Erased | None = None,
        foreseen: CallsForeseen | None = None,
    ) -> None:
        self._erased = erased or Erased()
        self._foreseen = {} if foreseen is None else foreseen
        self._erased_seen = self._erased.count
        self._forgetting_until = self._learned_at = 0.0
        self.name = topic(tenant, "trajectories")
        self.cpu_seconds = 0.0
        self._tenant = tenant
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock
        self._horizon = horizon
        self._cadence = cadence or CallsCadence()
        self._window = SessionWindow()
        self._read_to: dict[int, int] = {}
        self._new = 0
        self._waiting_since = 0.0
        self._running: tuple[bytes, CallsManifest] | None = None
        self._training = CallTraining()
        self._learned: list[KeptSession] = []

    async def resume(self) -> None:
        """Look which version is in service."""
        await self._publisher.restate(self._tenant)
        self._running = (await self._publisher.published(self._tenant)).complete()
        if self._running is not None:
            self._metrics.show_adapter(CALLS, self._running[1].version)

    def take(self, record: ConsumerRecord) -> None:
        """Keep the sessions of a record."""
        self._metrics.received_records(record.topic).inc()
        for session in trajectories_of(record):
            if self._erased.holds(self._tenant, session.session):
                continue
            if self._window.add(session, record.partition, record.offset):
                self._waiting_since = self._waiting_since if self._new else self._clock.monotonic()
                self._new += 1
        self._read_to[record.partition] = record.offset + 1

    def due(self) -> bool:
        """Whether enough new sessions wait, or some have waited long enough, or some were erased."""
        now = self._clock.monotonic()
        if self._erased_seen != self._erased.count:
            return True
        if now < self._forgetting_until and now - self._learned_at >= self._cadence.patience_seconds:
            return True
        waited = now - self._waiting_since
        enough = self._new >= self._cadence.new_sessions
        return enough or (self._new > 0 and waited >= self._cadence.patience_seconds)

    async def learn(self) -> None:
        """Learn a version of the window, and publish it if it passes the gate.

        Raises BrokerUnavailable; the sessions then still wait.
        """
        if self._erased_seen != self._erased.count:
            self._erased_seen = self._erased.count
            self._window.forget(lambda each: self._erased.holds(self._tenant, each.id))
            self._forgetting_until = self._clock.monotonic() + FORGETTING_SECONDS
        if self._clock.monotonic() < self._forgetting_until:
            await self.resume()  # what learned of it is being revoked
        for partition, offset in self._read_to.items():
            self._window.forget_before(partition, offset - self._horizon)
        chosen, began = self._window.chosen(), self._clock.monotonic()
        # On a thread, so that the connection's heartbeats go on.
        candidate = await asyncio.to_thread(self._trained, chosen)
        self._foreseen[self._tenant] = candidate.foreseen
        version = hashlib.sha256(candidate.weights).hexdigest()
        if self._running is None or self._running[1].version != version:
            report = await asyncio.to_thread(self._judged, candidate, chosen)
            self._metrics.gate_decisions(report.reason).inc()
            seconds = self._clock.monotonic() - began
            log.info("tenant %s: call model of %d sessions in %.1f s: %s", self._tenant, len(chosen), seconds, report)
            if report.passed:
                await self._publish(candidate, version, report)
        self._new = 0
        self._learned_at = self._clock.monotonic()

    def _trained(self, chosen: list[KeptSession]) -> TrainedCalls:
        """Learn on where all that came is newer than what was learned; it gives the same version as to begin anew."""
        began = time.thread_time()
        if chosen[: len(self._learned)] != self._learned:
            self._training, self._learned = CallTraining(), []
        for each in chosen[len(self._learned) :]:
            self._training.learn(each.session())
        self._learned = chosen
        candidate = self._training.version()
        self.cpu_seconds += time.thread_time() - began
        return candidate

    def _judged(self, candidate: TrainedCalls, chosen: Sequence[KeptSession]) -> CallsReport:
        if self._running is None:
            return judge_candidate(candidate)
        weights, manifest = self._running
        until = CallModel.from_bytes(weights).until
        report = judge_candidate(candidate, weights, (each.session() for each in chosen if each.ended > until))
        if report.passed and candidate.sessions < manifest.sessions and "log_loss_published" not in report.figures:
            # The log lost what the published version learned. One that knows less must be measured against it.
            return CallsReport("too_few", report.figures)
        return report

    async def _publish(self, candidate: TrainedCalls, version: str, report: CallsReport) -> None:
        published = await self._publisher.published(self._tenant)
        pointed = published.complete()
        pinned = published.pointer is not None and published.pointer.pinned
        if pinned or (
            pointed is not None and (self._running is None or pointed[1].version != self._running[1].version)
        ):
            log.info("tenant %s: a person or another trainer pointed the call model elsewhere", self._tenant)
            self._running = pointed
            return
        if published.revoked(version):
            return
        manifest = CallsManifest(
            version=version,
            ordinal=max((known.ordinal for known in published.versions.values()), default=0) + 1,
            parent=pointed[1].version if pointed is not None else None,
            tenant=self._tenant,
            size_bytes=len(candidate.weights),
            data=self._data(),
            sessions=candidate.sessions,
            agents=candidate.agents,
            tools=candidate.tools,
            metrics={name: round(value, 6) for name, value in report.figures.items()},
            created=self._clock.now(),
            calls=candidate.calls,
        )
        try:
            await self._publisher.publish(candidate.weights, manifest, known=published)
        except ChannelMoved:
            await self.resume()
            return
        self._running = candidate.weights, manifest
        self._metrics.adapters_published("ok").inc()
        self._metrics.show_adapter(CALLS, version)
        log.info("tenant %s: call model %d (%s) is published", self._tenant, manifest.ordinal, version[:12])

    def _data(self) -> tuple[DataRange, ...]:
        firsts = sorted(self._window.first_offsets().items())
        return tuple(DataRange(self.name, part, first, self._read_to[part]) for part, first in firsts)


def trajectories_of(record: ConsumerRecord) -> list[Trajectory]:
    """Return the sessions of a record of `trajectories`; what else that topic holds is passed over."""
    try:
        parts = split(record.value or b"")
    except InvalidEvent as error:
        log.warning("%s in %s[%d]@%d", error, record.topic, record.partition, record.offset)
        return []
    sessions = []
    for part in parts:
        try:
            sessions.append(Trajectory.from_json(part))
        except msgspec.DecodeError as error:
            log.debug("no session in %s[%d]@%d: %s", record.topic, record.partition, record.offset, error)
    return sessions


async def train_calls(
    settings: Settings,
    publisher: AdapterPublisher[CallsManifest],
    metrics: Metrics,
    clock: Clock,
    cadence: CallsCadence | None = None,
    erased: Erased | None = None,
    foreseen: CallsForeseen | None = None,
) -> None:
    """Train the call models of the settings' tenants until cancelled, across outages of the broker.

    It writes to `foreseen` what the LoRA is held against.

    What is read at the start is bounded: of each partition the newest records, in all as many as a window has sessions.
    The LoRA, whose budget counts the whole process, gets what this leaves of the trainer's share of a core.
    """
    budget = CpuBudget(settings.trainer_cpu_share, BURST_SECONDS)
    horizon = max(1, SESSIONS // settings.partitions)
    trainers = {
        each.name: each
        for each in (
            CallsTrainer(
                tenant, publisher, metrics, clock, horizon=horizon, cadence=cadence, erased=erased, foreseen=foreseen
            )
            for tenant in settings.tenants
        )
    }
    for trainer in trainers.values():
        await trainer.resume()

    async def take(fetched: Fetched) -> None:
        for partition, records in fetched.items():
            for record in records:
                trainers[partition.topic].take(record)
        # Not before: of a part of the log it would learn another version than the one in service.
        spent = sum(trainer.cpu_seconds for trainer in trainers.values())
        if follower.loaded and budget.affords(clock.monotonic(), spent):
            for trainer in trainers.values():
                if trainer.due():
                    await trainer.learn()

    follower = Follower(
        settings.cluster,
        list(trainers),
        take,
        what="trajectories",
        fetch_wait_ms=settings.fetch_wait_ms,
        poll_ms=POLL_MS,
        newest=horizon,
        clock=clock,
    )
    await follower.run()
