from __future__ import annotations

import numpy as np
import pytest

from benchmarks.backtest.advice.rivals import RIVALS, Calls
from tests.models.backtest.made import call, log

GONE = "no such table: cars"


def world(agents: str) -> Calls:
    """Calls with `cars` fail, others do not."""
    names = ["cars", "makers", "cars", "models", "owners"]
    return Calls(
        [
            log(
                *(call(f"select * from {name}", error=GONE if name == "cars" else None) for name in names),
                call("submit"),
                session=agent,
                agent=agent,
            )
            for agent in agents
        ]
    )


@pytest.mark.parametrize("name", ["same_call", "tool_word", "words", "features"])
def test_each_learns_which_calls_fail(name: str) -> None:
    test = world("xy")
    score = RIVALS[name](world("abcdefgh"), test, 0)
    assert score.shape == (10,)
    assert score[test.failed].min() > score[~test.failed].max()


def test_what_came_before_and_the_first_word_alone_do_not_tell_them() -> None:
    test = world("x")
    assert RIVALS["last_failed"](world("ab"), test, 0).tolist() == [0, 1, 0, 1, 0]
    assert len(set(RIVALS["tool_first_word"](world("ab"), test, 0).tolist())) == 1


def test_a_call_never_made_has_the_base_rate() -> None:
    train, test = world("ab"), Calls([log(call("drop everything"))])
    for name in ("same_call", "tool_first_word", "tool_word"):
        assert RIVALS[name](train, test, 0).tolist() == pytest.approx([train.base])


def test_the_result_before_is_read_and_the_one_after_is_not() -> None:
    def sessions(count: int) -> Calls:
        return Calls(
            [
                log(
                    call("look", "empty" if number % 2 else "full"),
                    call("take", error="nothing there" if number % 2 else None),
                    session=str(number),
                )
                for number in range(count)
            ]
        )

    test = sessions(4)
    for name in ("words", "features"):
        score = RIVALS[name](sessions(40), test, 0)
        assert score[test.failed].min() > score[~test.failed].max()
    told = Calls([log(call("look"), call("take", said)) for said in ("this worked", "nothing there")])
    assert len(set(RIVALS["words"](sessions(40), told, 0)[1::2].tolist())) == 1


def test_passing_faults_and_pseudo_calls_have_no_label() -> None:
    calls = Calls([log(call("a", error="503 Service Unavailable"), call("submit"), call("b", error=GONE))])
    assert [turn.call.text for turn in calls.turns] == ["b"] and calls.failed.tolist() == [True]


def test_training_calls_that_all_ended_alike_tell_nothing() -> None:
    train, test = Calls([log(call("a"), call("b"))]), world("x")
    for name, rival in RIVALS.items():
        score = rival(train, test, 0)
        assert np.isfinite(score).all() and (name == "last_failed" or len(set(score.tolist())) == 1)
