from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from benchmarks.call_model import main

SMOKE = Path(__file__).parents[3] / "shared/data/smoke"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not SMOKE.is_dir(), reason="the logged trajectories are not here"),
]


def test_the_call_model_is_measured_on_held_out_sessions() -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--data", str(SMOKE), "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    report = orjson.loads(result.stdout)
    figures = report["after all sessions"]
    assert figures["auroc"] > 0.7 > figures["failed"]
    assert figures["bytes"] <= 200 * 1024
    assert {"after 300 sessions", "new places"} <= report.keys()
