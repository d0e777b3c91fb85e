from __future__ import annotations

import random

import numpy as np
import pytest

from fleetlore.calls.document import Lacked
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.lacked import MOST, LackedNames
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.trajectory import Trajectory
from models.calls.lacked import FEATURES, LEAST_CASES, NAMES, LackedTraining

# Of each name that is not defined, the module that has it.
_MODULES = {f"do_{letter}": f"module_{letter}" for letter in "abcdefghijklmnop"}


def failure(name: str) -> tuple[str, str]:
    return f"print({name}(value))", f"NameError: name '{name}' is not defined"


def session(number: int, module: str = "", *, task: str = "", quoted: str = "x") -> Trajectory:
    name = sorted(_MODULES)[number % len(_MODULES)]
    made, error = failure(name)
    return trajectory(
        call("python", made, error=error),
        call("python", f"from {module or _MODULES[name]} import {name}\nprint({name}('{quoted}'))", "1"),
        session=f"s{number}",
        agent=f"a{number % 7}",
        task=task or f"t{number}",
        goal="do what is asked",
        ended=float(number),
    )


def learned(*sessions: Trajectory) -> tuple[Lacked, ...]:
    training = LackedTraining()
    for each in sessions:
        training.learn(each)
    return training.said()


def asked(name: str, **known: object) -> FailedCall:
    made, error = failure(name)
    return FailedCall(made, error, failure_of("python", made, None, error), "do what is asked", **known)  # type: ignore[arg-type]


def test_it_says_the_name_that_this_failure_lacks() -> None:
    (of,) = learned(*map(session, range(160)))
    names = LackedNames(of)
    assert of.least <= 1 and of.right >= 0.9 * of.said > 0
    for name, module in _MODULES.items():
        found, chance = names.most_likely(asked(name))
        assert found[0] == module and chance >= of.least
        assert len(found) < MOST, "names that are hardly ever lacking would only fill the line"


def test_a_name_that_the_session_knows_is_not_said() -> None:
    (of,) = learned(*map(session, range(160)))
    found, _ = LackedNames(of).most_likely(asked("do_a", seen={"module_a"}))
    assert "module_a" not in found


def test_quoted_texts_and_the_names_of_one_agent_are_never_said() -> None:
    own = [session(number, "mine" if number % 7 == 0 else "", quoted="secret") for number in range(160)]
    own += [session(number) for number in range(160, 400)]
    (of,) = learned(*own)
    assert set(of.names) == set(_MODULES.values())


def test_a_tool_with_few_cases_is_not_learned() -> None:
    assert learned(*map(session, range(LEAST_CASES - 1))) == ()


def test_nothing_is_said_where_no_task_tells_what_another_one_lacks() -> None:
    """Each task brings a module of its own, so only a session at the same task could tell it."""
    modules = ["".join(random.Random(number).choices("abcdefgh", k=9)) for number in range(80)]
    (of,) = learned(*(session(number, modules[number // 2], task=f"t{number // 2}") for number in range(160)))
    assert of.least > 1 and (of.names, of.weights) == ((), b"")


def test_the_same_sessions_give_the_same_bytes_within_bounds() -> None:
    once, again = learned(*map(session, range(160))), learned(*map(session, range(160)))
    assert once == again
    (of,) = once
    assert len(of.names) <= NAMES and len(of.features) <= 4 * FEATURES


def test_parts_that_do_not_fit_are_refused() -> None:
    (of,) = learned(*map(session, range(160)))
    with pytest.raises(ValueError, match="weights for"):
        LackedNames(Lacked(of.tool, of.names, of.features[4:], of.weights, of.scales, of.biases, 0.5, 1, 2))
    infinite = np.full(len(of.names) + 1, np.inf, "<f2").tobytes()
    with pytest.raises(ValueError, match="no number"):
        LackedNames(Lacked(of.tool, of.names, of.features, of.weights, infinite, of.biases, 0.5, 1, 2))
