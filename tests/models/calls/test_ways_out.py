from __future__ import annotations

from fleetlore.testing.sessions import call, trajectory
from models.calls.ways_out import cases

FAILED = call("python", "print(sqrt(4))", error="NameError: name 'sqrt' is not defined")
WORKED = call("python", "from math import sqrt\nprint(sqrt(4))", "2.0")


def test_a_case_lacks_what_the_session_had_not_seen() -> None:
    (case,) = cases(trajectory(FAILED, WORKED, goal="the root of a number"))
    assert (case.place, case.worked, case.lacks) == (0, 1, {"math"})
    assert list(cases(trajectory(FAILED, WORKED, goal="use math"))) == []


def test_what_passes_by_itself_is_no_case() -> None:
    passing = trajectory(call("api", "get x", error="503 Service Unavailable"), call("api", "get other", "1"))
    assert list(cases(passing)) == []
