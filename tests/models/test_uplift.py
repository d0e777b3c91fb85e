"""An effect is found where there is one, and intervals hold what they claim, also if calls of a session are alike."""

from random import Random

from models.uplift import Trial, Uplift, uplift
from tests.rows import for_each

HELPS, HARMS, NOTHING = -0.2, 0.1, 0.0


def world(seed: int, effect: float, sessions: int, share: float = 0.2, *, whole: bool = False) -> list[Trial]:
    """Sessions of easy and hard tasks with up to eight hints. A hint adds `effect` to the chance that its call fails.

    whole: a session is shown all of its hints or none.
    """
    random, trials = Random(seed), []
    for number in range(sessions):
        hard = random.choice((0.25, 0.45, 0.85))  # calls of one session are alike
        ends_well = random.random() > hard
        for hint in range(random.choice((1, 1, 2, 8))):
            shown = number % 5 > 0 if whole else random.random() >= share
            failed = random.random() < hard + effect * shown
            trials.append(Trial(f"s{number}", f"h{hint}", "sql", "", shown, failed, 5 + failed, ends_well))
    return trials


@for_each("effect, answer", (HELPS, "Yes: "), (HARMS, "No, it harms: "), (NOTHING, "Hardly: "))
def test_a_known_effect_is_found(effect: float, answer: str) -> None:
    found = uplift(world(1, effect, 1_500))
    assert found.answer.startswith(answer)
    assert found.failures.is_found == bool(effect)
    assert found.failures.low < effect < found.failures.high
    assert found.needed == 0


@for_each("effect, whole", (HELPS, False), (HARMS, True), (NOTHING, True))
def test_intervals_cover_the_truth(effect: float, whole: bool) -> None:
    found = [uplift(world(seed, effect, 150, whole=whole)) for seed in range(200)]
    assert 0.93 <= covered(found, effect) < 1.0


def test_intervals_of_few_sessions_cover_the_truth() -> None:
    assert covered([uplift(world(seed, NOTHING, 24)) for seed in range(200)], NOTHING) >= 0.93


def covered(found: list[Uplift], effect: float) -> float:
    return sum(each.failures.low <= effect <= each.failures.high for each in found) / len(found)


def test_the_number_of_calls_is_compared_with_its_interval() -> None:
    found = uplift(world(1, HELPS, 1_500)).calls
    assert found.is_found and found.high < 0
    again = [uplift(world(seed, NOTHING, 150)).calls for seed in range(200)]
    assert sum(each.low <= 0 <= each.high for each in again) / len(again) >= 0.93


def test_one_session_with_many_calls_tells_no_more_than_one() -> None:
    many = [Trial("s", f"h{n}", "sql", "", True, True, 5, None) for n in range(500)]
    many += [Trial("t", f"h{n}", "sql", "", False, False, 5, None) for n in range(500)]
    found = uplift(many)
    assert not found.failures.is_found
    assert found.success.shown is None


def test_needed_sessions_are_enough_when_they_have_come() -> None:
    few = uplift(world(1, -0.1, 40))
    assert few.answer.startswith("Not known yet") and few.needed > 0
    found = [uplift(world(seed, -0.1, 40 + few.needed)).failures.is_found for seed in range(50)]
    assert sum(found) / len(found) >= 0.7  # they are computed for a power of 80 %
