"""What each part of learning is worth is measured on logs, before the calls are learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.evaluate.ablation import NETWORK, app
from benchmarks.evaluate.logged.heard import RIVALS

SMOKE = Path(__file__).parents[4] / "shared/data/smoke"


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason="the logged trajectories are not here")
def test_one_command_takes_each_part_away() -> None:
    ran = CliRunner().invoke(app, ["--data", str(SMOKE / "tau1"), "--sessions", "64", "--json"])
    assert ran.exit_code == 0, ran.output
    (figures,) = json.loads(ran.stdout).values()
    assert figures["network"].keys() == NETWORK.keys()
    assert figures["linear"]["all"]["auroc"] > 0.8
    assert figures["linear"]["no rehearsal"]["worse_by"].keys() == {"mean", "low", "high"}
    assert figures["heard"]["rivals"].keys() == set(RIVALS)
    assert figures["heard"]["gain"]["all"].keys() == {"mean", "low", "high"}
