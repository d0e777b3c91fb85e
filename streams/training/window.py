"""Train a tenant's adapter from its newest sessions, within the process's share of a core.

The trainer commits no offsets: a restart reads the newest sessions again and makes the same bytes.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic

from aiokafka import ConsumerRecord
from msgspec.structs import replace

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.kafka.client import backoff
from fleetlore.kafka.read import Fetched, Follower, records_of
from fleetlore.wire.adapter_manifest import DataRange, Manifest
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.calls.gate import GateReport
from models.calls.window import SESSIONS, KeptSession, SessionWindow, first_offsets
from streams.stage.base import readable
from streams.stage.operators import Erased
from streams.training.publication import Publication

__all__ = ["judged_sessions"]

# CPU seconds at once after a rest. A share of .25 then stays below .30 of a core in any 10 s.
_BURST_SECONDS = 0.15
# The process counts as rested at this share of the burst, because asking costs some of it.
_RESTED = 0.9
# Reading goes before learning: it waits only for a longer debt.
_READING_DEBT_SECONDS = 0.25


@dataclass(eq=False)
class CpuBudget:
    """CPU seconds of this process: `share` of a core, and a burst after a rest.

    A nice value does not bound the share: the trainer would fill every gap in which others wait. Learners call `pace`
    after each small piece of work, which returns once all that is `spent` is paid.
    """

    share: float
    _: KW_ONLY
    burst_seconds: float = _BURST_SECONDS
    clock: Clock = field(default_factory=SystemClock)
    spent: Callable[[], float] = time.process_time
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._credit = self.burst_seconds
        self._last = self.clock.monotonic(), self.spent()
        self._lock = threading.Lock()

    def debt_seconds(self, reserve: float = 0.0) -> float:
        """Return how long to rest until the share has paid for what was spent, and a reserve."""
        with self._lock:
            now, spent = self.clock.monotonic(), self.spent()
            then, before = self._last
            self._last = now, spent
            # A rest earns at most the burst; the work is paid afterwards.
            self._credit = min(self.burst_seconds, self._credit + self.share * (now - then)) - (spent - before)
            return max(0.0, (reserve - self._credit) / self.share)

    def reading_debt_seconds(self) -> float:
        return max(0.0, self.debt_seconds() - _READING_DEBT_SECONDS)

    def pace(self, reserve: float = 0.0) -> None:
        """Block the calling thread until nothing is owed, and a reserve is earned."""
        while (debt := self.debt_seconds(reserve)) > 0:
            self.sleep(max(debt, 0.001))

    def pace_last(self) -> None:
        """Block the calling thread until the burst is earned, so that other learners go first."""
        self.pace(_RESTED * self.burst_seconds)

    @contextlib.contextmanager
    def paced_imports(self) -> Iterator[None]:
        """Call `pace_last` before each import on this thread: torch takes seconds of CPU in one go."""
        thread, pace = threading.get_ident(), self.pace_last

        class Pace:
            @staticmethod
            def find_spec(*_: Any) -> None:
                if threading.get_ident() == thread:
                    pace()

        sys.meta_path.insert(0, Pace)
        try:
            yield
        finally:
            sys.meta_path.remove(Pace)


log = logging.getLogger(__name__)

# The gate's decision, and the manifest of a candidate that passed.
Decided = tuple[GateReport, Manifest | None]

# After an erasure, it checks for so long whether the version in service was revoked.
_FORGETTING_SECONDS = 60.0
_LOOK_SECONDS = 0.5
# Times the window that a restart reads: one agent may have sent most records, and keeps a quarter of the window.
_READ_AGAIN = 4


class WindowTrainer(ABC, Generic[Manifest]):
    """Learns one tenant's adapter, and publishes what passes the gate.

    It learns after `new_sessions`, or when the first has waited for `patience_seconds`. `name`: topic of its sessions;
    `verdicts`: of their judgments.
    """

    new_sessions = 20
    patience_seconds = 5.0

    def __init__(
        self,
        publication: Publication[Manifest],
        *,
        sessions: int = SESSIONS,
        erased: Erased | None = None,
        budget: CpuBudget | None = None,
    ) -> None:
        self.publication, tenant = publication, publication.tenant
        self.name, self.verdicts = topic(tenant, "trajectories"), topic(tenant, "judgments")
        self._tenant, self._metrics, self._clock = tenant, publication.metrics, publication.clock
        self._budget = budget or CpuBudget(1.0, burst_seconds=math.inf)
        self._erased = erased or Erased()
        self._erased_seen = self._erased.count
        self._forgetting_until = self._learned_at = 0.0
        self._window = SessionWindow(sessions)
        self._read_to: dict[int, int] = {}
        self._new = 0
        self._waiting_since = 0.0

    @abstractmethod
    def _learned(self, chosen: list[KeptSession]) -> bytes | None:
        """Return the weights of a version, or None without a lesson. On a thread, which calls `pace`."""

    @abstractmethod
    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[Manifest]:
        """The gate's decision on the last version. On a thread."""

    def _forget(self) -> None:
        """Drop what was learned: a session was erased."""

    def _is_behind(self) -> bool:
        return False

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.name,)

    def judge(self, judgment: Judgment) -> None:
        """Read a session's verdict."""

    def add(self, session: Trajectory, partition: int, offset: int) -> None:
        self._read_to[partition] = offset + 1
        if self._is_erased(session):
            return
        if self._window.add(session, partition, offset):
            self._metrics.trainer_sessions.labels(self.publication.name).inc()
            self._waiting_since = self._waiting_since if self._new else self._clock.monotonic()
            self._new += 1

    def _is_erased(self, session: Trajectory) -> bool:
        return self._erased.holds(self._tenant, session.agent, session.session)

    def due(self) -> bool:
        now = self._clock.monotonic()
        if self._erased_seen != self._erased.count:
            return True
        if now < self._forgetting_until and now - self._learned_at >= self.patience_seconds:
            return True
        if self.publication.on_trial:
            return False
        waited = now - self._waiting_since
        enough = self._new >= self.new_sessions
        return enough or (self._new > 0 and waited >= self.patience_seconds) or self._is_behind()

    async def learn(self) -> None:
        """Learn a version, and publish it if it passes. Raises BrokerUnavailable; the sessions then wait."""
        new, self._new = self._new, 0  # later sessions are of the next version
        try:
            await self._learn()
        except BaseException:
            self._new += new
            raise
        self._learned_at = self._clock.monotonic()

    async def _learn(self) -> None:
        if self._erased_seen != self._erased.count:
            self._erased_seen = self._erased.count
            self._window.forget(lambda each: self._is_erased(each.session()))
            self._forget()
            self._forgetting_until = self._clock.monotonic() + _FORGETTING_SECONDS
        if self._clock.monotonic() < self._forgetting_until:
            await self.publication.resume()  # what learned of it is being revoked
        chosen, began = self._window.chosen(), self._clock.monotonic()
        # A thread lets heartbeats and reading go on.
        weights = await asyncio.to_thread(self._learned, chosen)
        if weights is None:
            return
        self._metrics.trainer_updates.labels(self.publication.name).inc()
        version, running = hashlib.sha256(weights).hexdigest(), self.publication.running
        if running is not None and running[1].version == version:
            return
        report, manifest = await asyncio.to_thread(self._judged, weights, version, chosen)
        self._metrics.gate_decisions.labels(report.reason).inc()
        seconds = self._clock.monotonic() - began
        message = "tenant %s: a version of a window of %d sessions in %.1f s: %s %s"
        log.info(message, self._tenant, len(chosen), seconds, report.reason, report.figures)
        if manifest is not None:
            await self.publication.offer(weights, manifest, {each.agent for each in chosen})

    def _stated(
        self, version: str, weights: bytes, figures: Mapping[str, float], sessions: Iterable[KeptSession]
    ) -> dict[str, Any]:
        firsts = sorted(first_offsets(sessions).items())
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


