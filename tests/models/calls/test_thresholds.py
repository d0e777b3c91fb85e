from random import Random

import pytest

from models.calls.gate import Foreseen, Trial, thresholds


def foreseen(chances: list[float], seed: int = 0, true: bool = True) -> list[Foreseen]:
    random = Random(seed)
    return [
        Foreseen(number, "s", 0, "sql", "first", fails, random.random() < (fails if true else 0.3))
        for number, fails in enumerate(chances)
    ]


def test_at_most_a_fifth_of_the_calls_is_warned_of() -> None:
    calls = foreseen([number / 1000 for number in range(1000)])
    (found,) = thresholds({("sql", "first"): calls}, {})
    warned = [call for call in calls if call.fails >= found.least]
    assert len(warned) <= 200
    assert (found.calls, found.failed) == (len(warned), sum(call.failed for call in warned))
    assert found.failed / found.calls > 0.8


def test_a_model_that_tells_nothing_warns_of_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([n / 1000 for n in range(1000)], true=False)}, {}) == ()


@pytest.mark.parametrize("chances", [[1.0] * 10, [0.95] * 500], ids=["few calls", "nearly all fail"])
def test_few_calls_or_calls_that_nearly_all_fail_give_no_warning(chances: list[float]) -> None:
    assert thresholds({("sql", "first"): foreseen(chances)}, {}) == ()


@pytest.mark.parametrize(
    ("trial", "in_vain"),
    [
        (Trial(400, 100, 19, 0), False),  # too few were withheld
        (Trial(400, 380, 20, 2), True),  # it harms
        (Trial(400, 100, 60, 40), False),  # it helps
        (Trial(400, 200, 60, 30), False),  # not known yet
        (Trial(4000, 2000, 200, 100), True),  # many trials and no effect
    ],
)
def test_warnings_that_do_not_lift_are_not_said_again(trial: Trial, in_vain: bool) -> None:
    calls = {("sql", "first"): foreseen([number / 1000 for number in range(1000)])}
    assert (thresholds(calls, {("sql", "first"): trial}) == ()) == in_vain


def test_a_trial_counts_calls_by_arm() -> None:
    trial = Trial()
    for shown, failed in ((True, True), (True, False), (False, True)):
        trial.add(shown=shown, failed=failed)
    assert trial == Trial(2, 1, 1, 1)
