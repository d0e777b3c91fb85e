"""Which candidates of the policy adapter go into service."""

import pytest

from models.policy.gate import LEAST, judge_policy, split
from models.policy.pairs import Pair, preference_pairs
from tests.models.policy.made import fleet

PAIRS = preference_pairs(fleet(60), 2)
LATER = split(PAIRS)[1]
ALONE = [0.5] * len(LATER)


def judged(gain: float, *, published: float | None = None, forgotten: float = 0.0) -> str:
    candidate = [each + gain for each in ALONE]
    of_published = None if published is None else [each + published for each in ALONE]
    return judge_policy(LATER, ALONE, candidate, of_published, (10.0, 10.0 * (1 + forgotten))).reason


@pytest.mark.parametrize(
    ("gain", "published", "forgotten", "reason"),
    [
        (2.0, None, 0.0, "better"),
        (2.0, None, 0.019, "better"),
        (2.0, None, 0.021, "forgets"),
        (0.0, None, 0.0, "no_gain"),
        (-2.0, None, 0.0, "no_gain"),
        (2.0, 2.05, 0.0, "better"),
        (2.0, 2.5, 0.0, "worse_than_published"),
    ],
)
def test_a_version_passes_that_gains_on_later_pairs_and_forgets_little(
    gain: float, published: float | None, forgotten: float, reason: str
) -> None:
    assert judged(gain, published=published, forgotten=forgotten) == reason


def test_sessions_of_one_task_count_once() -> None:
    same = [pair._replace(task="t") for pair in LATER]
    assert judge_policy(same, ALONE, [9.0] * len(same), None, (1.0, 1.0)).reason == "no_gain"


def test_few_pairs_decide_nothing() -> None:
    few = LATER[: LEAST - 1]
    assert judge_policy(few, ALONE[: len(few)], [9.0] * len(few), None, (1.0, 1.0)).reason == "too_few"


def test_the_later_pairs_end_later_and_share_no_session_with_the_older() -> None:
    older, later = split(PAIRS)
    assert max(pair.ended for pair in older) <= min(pair.ended for pair in later)
    assert len(later) >= LEAST and not {pair.sessions[0] for pair in older} & {pair.sessions[0] for pair in later}


def test_of_few_pairs_nothing_is_learned() -> None:
    some: list[Pair] = PAIRS[:LEAST]
    assert split(some) == ([], some) and split([]) == ([], [])
