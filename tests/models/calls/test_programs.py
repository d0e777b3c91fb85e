from __future__ import annotations

from fleetlore.calls.document import Document, Program
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel
from fleetlore.wire.trajectory import Trajectory
from models.calls.training import train
from tests.build import call, trajectory

TIMED_OUT, NO_XXD = "Command timed out", "/bin/bash: line 1: xxd: command not found"


def session(number: int, *commands: tuple[str, str | None], agents: int = 3) -> Trajectory:
    steps = [call("bash", command, "done", error) for command, error in commands]
    return trajectory(*steps, session=f"s{number}", agent=f"a{number % agents}", goal=f"g{number}", ended=float(number))


def learned(*sessions: Trajectory) -> tuple[Program, ...]:
    return Document.from_bytes(train(sessions).weights).programs


SLOW = [
    session(n, ("python train.py --epochs 3", TIMED_OUT), ("nohup python train.py --epochs 3 > log &", None))
    for n in range(9)
]


def test_a_form_that_times_out_and_the_one_of_the_same_program_that_does_not() -> None:
    found = learned(*SLOW)
    assert Program("bash", "python --epochs", "timed out", 9, 9, 3, "nohup python --epochs &", 9) in found
    model = CallModel(Document.from_bytes(train(SLOW).weights))
    told = model.program(Call.made("bash", "cd /app && python other.py --epochs 9"))
    assert told is not None and told.instead == "nohup python --epochs &"
    assert model.program(Call.made("bash", "nohup python other.py --epochs 9 &")) != told
    assert model.program(Call.made("bash", "ls -l")) is None


def test_a_program_that_does_not_exist_and_what_was_used_next() -> None:
    made = [session(n, (f"cat f{n} | xxd", NO_XXD), (f"od -c f{n}", None)) for n in range(4)]
    (found,) = learned(*made)
    assert found == Program("bash", "xxd", "not found", 4, 4, 3, "od -c", 4)
    model = CallModel(Document.from_bytes(train(made).weights))
    assert model.program(Call.made("bash", "head -c 9 other | xxd")) == found
    # What one agent alone did next is not told.
    own = [session(n, ("xxd f", NO_XXD), (f"tool{'abcd'[n]} f", None)) for n in range(4)]
    assert [each.instead for each in learned(*own)] == [""]


def test_one_agent_and_what_mostly_works_teach_nothing() -> None:
    other = trajectory(call("look", "{}"), session="other", agent="another")
    assert learned(*(session(n, ("make all", TIMED_OUT), agents=1) for n in range(9)), other) == ()
    works = [session(n, ("make all", TIMED_OUT if n % 5 == 0 else None)) for n in range(30)]
    assert learned(*works) == ()


def test_a_tool_that_is_no_shell_is_its_own_program() -> None:
    made = [
        trajectory(
            call("fetch", '{"url": "a", "depth": 3}', error="request timed out"), session=str(n), agent=f"a{n % 2}"
        )
        for n in range(6)
    ]
    assert [(each.form, each.ending, each.failed) for each in learned(*made)] == [("fetch", "timed out", 6)]
