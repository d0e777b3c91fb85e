"""Run the role `trainer`: closed sessions in, signed adapter versions out.

Each tenant has two adapters here: the call model (`streams.training.trainer`) and the retrieval adapter
(`streams.training.retrieval`), which takes torch. Both are learned anew from the newest sessions of the log, so there
are no offsets to commit, and a killed trainer goes on where the log is. They take a bounded share of a core; the
retrieval adapter gets what the call model leaves of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from fleetlore.calls.model import CallModel
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.adapter_manifest import CallsManifest, RetrievalManifest
from fleetlore.wire.topics import topic
from models.calls.gate import CallsReport, judge_candidate
from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import KeptSession
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.lifecycle import at_first_signal
from streams.stage.erased import Erased
from streams.training.publication import Describe, Publication
from streams.training.retrieval import RetrievalTrainer
from streams.training.window import Decided, WindowTrainer, horizon_of, train

__all__ = ["run_trainer"]

log = logging.getLogger(__name__)

_AUTOGROUP = Path("/proc/self/autogroup")
# The workers on the same cores go first. How much it takes is bounded by `trainer_cpu_share`: a process of niceness 19
# would get next to nothing where they are busy.
_NICENESS = 5
# What the retrieval adapter is learned with.
_LEARNING = ("torch", "peft", "fleetlore_encoder")

# Refusals are not urgent, and each waiting fetch costs the broker some work.
_FETCH_WAIT_MS = 2_000
# The reasons of `AdapterRefused`. They bound the values of the label: clients control the acks.
REASONS = frozenset(
    [
        "foreign",
        "malformed",
        "missing",
        "not_allowed",
        "not_finite",
        "outranked",
        "oversized",
        "probe",
        "schema",
        "stale",
        "structure",
        "tampered",
        "truncated",
        "unknown_key",
        "unreachable",
        "unwritable",
    ]
)
_ACCEPTED = frozenset({"applied", "revoked"})


# Train the call model of a tenant: from closed sessions to versions in service.
class CallsTrainer(WindowTrainer[CallsManifest]):
    """Learns on where all that came is newer than what was learned; it gives the same version as to begin anew."""

    _candidate: TrainedCalls
    _training: CallTraining | None = None
    _sessions: Sequence[KeptSession] = ()

    def _learned(self, chosen: list[KeptSession]) -> bytes:
        if self._training is None or chosen[: len(self._sessions)] != self._sessions:
            self._training, self._sessions = CallTraining(), []
        for each in chosen[len(self._sessions) :]:
            self._training.learn(each.session())
        self._sessions = chosen
        self._candidate = self._training.version()
        return self._candidate.weights

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[CallsManifest]:
        report = self._report(chosen)
        return Decided(report.reason, report.figures, self._described(version, report) if report.passed else None)

    def _report(self, chosen: Sequence[KeptSession]) -> CallsReport:
        if self.publication.running is None:
            return judge_candidate(self._candidate)
        weights, manifest = self.publication.running
        until = CallModel.from_bytes(weights).until
        report = judge_candidate(self._candidate, weights, (each.session() for each in chosen if each.ended > until))
        if (
            report.passed
            and self._candidate.sessions < manifest.sessions
            and "log_loss_published" not in report.figures
        ):
            # The log lost what the published version learned. One that knows less must be measured against it.
            return CallsReport("too_few", report.figures)
        return report

    def _described(self, version: str, report: CallsReport) -> Describe[CallsManifest]:
        candidate = self._candidate

        def describe(ordinal: int, parent: str | None) -> CallsManifest:
            return CallsManifest(
                version=version,
                ordinal=ordinal,
                parent=parent,
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

        return describe


# Count the adapter versions that agents refused, as a metric to alert on: agents export no metrics.
#
# Agents report on `adapters.acks` whether they run a version. The trainer follows these topics from their end at its
# start. `fleetlore adapters show` lists earlier refusals.
def refusal_of(ack: bytes | None) -> str | None:
    """Return the reason of a refusal, `other` if it is unknown; None for an ack of no refusal."""
    try:
        result = orjson.loads(ack or b"null")["result"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if not isinstance(result, str) or result in _ACCEPTED:
        return None
    return result if result in REASONS else "other"


async def count_refusals(settings: Settings, tenants: Iterable[str], metrics: Metrics) -> None:
    """Count until cancelled, across outages of the broker."""

    async def count(fetched: Fetched) -> None:
        for record in (record for records in fetched.values() for record in records):
            if (reason := refusal_of(record.value)) is not None:
                metrics.adapters_refused(reason).inc()

    names = [topic(tenant, "adapters.acks") for tenant in tenants]
    await Follower(settings.cluster, names, count, what="acks", fetch_wait_ms=_FETCH_WAIT_MS, newest=0).run()


async def run_trainer(settings: Settings, *, niceness: int = _NICENESS) -> None:
    """Train until SIGTERM or SIGINT, then return; see `streams.runtime.lifecycle`.

    What is being learned then is dropped, and the next trainer learns it again. Its thread goes on, so end the process
    then. Without torch and peft only the call model is trained.

    Raises ConfigError without a signing key, BrokerUnavailable if the broker does not answer at the start.
    """
    stop = asyncio.Event()
    at_first_signal(asyncio.get_running_loop(), stop.set, settings.drain_seconds)
    metrics, health, clock = Metrics("trainer"), Readiness("broker"), SystemClock()
    endpoint = metrics.serve(settings.metrics_port, settings.metrics_host, health)
    try:
        async with (
            AdapterPublisher.from_settings(CallsManifest, settings) as calls,
            AdapterPublisher.from_settings(RetrievalManifest, settings) as retrieval,
        ):
            erased = Erased()
            await erased.read(settings.cluster, settings.tenants)
            # Settings are right and the broker answers: what is wrong of them is said at once.
            os.nice(niceness)
            with contextlib.suppress(OSError):
                # If Linux groups processes by session, a nice value counts within the session only, and each role is
                # one.
                _AUTOGROUP.write_text(str(niceness))
            horizon, share = horizon_of(settings), settings.canary_share
            calls_trainers = [
                CallsTrainer(
                    tenant, Publication(tenant, calls, metrics, clock), metrics, clock, horizon=horizon, erased=erased
                )
                for tenant in settings.tenants
            ]
            work = [
                erased.follow(settings.cluster, settings.tenants, clock, settings.fetch_wait_ms),
                count_refusals(settings, settings.tenants, metrics),
                train(settings, calls_trainers, clock),
                health.keep_beating(),
            ]
            missing = [name for name in _LEARNING if not _is_installed(name)]
            if missing:
                log.warning("only the call model is trained: the retrieval adapter needs %s", ", ".join(missing))
            else:
                retrieval_trainers = [
                    RetrievalTrainer(
                        tenant,
                        Publication(tenant, retrieval, metrics, clock, share),
                        metrics,
                        clock,
                        horizon=horizon,
                        erased=erased,
                    )
                    for tenant in settings.tenants
                ]
                work.append(train(settings, retrieval_trainers, clock, time.process_time))
            running = [asyncio.create_task(each) for each in work]
            stopping = asyncio.create_task(stop.wait())
            health.ready("broker")
            await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
            health.unready("broker", "stopping")
            for task in running:
                if task.done():
                    task.result()  # they end by errors only
            for ended in (stopping, *running):
                ended.cancel()
    finally:
        endpoint.close()


def _is_installed(package: str) -> bool:
    """Whether it can be imported; torch is not imported for that, which takes seconds of CPU."""
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False
