"""Train an adapter of a tenant from its newest sessions: from the log to versions in service.

A version is learned from the newest sessions of the log, whatever was published before. So there is nothing to commit:
a trainer that starts again reads these sessions once more and comes to the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from aiokafka import ConsumerRecord

from fleetlore.adapters.signatures import Manifest
from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import POLL_MS
from fleetlore.wire.adapter_manifest import DataRange
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.calls.gate import GateReport
from models.calls.window import SESSIONS, KeptSession, SessionWindow
from streams.stage.base import split
from streams.stage.operators import Erased
from streams.training.publication import Publication

__all__ = ["Decided", "WindowTrainer", "horizon_of", "train", "values_of"]

log = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value", Judgment, Trajectory)
# What the gate decided of a candidate, and its manifest where it passed.
Decided = tuple[GateReport, Manifest | None]

# How long after an erasure it looks again whether the version in service was revoked.
_FORGETTING_SECONDS = 60.0
# Of CPU, at once after a rest.
BURST_SECONDS = 5.0


class CpuBudget:
    """CPU seconds for training: `share` of a core in the long run, up to `burst_seconds` at once after a rest.

    A nice value alone does not bound it: the trainer would fill every gap in which other processes wait for each other.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share, self._burst = share, burst_seconds
        self._credit = burst_seconds
        self._last: tuple[float, float] | None = None

    def affords(self, now: float, spent: float) -> bool:
        """Return whether training may go on at the time `now`, with `spent` CPU seconds since the process began."""
        then, before = self._last or (now, spent)
        self._last = now, spent
        self._credit = min(self._burst, self._credit + self._share * (now - then) - (spent - before))
        return self._credit > 0


