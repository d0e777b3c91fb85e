"""What each part of learning is worth is measured on logs, before the calls are learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.evaluate.ablation import NETWORK, Said, adds, app

SMOKE = Path(__file__).parents[4] / "shared/data/smoke"


def said(odds: float, failed: bool, number: int) -> Said:
    return Said(number, f"s{number}", "sql", first=True, odds=odds, failed=failed)


def test_a_network_that_knows_more_adds_and_one_that_knows_nothing_does_not() -> None:
    failed = [number % 3 == 0 for number in range(600)]
    linear = {(f"s{each}", 0): said(0.0, failed[each], each) for each in range(600)}
    knows = {(f"s{each}", 0): said(3.0 if failed[each] else -3.0, failed[each], each) for each in range(600)}
    idle = {(f"s{each}", 0): said(1.0 if each % 2 else -1.0, failed[each], each) for each in range(600)}
    assert adds(linear, knows, 600)["sql"]["low"] > 0.3
    assert adds(linear, idle, 600)["sql"]["high"] < 0.01


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason="the logged trajectories are not here")
def test_one_command_takes_each_part_away() -> None:
    ran = CliRunner().invoke(app, ["--data", str(SMOKE / "tau1"), "--sessions", "64", "--json"])
    assert ran.exit_code == 0, ran.output
    (figures,) = json.loads(ran.stdout).values()
    assert figures["network"].keys() == NETWORK.keys()
    assert figures["linear"]["all"]["auroc"] > 0.8
    assert figures["linear"]["no rehearsal"]["worse_by"].keys() == {"mean", "low", "high"}
    assert "all" in figures["network_adds"]