def take(trainers: Sequence[WindowTrainer[Any]], record: ConsumerRecord) -> None:
    readers = [each for each in trainers if record.topic in each.topics]
    learners = [each for each in readers if each.name == record.topic]
    for session in readable(record.value, Trajectory.from_json) if learners else ():
        for trainer in () if session.is_open else learners:
            trainer.add(session, record.partition, record.offset)
    for judgment in readable(record.value, Judgment.from_json) if readers and not learners else ():
        for trainer in readers:
            trainer.judge(judgment)


async def train(settings: Settings, clock: Clock, budget: CpuBudget, *groups: Sequence[WindowTrainer[Any]]) -> None:
    """Feed trainers and let them learn, until cancelled, across outages of the broker.

    Trainers of one of the `groups` learn one after the other.
    """
    trainers = [trainer for group in groups for trainer in group]
    metrics = {trainer.publication.metrics for trainer in trainers}
    for trainer in trainers:
        await trainer.publication.resume()

    async def read(fetched: Fetched) -> None:
        for partition, records in fetched.items():
            for each in metrics:
                each.received_records.labels(partition.topic).inc(len(records))
            for record in records:
                if (debt := budget.reading_debt_seconds()) > 0:
                    await asyncio.sleep(debt)
                take(trainers, record)

    async def learn(group: Sequence[WindowTrainer[Any]]) -> None:
        delays = backoff()
        while True:
            try:
                for trainer in group:
                    await trainer.publication.end_trial()
                    # A part of the log would give another version.
                    if follower.loaded and trainer.due():
                        await trainer.learn()
                delays, pause = backoff(), _LOOK_SECONDS
            except Exception as failure:  # the sessions wait, and the process goes on
                pause = next(delays)
                log.warning("no version of %s could be made: %r; trying again", trainer.publication.name, failure)
            await asyncio.sleep(pause)

    names = sorted({name for trainer in trainers for name in trainer.topics})
    wait_ms, newest = settings.fetch_wait_ms, max(1, _READ_AGAIN * SESSIONS // settings.partitions)
    follower = Follower(
        settings.cluster, names, read, what="sessions", fetch_wait_ms=wait_ms, newest=newest, clock=clock
    )
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(learn(group))
        await follower.run()


async def judged_sessions(settings: Settings, tenant: str) -> list[Judgment]:
    """The newest judgment of each session in the log, without erased ones, sorted by id.

    A judgment holds a digest, and `trajectories` the session. Once that has expired, longer texts are cut.
    """
    erased = Erased()
    await erased.read(settings.cluster, [tenant])
    judged: dict[str, Judgment] = {}
    async for record in records_of(settings.cluster, topic(tenant, "judgments")):
        for judgment in readable(record.value, Judgment.from_json):
            session = judgment.trajectory
            known = judged.get(session.id)
            # On equal revisions the later counts: the session was judged again.
            if known is None or session.revision >= known.trajectory.revision:
                judged[session.id] = judgment
    for id, session in [(id, each.trajectory) for id, each in judged.items()]:
        if erased.holds(tenant, session.agent, session.session):
            del judged[id]
    async for record in records_of(settings.cluster, topic(tenant, "trajectories")):
        for whole in readable(record.value, Trajectory.from_json):
            digest = judged.get(whole.id)
            if digest is not None and not whole.is_open and whole.events == digest.trajectory.events:
                judged[whole.id] = replace(digest, trajectory=whole)
    return [judged[id] for id in sorted(judged)]
