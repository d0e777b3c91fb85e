from __future__ import annotations

import pytest

from fleetlore.testing import sessions
from fleetlore.wire.trajectory import Judgment, Label, Step
from models.distil.distiller import distil

LOOP = "0" * 32


def call(arguments: str, result: str = "same", error: str | None = None, loop: str | None = None) -> Step:
    return sessions.call("bash", arguments, result, error=error, loop=loop)


ROUND, STUCK = call("cat log"), call("cat log", loop=LOOP)
OTHER = call("tail -n 3 log", "done")


def judgment(*steps: Step, label: Label = "success") -> Judgment:
    probability = 1.0 if label == "success" else 0.0
    return sessions.judgment(*steps, label=label, probability=probability, ended=9)


def test_the_call_after_the_loop_is_the_way_out() -> None:
    (found,) = distil(judgment(ROUND, ROUND, STUCK, OTHER, call("wc -l log", "3")))
    assert (found.kind, found.pattern, found.call) == ("recovery", LOOP, None)
    assert found.remedy == {"tool": "bash"}
    assert found.content.splitlines() == ["In circles: bash(cat log)", "Led out of it: bash(tail …)"]


@pytest.mark.parametrize(
    ("tool", "arguments", "step"),
    [("submit", "Paris", "submit"), ("submit", "the answer is 42", "submit"), ("book", '{"id": 7}', "book(id)")],
)
def test_the_answer_of_another_task_is_not_told(tool: str, arguments: str, step: str) -> None:
    (found,) = distil(judgment(ROUND, ROUND, STUCK, sessions.call(tool, arguments), OTHER))
    assert found.content.splitlines()[-1] == f"Led out of it: {step}"
    assert arguments not in found.to_json().decode()


@pytest.mark.parametrize(
    "judged",
    [
        judgment(ROUND, ROUND, STUCK, OTHER, OTHER, label="failure"),
        judgment(ROUND, ROUND, STUCK),
        judgment(ROUND, ROUND, STUCK, OTHER),  # what ended it
        judgment(OTHER, ROUND, ROUND, STUCK, OTHER, ROUND),  # what it had done before
        judgment(ROUND, ROUND, STUCK, call("rm log", error="rm: no such file 'log'"), OTHER),
        judgment(ROUND, ROUND, ROUND, OTHER, ROUND),  # no loop
        judgment(ROUND, ROUND, STUCK, call("cat other.log", "done"), OTHER),  # what it changed is its own task's
    ],
)
def test_what_leads_nowhere_is_no_way_out(judged: Judgment) -> None:
    assert [each for each in distil(judged) if each.kind == "recovery"] == []


def test_an_error_that_was_got_past_needs_no_other_way_out() -> None:
    wrong, right = "pip instal x", "pip install x"
    error = "ERROR: unknown command 'instal'"
    steps = [call(wrong, error=error)] * 2 + [call(wrong, error=error, loop=LOOP), call(right, "ok")]
    assert [each.pattern for each in distil(judgment(*steps)) if each.kind == "recovery"] == [steps[0].pattern]


@pytest.mark.parametrize(("line", "kept"), [("n = 1", False), ("import n", True), ("n = data()", True)])
def test_a_number_that_was_made_up_for_a_name_is_no_way_past_its_failure(line: str, kept: bool) -> None:
    failed = sessions.call("python", "print(gcd(7, 2*n + 1))", error="NameError: name 'n' is not defined")
    worked = sessions.call("python", f"{line}\nprint(gcd(7, 2*n + 1))", "1")
    found = [each for each in distil(judgment(failed, worked, OTHER)) if each.kind == "recovery"]
    assert bool(found) is kept
