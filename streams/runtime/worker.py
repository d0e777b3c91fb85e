"""Run the role `worker`: the pipeline in one process, until SIGTERM."""

import asyncio
import gc
import logging
import os
import sys
from typing import NoReturn

import faust

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.app import FleetApp
from streams.runtime.lifecycle import at_first_signal, leave, leave_within

_GC_THRESHOLDS = 20_000, 20, 50
# Python's switch interval of 5 ms doubles the time to read a large answer from the store's thread.
_SWITCH_SECONDS = 0.0005
# A tenant has 44 partitions at four a topic, and all of a group's move in a rebalance.
_MAX_TENANTS = 200


class _Worker(faust.Worker):  # type: ignore[misc]  # Faust has no types that mypy can follow here
    """Obeys a second signal, and ends although a broker hangs."""

    drain_seconds = 0.0
    stopping: asyncio.Task[None] | None = None

    def install_signal_handlers(self) -> None:
        starting = asyncio.current_task()

        async def end() -> None:
            await self.stop()
            if starting is not None:
                starting.cancel()

        def begin_to_end() -> None:
            self.stopping = self.loop.create_task(end())

        at_first_signal(self.loop, begin_to_end, self.drain_seconds)

    def on_worker_shutdown(self) -> None:
        leave_within(self.drain_seconds)
        super().on_worker_shutdown()
        if self.stopping is not None:
            self.loop.run_until_complete(self.stopping)


def run_worker(settings: Settings) -> NoReturn:
    if len(settings.tenants) > _MAX_TENANTS:
        raise ConfigError(
            f"FLEETLORE_TENANTS names {len(settings.tenants)} tenants, and one group of workers serves at most "
            f"{_MAX_TENANTS}: give the others to workers with another FLEETLORE_GROUP"
        )
    if settings.kafka_security_protocol != "PLAINTEXT" and not settings.principal_key:
        raise ConfigError(
            "on a cluster with TLS or logins set FLEETLORE_PRINCIPAL_KEY, a secret that keys of agents are made of "
            "(`fleetlore topics principal`): one process could be three agents; or self-declared"
        )
    metrics = Metrics("worker")
    health = Readiness("milvus", "partitions")
    app = FleetApp(settings, metrics, health)
    # Full collections of these 130,000 lasting objects would stop the stream for 0.1 s each.
    gc.freeze()
    # A threshold of 700 would walk the long-lived states often.
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    with metrics.serve(settings.metrics_port, settings.metrics_host, health):
        # Faust writes cursor codes to stdout even if it is no terminal.
        nowhere = open(os.devnull, "w")  # noqa: SIM115  # as long as the process
        worker = _Worker(app, loglevel=logging.WARNING, quiet=True, redirect_stdouts=False, stdout=nowhere)
        worker.drain_seconds = settings.drain_seconds
        try:
            worker.execute_from_commandline()
        except SystemExit as end:
            code = int(end.code or 0)
    leave(code)
