"""Run the role `trainer`: closed sessions in, signed adapter versions out.

Each tenant has two adapters here: the call model, and the retrieval adapter, which takes torch. Both are learned anew
from the newest sessions of the log, so there are no offsets to commit, and a killed trainer goes on where the log is.
They take a bounded share of a core; the retrieval adapter gets what the call model leaves of it.
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
from typing import TYPE_CHECKING

import orjson

from fleetlore.calls.model import CallModel
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.retrieval.adapter import RetrievalAdapter, probe_answers, tensor_shapes
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.wire.adapter_manifest import CallsManifest, Probe, RetrievalManifest
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.adapter.pairs import Case, cases_of
from models.calls.gate import GateReport, judge_candidate
from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import KeptSession
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.lifecycle import at_first_signal
from streams.stage.operators import Erased
from streams.training.publication import Publication
from streams.training.window import Decided, WindowTrainer, horizon_of, train

if TYPE_CHECKING:
    from models.adapter.contrastive import TrainedRetrieval

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
_PROBE_SEED = 1
# Learning takes seconds for each thousand cases; the newest say most.
_MOST_CASES = 1_000


class RetrievalTrainer(WindowTrainer[RetrievalManifest]):
    """Learns of the sessions in which a call failed and the next one of its tool that worked held something new."""

    # Cases are rarer than sessions, and learning them costs more.
    new_sessions = 50
    patience_seconds = 60.0
    _candidate: TrainedRetrieval

    def _teaches(self, session: Trajectory) -> bool:
        return next(cases_of(session), None) is not None

    def _learned(self, chosen: list[KeptSession]) -> bytes | None:
        candidate = _learned(_newest(chosen)[0])
        if candidate is None:
            return None
        self._candidate = candidate
        return candidate.weights

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[RetrievalManifest]:
        import torch

        from models.adapter.gate import judge_retrieval

        encoder = shared_encoder()
        cases, ended = _newest(chosen)

        def learn(some: Sequence[Case]) -> RetrievalAdapter | None:
            trained = _learned(some)
            return trained and trained.adapter(encoder.dimensions)

        published, until = None, 0.0
        if self.publication.running is not None:
            running, manifest = self.publication.running
            if manifest.encoder_sha256 == encoder.sha256:
                published = RetrievalAdapter(running, manifest.rank, manifest.scale, encoder.dimensions)
                until = manifest.until
        report = judge_retrieval(cases, learn, encoder, published, until, ended)
        if not report.passed:
            return report, None
        candidate, config = self._candidate, self._candidate.config
        probe = probe_answers(candidate.adapter(encoder.dimensions), _PROBE_SEED, encoder.dimensions)
        manifest = RetrievalManifest(
            **self._stated(version, weights, report.figures),
            sessions=len({case.session for case in cases}),
            agents=len({case.agent for case in cases}),
            tools=tuple(sorted({case.tool for case in cases})),
            pairs=candidate.pairs,
            until=max(ended),
            encoder=encoder.name,
            encoder_sha256=encoder.sha256,
            rank=config.rank,
            alpha=config.alpha,
            tensors=dict(tensor_shapes(config.rank, encoder.dimensions)),
            probe=Probe(_PROBE_SEED, probe),
            torch=str(torch.__version__),
        )
        return report, manifest


def _learned(cases: Sequence[Case]) -> TrainedRetrieval | None:
    """Learn a version; None where no case is answered by another."""
    # Importing torch takes seconds of CPU: not before there is something to learn.
    import torch

    from models.adapter.contrastive import train

    # Two threads add up in another order than one, and another last bit is another hash. And they would spin while
    # other processes need the cores.
    torch.set_num_threads(1)
    return train(cases, shared_encoder())


def _newest(chosen: Sequence[KeptSession]) -> tuple[list[Case], list[float]]:
    """The last cases of sessions, and when the session of each ended."""
    sessions = [each.session() for each in chosen]
    found = [(case, session.ended) for session in sessions for case in cases_of(session)][-_MOST_CASES:]
    return [case for case, _ in found], [ended for _, ended in found]


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
        report, candidate = self._report(chosen), self._candidate
        if not report.passed:
            return report, None
        manifest = CallsManifest(
            **self._stated(version, weights, report.figures),
            sessions=candidate.sessions,
            agents=candidate.agents,
            tools=candidate.tools,
            calls=candidate.calls,
        )
        return report, manifest

    def _report(self, chosen: Sequence[KeptSession]) -> GateReport:
        if self.publication.running is None:
            return judge_candidate(self._candidate.foreseen)
        weights, manifest = self.publication.running
        until = CallModel.from_bytes(weights).until
        report = judge_candidate(
            self._candidate.foreseen, weights, (each.session() for each in chosen if each.ended > until)
        )
        if (
            report.passed
            and self._candidate.sessions < manifest.sessions
            and "log_loss_published" not in report.figures
        ):
            # The log lost what the published version learned. One that knows less must be measured against it.
            return GateReport("too_few", report.figures)
        return report


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
    """Count the versions that agents refused, until cancelled, across outages of the broker: agents export no metrics.

    Counted from the end of `adapters.acks` at the start; `fleetlore adapters show` lists earlier refusals.
    """

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
    with metrics.serve(settings.metrics_port, settings.metrics_host, health):
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
            horizon = horizon_of(settings)
            calls_trainers = [
                CallsTrainer(Publication(tenant, calls, metrics, clock), horizon=horizon, erased=erased)
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
                published = [
                    Publication(tenant, retrieval, metrics, clock, settings.canary_share) for tenant in settings.tenants
                ]
                retrieval_trainers = [RetrievalTrainer(each, horizon=horizon, erased=erased) for each in published]
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


def _is_installed(package: str) -> bool:
    """Whether it can be imported; torch is not imported for that, which takes seconds of CPU."""
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False
