"""Run the role `trainer`: closed sessions in, signed adapter versions out."""

import asyncio
import contextlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from fleetlore.calls.model import CallModel
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.wire.adapter_manifest import CallsManifest, LanguageModelManifest
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.calls.gate import GateReport, judge_candidate
from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import KeptSession, Passes
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.stage.operators import Erased
from streams.training.policy import PolicyTrainer
from streams.training.publication import Publication
from streams.training.window import CpuBudget, Decided, WindowTrainer, train

__all__ = ["run_trainer"]

log = logging.getLogger(__name__)

_AUTOGROUP = Path("/proc/self/autogroup")
# Workers on the same cores go first. With niceness 19 it would get nearly nothing beside busy ones.
_NICENESS = 5
_LEARNING = ("torch", "peft", "transformers")

# Refusals are not urgent, and each waiting fetch costs the broker some work.
_FETCH_WAIT_MS = 2_000
# The reasons of `AdapterRefused`, which bound the values of the label: clients control the acks.
REASONS = frozenset([
    "foreign", "malformed", "missing", "not_allowed", "not_finite", "outranked", "oversized", "schema", "stale",
    "structure", "tampered", "truncated", "unknown_key", "unreachable", "unwritable",
])  # fmt: skip
_ACCEPTED = frozenset({"applied", "revoked"})
# The call model learns about so long before it makes a version, and at most so long if slower.
_SLICE_SECONDS, _LONGEST_SLICE_SECONDS = 2.0, 3.0
# CPU of a session until a slice has measured it.
_SESSION_CPU_SECONDS = 0.01
_SEVERAL = 2


class CallsTrainer(WindowTrainer[CallsManifest]):
    """Learns in slices, so that the newest sessions count soon, however many there are."""

    _candidate: TrainedCalls

    def __init__(
        self,
        publication: Publication[CallsManifest],
        training: Callable[[], CallTraining] = CallTraining,
        **options: Any,
    ) -> None:
        super().__init__(publication, **options)
        self._training = training
        self._passes = Passes(training)
        self._per_second = self._budget.share / _SESSION_CPU_SECONDS
        self._behind = False

    def _forget(self) -> None:
        self._passes = Passes(self._training)

    def _is_behind(self) -> bool:
        return self._behind

    def _learned(self, chosen: list[KeptSession]) -> bytes:
        began = self._clock.monotonic()
        learned = self._passes.learn(
            chosen,
            max(1, int(_SLICE_SECONDS * self._per_second)),
            self._budget.pace,
            lambda: self._clock.monotonic() - began > _LONGEST_SLICE_SECONDS,
        )
        self._behind = self._passes.sessions != chosen
        # A shorter slice may have lived on the burst.
        if (seconds := self._clock.monotonic() - began) >= 1.0:
            self._per_second = learned / seconds
        self._candidate = self._passes.version()
        self._budget.pace()
        if self._candidate.sessions:
            self._metrics.trainer_newest_session.labels(self._tenant).set(self._passes.sessions[-1].ended)
        return self._candidate.weights

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[CallsManifest]:
        report, candidate = self._report(), self._candidate
        self._budget.pace()
        if not report.passed:
            return report, None
        manifest = CallsManifest(
            **self._stated(version, weights, report.figures, self._passes.sessions),
            sessions=candidate.sessions,
            agents=candidate.agents,
            tools=candidate.tools,
            calls=candidate.calls,
        )
        return report, manifest

    def _report(self) -> GateReport:
        if self.publication.running is None:
            return judge_candidate(self._candidate.foreseen)
        weights, manifest = self.publication.running
        try:
            until = CallModel.from_bytes(weights).until
        except ValueError as error:
            log.warning("tenant %s: %s cannot be read and counts as none: %s", self._tenant, manifest.version, error)
            return judge_candidate(self._candidate.foreseen)
        report = judge_candidate(self._candidate.foreseen, weights, self._since(until))
        if report.passed and self._candidate.agents < _SEVERAL <= manifest.agents:
            # After a flood of one agent's records, a restart may not find those of the others.
            return GateReport("forgets", report.figures)
        if (
            report.passed
            and self._candidate.sessions < manifest.sessions
            and (self._passes.catches_up or "log_loss_published" not in report.figures)
        ):
            # It may have lost sessions or just begun. A candidate that knows less must know the whole window and be
            # measured against the published version.
            return GateReport("too_few", report.figures)
        return report

    def _since(self, until: float) -> Iterator[Trajectory]:
        for each in self._passes.sessions:
            if each.came > until:
                yield each.session()
                self._budget.pace()


