from __future__ import annotations

from msgspec.structs import replace

from benchmarks.ways_out import Run, cases, measure
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


def test_the_report_has_a_row_for_each_slice_and_rival() -> None:
    report = measure(RUNS, range(1))
    rows = report["made python"]
    assert rows["T: cases"] == "3"
    assert {
        "T: said",
        "T: likeliest names",
        "T: the 6 most often lacking",
        "T: likeliest change of an item",
        "T: same class, best backed",
        "T: most frequent",
        "T: nearest goal",
    } <= rows.keys()
    assert "right" in rows["T: said, dealt out to others"]
    assert report["made python: look-ups, T"]["said"] == "said 0.00, made next -"
