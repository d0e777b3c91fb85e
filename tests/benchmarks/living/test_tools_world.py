"""The tasks of pandas 3 and numpy 2: a line runs in a process of its own, and each cause is met twice."""

import sys
from pathlib import Path

import pytest

from benchmarks.living.tools.world import ToolsWorld
from benchmarks.living.world import Call, Ran, split

pd = pytest.importorskip("pandas", minversion="3")
np = pytest.importorskip("numpy", minversion="2.4")


@pytest.fixture(scope="module")
def world() -> ToolsWorld:
    return ToolsWorld(Path(sys.executable))


def test_a_cause_is_met_in_the_past_and_again(world: ToolsWorld) -> None:
    past, held_out = split(world.tasks, 0, 8)
    assert {each.group for each in past} == {each.group for each in held_out}
    assert len(past) == len(held_out) == 26


def test_a_line_runs_in_a_process_of_its_own(world: ToolsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(each for each in world.tasks if each.id == "append-series-3")
    failed = world.run(task, Call("python", "answer = s.append(7)"))
    assert failed == Ran("AttributeError: 'Series' object has no attribute 'append'", "AttributeError")
    line = "answer = pd.concat([s, pd.Series([7])])"
    assert world.run(task, Call("python", line)).said.startswith("answer = 0    3")
    assert world.run(task, Call("submit", line)) == Ran("Accepted.", solved=True)
    assert world.run(task, Call("submit", "answer = s")) == Ran("Accepted.")
    assert world.run(task, Call("python", "s")).said.startswith("NameError: name 'answer' is not defined")
    assert world.run(task, Call("python", "raise SystemExit(3)")).error == "SystemExit"
    monkeypatch.setattr("benchmarks.living.tools.world.SECONDS", 0.05)
    assert world.run(task, Call("python", "answer = 1 #")).error == "TimeoutError"
