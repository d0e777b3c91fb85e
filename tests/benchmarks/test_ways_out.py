from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from benchmarks.ways_out import Memory, Run, cases, fitted, measure
from fleetlore.testing import sessions
from fleetlore.testing.sessions import call
from fleetlore.wire.trajectory import Trajectory

_NAMES = ("sqrt", "floor", "ceil", "sin", "cos", "tan")


def session(agent: int, task: int) -> Trajectory:
    name = _NAMES[task]
    failed = call("python", f"print({name}(2))", error=f"NameError: name '{name}' is not defined")
    worked = call("python", f"from math import {name}\nprint({name}(2))", "1")
    made = sessions.judgment(failed, worked, label="success", session=f"{agent}-{task}", agent=f"a{agent}")
    return replace(made.trajectory, task=f"t{task}", goal=f"the {name} of a number")


RUNS = [Run("made", session(agent, task), "") for agent in range(4) for task in range(6)]


def test_a_case_is_what_the_session_had_not_seen() -> None:
    (case,) = cases(RUNS[0])
    assert case.lacks == {"math"}


def test_weights_learned_from_pairs_rank_the_right_one_first() -> None:
    memory = Memory(RUNS)
    pairs = memory.pairs([case for run in RUNS for case in cases(run)])
    assert pairs[1].any()
    bias, weights = fitted([pairs])
    assert np.isfinite([bias, *weights]).all()
    (asked,) = cases(Run("made", session(9, 0), ""))
    best = memory.chosen((bias, weights))(asked)
    assert best is not None and "math" in best[0]


def test_the_report_has_a_row_for_each_slice_and_rival() -> None:
    report = measure(RUNS, range(1))
    rows = report["made python"]
    assert rows["T: cases"] == "3" and {"T: ranked", "T: same class, best backed", "T: most frequent"} <= rows.keys()