class WindowTrainer(ABC, Generic[Manifest]):
    """Learns one tenant's adapter anew from its newest sessions, and publishes what passes the gate.

    Attributes:
        name: topic of its sessions; `verdicts`: of the judgments that vote in a canary trial.
        cpu_seconds: what learning has cost so far.
        new_sessions: after so many it learns, or when the first of them has waited for `patience_seconds`.
    """

    new_sessions = 20
    patience_seconds = 5.0

    def __init__(
        self, publication: Publication[Manifest], *, horizon: int = SESSIONS, erased: Erased | None = None
    ) -> None:
        self.publication, tenant = publication, publication.tenant
        self.name, self.verdicts = topic(tenant, "trajectories"), topic(tenant, "judgments")
        self.cpu_seconds = 0.0
        self._tenant, self._metrics, self._clock = tenant, publication.metrics, publication.clock
        self._horizon = horizon
        self._erased = erased or Erased()
        self._erased_seen = self._erased.count
        self._forgetting_until = self._learned_at = 0.0
        self._window = SessionWindow()
        self._read_to: dict[int, int] = {}
        self._new = 0
        self._waiting_since = 0.0

    @abstractmethod
    def _learned(self, chosen: list[KeptSession]) -> bytes | None:
        """Weights of a version; None where there is nothing to learn. On a thread."""

    @abstractmethod
    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[Manifest]:
        """What the gate says of the version that was learned last. On a thread."""

    def _teaches(self, session: Trajectory) -> bool:
        """Whether the adapter can learn anything of a session."""
        return True

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.name, self.verdicts) if self.publication.canary_share > 0 else (self.name,)

    def take(self, record: ConsumerRecord) -> None:
        """Keep the sessions of a record, or count its verdicts in a trial."""
        self._metrics.received_records(record.topic).inc()
        if record.topic == self.verdicts:
            for judgment in values_of(record, Judgment) if self.publication.on_trial else ():
                self.publication.vote(judgment)
            return
        for session in values_of(record, Trajectory):
            if self._erased.holds(self._tenant, session.session) or not self._teaches(session):
                continue
            if self._window.add(session, record.partition, record.offset):
                self._metrics.trainer_sessions(self.publication.name).inc()
                self._waiting_since = self._waiting_since if self._new else self._clock.monotonic()
                self._new += 1
        self._read_to[record.partition] = record.offset + 1

    def due(self) -> bool:
        """Whether enough new sessions wait, or some have waited long enough, or some were erased."""
        now = self._clock.monotonic()
        if self._erased_seen != self._erased.count:
            return True
        if now < self._forgetting_until and now - self._learned_at >= self.patience_seconds:
            return True
        if self.publication.on_trial:
            return False
        waited = now - self._waiting_since
        enough = self._new >= self.new_sessions
        return enough or (self._new > 0 and waited >= self.patience_seconds)

    async def learn(self) -> None:
        """Learn a version of the window, and publish it if it passes the gate.

        Raises BrokerUnavailable; the sessions then still wait.
        """
        if self._erased_seen != self._erased.count:
            self._erased_seen = self._erased.count
            self._window.forget(lambda each: self._erased.holds(self._tenant, each.id))
            self._forgetting_until = self._clock.monotonic() + _FORGETTING_SECONDS
        if self._clock.monotonic() < self._forgetting_until:
            await self.publication.resume()  # what learned of it is being revoked
        for partition, offset in self._read_to.items():
            self._window.forget_before(partition, offset - self._horizon)
        chosen, began = self._window.chosen(), self._clock.monotonic()
        # On a thread, so that the connection's heartbeats go on.
        weights = await asyncio.to_thread(self._timed, self._learned, chosen)
        if weights is not None:
            self._metrics.trainer_updates(self.publication.name).inc()
            version, running = hashlib.sha256(weights).hexdigest(), self.publication.running
            if running is None or running[1].version != version:
                report, manifest = await asyncio.to_thread(self._timed, self._judged, weights, version, chosen)
                self._metrics.gate_decisions(report.reason).inc()
                seconds = self._clock.monotonic() - began
                log.info(
                    "tenant %s: a version of %d sessions in %.1f s: %s %s",
                    self._tenant,
                    len(chosen),
                    seconds,
                    report.reason,
                    report.figures,
                )
                if manifest is not None:
                    await self.publication.offer(weights, manifest, {each.agent for each in chosen})
        self._new = 0
        self._learned_at = self._clock.monotonic()

    def _timed(
        self, work: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result:
        began = time.thread_time()
        try:
            return work(*arguments, **named)
        finally:
            self.cpu_seconds += time.thread_time() - began

    def _stated(self, version: str, weights: bytes, figures: Mapping[str, float]) -> dict[str, Any]:
        """What a manifest of any adapter says; its ordinal and parent are known when it is offered."""
        firsts = sorted(self._window.first_offsets().items())
        return {
            "version": version,
            "ordinal": 0,
            "parent": None,
            "tenant": self._tenant,
            "size_bytes": len(weights),
            "data": tuple(DataRange(self.name, part, first, self._read_to[part]) for part, first in firsts),
            "metrics": {name: round(value, 6) for name, value in figures.items()},
            "created": self._clock.now(),
        }


def values_of(record: ConsumerRecord, kind: type[_Value]) -> list[_Value]:
    """The judgments, or the sessions, of a record.

    What else its topic holds is passed over, and what cannot be read: a trainer must not stop for a fault of the stage
    before.
    """
    found: list[_Value] = []
    try:
        for part in split(record.value or b""):
            with contextlib.suppress(ValueError):
                found.append(kind.from_json(part))
    except InvalidEvent as error:
        log.warning("%s in %s[%d]@%d", error, record.topic, record.partition, record.offset)
    return found


async def train(
    settings: Settings,
    trainers: Sequence[WindowTrainer[Manifest]],
    clock: Clock,
    spent: Callable[[], float] | None = None,
) -> None:
    """Feed trainers with their sessions and let them learn, until cancelled, across outages of the broker.

    What is read at the start is bounded: of each partition the newest records, in all as many as a window has sessions.

    Args:
        spent: CPU seconds that count against the trainer's share of a core; by default what these trainers spend.
    """
    budget = CpuBudget(settings.trainer_cpu_share, BURST_SECONDS)
    spent = spent or (lambda: sum(trainer.cpu_seconds for trainer in trainers))
    for trainer in trainers:
        await trainer.publication.resume()

    async def take(fetched: Fetched) -> None:
        for partition, records in fetched.items():
            for trainer in trainers:
                if partition.topic in trainer.topics:
                    for record in records:
                        trainer.take(record)
        for trainer in trainers:
            await trainer.publication.end_trial()
        # Not before: of a part of the log it would learn another version than the one in service.
        for trainer in trainers if follower.loaded else ():
            if trainer.due() and budget.affords(clock.monotonic(), spent()):
                await trainer.learn()

    follower = Follower(
        settings.cluster,
        sorted({name for trainer in trainers for name in trainer.topics}),
        take,
        what="sessions",
        fetch_wait_ms=settings.fetch_wait_ms,
        poll_ms=POLL_MS,
        newest=horizon_of(settings),
        clock=clock,
    )
    await follower.run()


def horizon_of(settings: Settings) -> int:
    """Records of a partition that a trainer goes back to."""
    return max(1, SESSIONS // settings.partitions)
