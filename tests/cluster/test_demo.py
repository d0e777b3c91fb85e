"""The loop from a failure to another agent's advice and to an adapter, with Apache Kafka for the embedded broker."""

import io
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks.demo import run as demo
from benchmarks.demo.arms import Plan
from streams.embedded import stack
from tests.cluster.kafka_cluster import CLIENT, KafkaCluster


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_small_fleet_learns_from_its_own_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KafkaCluster(tmp_path / "kafka")
    [broker] = cluster.brokers
    broker.format()
    monkeypatch.setattr(stack, "broker_command", lambda port: broker.command)
    monkeypatch.setattr(demo, "Stack", partial(stack.Stack, broker_port=broker.ports[CLIENT]))
    monkeypatch.setattr(demo, "ADAPTER_SECONDS", 180.0)  # the trainer shares the cores with a broker in Java
    plan = Plan(agents=24, sessions=6, stagger_seconds=0.3)
    progress = Progress(console=Console(file=io.StringIO()), disable=True)
    try:
        figures = await demo.run_demo(plan, tmp_path / "data", progress)
    finally:
        cluster.stop()
    assert figures.agents_on_latest_adapter == plan.agents
    assert figures.judgments == plan.agents * plan.sessions
    assert figures.repeat_failures.fleet <= figures.repeat_failures.isolated / 2
    assert figures.success_rate.fleet > figures.success_rate.isolated
    assert figures.time_to_advice_seconds.p50 <= 2.0
    assert figures.memory_items > 0
