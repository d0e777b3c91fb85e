"""The role `worker`: the pipeline in one process, until SIGTERM."""

from __future__ import annotations

import logging

import faust

from fleetlore.config import Settings
from sinks.endpoint import Health
from sinks.metrics import Metrics
from streams.app import FleetApp


def run_worker(settings: Settings) -> None:
    """Serve until a signal; ends in SystemExit: 0 after a clean stop, 1 after a crash.

    Raises:
        ConfigError: the metrics endpoint cannot listen there.
    """
    metrics = Metrics("worker")
    health = Health("milvus", "partitions")
    app = FleetApp(settings, metrics, health)
    with metrics.serve(settings.metrics_port, settings.metrics_host, health):
        faust.Worker(app, loglevel=logging.WARNING, quiet=True, redirect_stdouts=False).execute_from_commandline()
