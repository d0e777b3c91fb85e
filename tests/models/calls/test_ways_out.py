from __future__ import annotations

import numpy as np

from fleetlore.calls.document import RANKED_BY, Ranking
from fleetlore.calls.ranker import PRIOR, Figures, chances
from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.trajectory import Trajectory
from models.calls.ways_out import LEAST_CASES, Ranked, WaysOutTraining, cases, fitted, ranking_of

_NAMES = ("sqrt", "floor", "ceil", "sin", "cos", "tan")


def session(number: int, module: str = "math") -> Trajectory:
    name = _NAMES[number % len(_NAMES)]
    return trajectory(
        call("python", f"print({name}({number}))", error=f"NameError: name '{name}' is not defined"),
        call("python", f"from {module} import {name}\nprint({name}({number}))", "1"),
        call("python", "print('done')", "done"),
        session=f"s{number}",
        agent=f"a{number % 7}",
        goal=f"the {name} of a number",
        ended=float(number),
    )


def learned(count: int) -> tuple[Ranking, ...]:
    training = WaysOutTraining()
    for number in range(count):
        training.learn(session(number))
    return training.rankings()


def test_the_figures_are_as_many_as_the_document_says() -> None:
    assert len(Figures._fields) == len(PRIOR.weights) == RANKED_BY


def test_a_case_lacks_what_the_session_had_not_seen() -> None:
    (case,) = cases(session(0))
    assert (case.place, case.worked, case.lacks) == (0, 1, {"math"})
    known = trajectory(*session(0).calls, goal="use math")
    assert list(cases(known)) == []


def test_what_passes_by_itself_is_no_case() -> None:
    passing = trajectory(call("api", "get x", error="503 Service Unavailable"), call("api", "get other", "1"))
    assert list(cases(passing)) == []


def test_a_tool_is_ranked_once_it_has_enough_cases() -> None:
    assert learned(LEAST_CASES - 1) == ()
    (ranking,) = learned(LEAST_CASES + 30)
    assert ranking.tool == "python"
    assert ranking.least <= 1.0 and ranking.right == ranking.said > 0


def test_the_same_sessions_give_the_same_ranking() -> None:
    assert learned(60) == learned(60)


def made(number: int, right: float) -> Ranked:
    """Twenty candidates, of which the first has one figure that tells whether it is right."""
    rng = np.random.default_rng(number)
    figures = rng.random((20, RANKED_BY))
    figures[:, 0] = 0.0
    is_right = np.zeros(20, np.bool_)
    place = rng.integers(20)
    figures[place, 0] = 1.0
    is_right[place] = rng.random() < right
    return Ranked(f"s{number}", figures, is_right)


def test_weights_follow_what_was_right_and_stay_near_the_prior_without_cases() -> None:
    bias, weights = fitted([])
    assert (bias, *weights) == (PRIOR.bias, *PRIOR.weights)
    ranked = [made(number, 1.0) for number in range(80)]
    bias, weights = fitted(ranked)
    assert weights[0] > 3 and weights[0] == max(weights)
    ranking = ranking_of("t", ranked, ranked)
    first = [int(np.argmax(chances([Figures(*row) for row in each.figures], ranking))) for each in ranked]
    assert all(each.right[place] for each, place in zip(ranked, first, strict=True))


def test_nothing_is_said_where_ways_out_are_seldom_right() -> None:
    seldom = [made(number, 0.1) for number in range(100)]
    assert ranking_of("t", seldom, seldom).least > 1
    often = [made(number, 0.8) for number in range(100)]
    ranking = ranking_of("t", often, often)
    assert ranking.least < 1 and 0.6 < ranking.right / ranking.said <= 1


def test_a_session_is_not_judged_by_what_it_taught_itself() -> None:
    """Each session brings a module of its own: nobody else's way out is right."""
    training = WaysOutTraining()
    for number in range(LEAST_CASES + 30):
        training.learn(session(number, f"module_{'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}"))
    (ranking,) = training.rankings()
    assert ranking.least > 1
