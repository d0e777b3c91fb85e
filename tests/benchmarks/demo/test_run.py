"""The whole demo on a real stack, with few agents."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks.demo.arms import Plan
from benchmarks.demo.run import run_demo


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_small_fleet_learns_from_its_own_failures(tmp_path: Path) -> None:
    plan = Plan(agents=24, sessions=6, stagger_seconds=0.3)
    figures = await run_demo(plan, tmp_path, Progress(console=Console(file=io.StringIO()), disable=True))
    assert figures.agents_on_latest_adapter == plan.agents
    assert figures.adapter_versions >= 2
    assert figures.judgments == plan.agents * plan.sessions
    assert figures.repeat_failures.fleet <= figures.repeat_failures.isolated / 2
    assert figures.success_rate.fleet > figures.success_rate.isolated
    assert figures.time_to_advice_seconds.p50 <= 2.0  # a loaded machine stretches the tail
    assert figures.patterns > 0
    assert figures.memory_items > 0
    assert figures.events > figures.sessions
