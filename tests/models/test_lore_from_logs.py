"""The rules and the distiller on logged runs of real agents."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.runs import read_runs
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.judge import RULES, JudgeChain
from streams.offline.memory_pipeline import run_logs
from tests.candidates import items_of

DATA = Path(__file__).parents[3] / "shared" / "data" / "smoke"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the folder of real trajectories is missing: {DATA}"),
]


@pytest.fixture(scope="module")
def trajectories() -> Sequence[Trajectory]:
    return asyncio.run(run_logs(read_runs(DATA), seed=0, learn=False)).trajectories


def distil_all(trajectories: Sequence[Trajectory]) -> list[MemoryItem]:
    chain = JudgeChain()
    return items_of(*(Judgment(trajectory=each, verdict=chain.judge(each)) for each in trajectories))


def test_the_rules_are_right_where_they_speak(trajectories: Sequence[Trajectory]) -> None:
    rules = RULES
    fired = [each for each in trajectories if rules.judge(replace(each, ending="unknown", reward=None)) is not None]
    assert len(fired) >= 50
    assert sum(each.ending == "failure" for each in fired) / len(fired) >= 0.98


def test_items_are_the_same_in_any_order(trajectories: Sequence[Trajectory]) -> None:
    items = {item.id: item for item in distil_all(trajectories)}
    assert items == {item.id: item for item in distil_all(trajectories[::-1])}
    kinds = Counter(item.kind for item in items.values())
    assert kinds["recovery"] >= 20 and kinds["strategy"] >= 5  # a strategy takes three agents with the same goal
    assert any("`" in item.title and item.support > 1 for item in items.values() if item.kind == "recovery")


def test_transient_faults_teach_nothing(trajectories: Sequence[Trajectory]) -> None:
    texts = [f"{item.title}\n{item.when}" for item in distil_all(trajectories) if item.kind != "strategy"]
    assert not [text for text in texts if "503" in text or "Timed out" in text]
