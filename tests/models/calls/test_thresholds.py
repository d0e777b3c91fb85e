from random import Random

from models.calls.thresholds import Foreseen, thresholds


def foreseen(chances: list[float], seed: int = 0, true: bool = True) -> list[Foreseen]:
    random = Random(seed)
    return [
        Foreseen(number, "s", 0, "sql", "first", fails, random.random() < (fails if true else 0.3))
        for number, fails in enumerate(chances)
    ]


def test_at_most_a_fifth_of_the_calls_is_warned_of() -> None:
    calls = foreseen([number / 1000 for number in range(1000)])
    (found,) = thresholds({("sql", "first"): calls})
    warned = [call for call in calls if call.fails >= found.least]
    assert len(warned) <= 200
    assert (found.calls, found.failed) == (len(warned), sum(call.failed for call in warned))
    assert found.failed / found.calls > 0.8


def test_a_model_that_tells_nothing_warns_of_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([n / 1000 for n in range(1000)], true=False)}) == ()


def test_few_calls_prove_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([1.0] * 10)}) == ()


def test_where_nearly_all_calls_fail_a_warning_says_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([0.95] * 500)}) == ()
