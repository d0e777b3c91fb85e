"""Run the role `trainer`: closed sessions in, signed adapter versions out.

Each tenant has two adapters here: the call model (`streams.training.calls`) and the retrieval adapter
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
from pathlib import Path

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.wire.adapter_manifest import CallsManifest, RetrievalManifest
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.lifecycle import at_first_signal
from streams.stage.erased import Erased
from streams.training.calls import CallsTrainer
from streams.training.publication import Publication
from streams.training.refusals import count_refusals
from streams.training.retrieval import RetrievalTrainer
from streams.training.window import horizon_of, train

__all__ = ["run_trainer"]

log = logging.getLogger(__name__)

_AUTOGROUP = Path("/proc/self/autogroup")
# The workers on the same cores go first. How much it takes is bounded by `trainer_cpu_share`: a process of niceness 19
# would get next to nothing where they are busy.
_NICENESS = 5
# What the retrieval adapter is learned with.
_LEARNING = ("torch", "peft", "fleetlore_encoder")


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
