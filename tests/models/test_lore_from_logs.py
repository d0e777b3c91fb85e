"""The rules and the distiller on logged runs of real agents."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from fleetlore.wire.trajectory import Trajectory

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "smoke"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the folder of real trajectories is missing: {DATA}"),
]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = ROOT / "benchmarks" / "judge_and_distiller.py"
    spec = importlib.util.spec_from_file_location("judge_and_distiller", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trajectories(bench: ModuleType) -> list[Trajectory]:
    return [each for folder in sorted(DATA.iterdir()) for each in bench.read_trajectories(folder)]


def test_the_rules_are_right_where_they_speak(bench: ModuleType, trajectories: list[Trajectory]) -> None:
    rows = {rule: (fired, failed) for rule, fired, failed in bench.measure_rules(trajectories)}
    fired, failed = rows["any"]
    assert fired >= 50
    assert failed / fired >= 0.98


def test_items_are_the_same_in_any_order(bench: ModuleType, trajectories: list[Trajectory]) -> None:
    items = {item.id: item for item in bench.distil_all(trajectories)}
    assert items == {item.id: item for item in bench.distil_all(trajectories[::-1])}
    kinds = Counter(item.kind for item in items.values())
    assert kinds["recovery"] >= 20 and kinds["strategy"] >= 5  # a strategy takes three agents with the same goal
    assert any("`" in item.title and item.support > 1 for item in items.values() if item.kind == "recovery")


def test_transient_faults_teach_nothing(bench: ModuleType, trajectories: list[Trajectory]) -> None:
    texts = [f"{item.title}\n{item.when}" for item in bench.distil_all(trajectories) if item.kind != "strategy"]
    assert not [text for text in texts if "503" in text or "Timed out" in text]
