"""The rules and the distiller on logged runs of real agents."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.runs import read_runs
from fleetlore.wire.trajectory import Trajectory
from models.judge import RULES
from streams.offline.memory_pipeline import run_logs

DATA = Path(__file__).parents[3] / "shared" / "data" / "smoke"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the folder of real trajectories is missing: {DATA}"),
]


@pytest.fixture(scope="module")
def trajectories() -> Sequence[Trajectory]:
    return asyncio.run(run_logs(read_runs(DATA), seed=0, learn=False)).trajectories


def test_the_rules_are_right_where_they_speak(trajectories: Sequence[Trajectory]) -> None:
    rules = RULES
    fired = [each for each in trajectories if rules.judge(replace(each, ending="unknown", reward=None)) is not None]
    assert len(fired) >= 50
    assert sum(each.ending == "failure" for each in fired) / len(fired) >= 0.98