def refusal_of(ack: bytes | None) -> str | None:
    try:
        result = orjson.loads(ack or b"null")["result"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if not isinstance(result, str) or result in _ACCEPTED:
        return None
    return result if result in REASONS else "other"


async def count_refusals(settings: Settings, tenants: Iterable[str], metrics: Metrics) -> None:
    """Count the versions that agents refuse, until cancelled: agents export no metrics."""

    async def count(fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            if (reason := refusal_of(record.value)) is not None:
                metrics.adapters_refused.labels(reason).inc()

    names = [topic(tenant, "adapters.acks") for tenant in tenants]
    await Follower(settings.cluster, names, count, what="acks", fetch_wait_ms=_FETCH_WAIT_MS, newest=0).run()


async def run_trainer(settings: Settings, *, policy: str = "") -> None:
    """Train until cancelled. The learning threads go on, so end the process then.

    `policy`: folder or hub name of the language model for which a LoRA is trained. Raises ConfigError,
    ModelUnavailable, BrokerUnavailable.
    """
    metrics, health, clock = Metrics("trainer"), Readiness("broker"), SystemClock()
    base = _base(policy, settings) if policy else None
    with metrics.serve(settings.metrics_port, settings.metrics_host, health):
        async with (
            AdapterPublisher.from_settings(CallsManifest, settings) as calls,
            AdapterPublisher.from_settings(LanguageModelManifest, settings) as policies,
        ):
            erased = Erased()
            await erased.read(settings.cluster, settings.tenants)
            # Only now, so that wrong settings are reported at once.
            os.nice(_NICENESS)
            with contextlib.suppress(OSError):
                # If Linux groups processes by session, a nice value counts within it only, and each role is one.
                _AUTOGROUP.write_text(str(_NICENESS))
            budget = CpuBudget(settings.trainer_cpu_share, clock=clock)
            options: dict[str, Any] = {"erased": erased, "budget": budget}
            passes = partial(CallTraining, settings.quorum, settings.closed_tools)
            offered = [Publication(tenant, calls, metrics, clock) for tenant in settings.tenants]
            groups: list[list[WindowTrainer[Any]]] = [[CallsTrainer(each, passes, **options) for each in offered]]
            if base is not None:
                published = [
                    Publication(tenant, policies, metrics, clock, settings.canary_share) for tenant in settings.tenants
                ]
                groups.append([PolicyTrainer(each, base, policy, settings.quorum, **options) for each in published])
            work = [
                erased.follow(settings.cluster, settings.tenants, clock, settings.fetch_wait_ms),
                count_refusals(settings, settings.tenants, metrics),
                train(settings, clock, budget, *groups),
                health.keep_beating(),
            ]
            health.ready("broker")
            try:
                await asyncio.gather(*work)  # they end by errors only
            finally:
                health.unready("broker", "stopping")


def _base(policy: str, settings: Settings) -> Path:
    missing = [name for name in _LEARNING if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelUnavailable(
            f"--policy needs {', '.join(missing)}: pip install 'fleetlore-server[policy]' from your index"
        )
    if not settings.weights_storage:
        raise ConfigError("--policy needs FLEETLORE_WEIGHTS_STORAGE: most LoRAs do not fit in a record of 512 KiB")
    from models.policy.learn import snapshot

    return snapshot(policy)
