from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.foresight.earlier_sessions import EarlierSessions, Ended, Pull, pull_of
from models.judge.critic_fit import FITTED, LeftOut

PULL = Pull(slope=16.0, shift=1.0, task=1.0)


def known(ended: list[Ended], pull: Pull = PULL) -> EarlierSessions:
    earlier = EarlierSessions(pull)
    for each in ended:
        earlier.add(each)
    return earlier


endeds = st.lists(
    st.builds(
        Ended,
        session=st.sampled_from("stuvwxyz"),
        agent=st.sampled_from(["", "ann", "ben"]),
        task=st.sampled_from(["", "cook", "bake"]),
        logit=st.floats(-5, 5),
        failed=st.booleans(),
    ),
    max_size=30,
)
ASKED = [(agent, task) for agent in ("", "ann", "ben", "new") for task in ("", "cook", "bake", "new")]


@given(endeds, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_it_is_a_function_of_the_set(ended: list[Ended], chance: random.Random) -> None:
    again = [*ended, *chance.sample(ended, len(ended) // 2)]
    chance.shuffle(again)
    once, other = known(ended), EarlierSessions(PULL)
    for each in again:
        other.add(each)
        other.logit("ann", "cook", 0.5)  # being asked in between changes nothing
    for agent, task in ASKED:
        assert once.logit(agent, task, 0.7) == other.logit(agent, task, 0.7)


@given(endeds, st.floats(-20, 20))
@settings(max_examples=30, deadline=None)
def test_of_what_nobody_has_seen_the_fit_alone_speaks(ended: list[Ended], logit: float) -> None:
    earlier = known(ended)
    assert earlier.logit("", "", logit) == logit
    assert earlier.logit("new", "new", logit) == pytest.approx(logit, abs=1e-9)


def test_an_agent_is_known_by_its_own_sessions() -> None:
    earlier = known([Ended(f"s{n}", "ann", "", 2.0, n % 4 == 0) for n in range(40)])
    # Foreseen at 88 %, and a quarter failed.
    assert -1.5 < earlier.logit("ann", "", 2.0) < 0
    assert earlier.logit("ben", "", 2.0) == 2.0


def test_a_task_is_as_hard_as_for_those_who_are_known() -> None:
    # Ann fails always: that she failed at this task too says nothing about it, that Ben did says much.
    always = [Ended(f"a{n}", "ann", "", -1.0, True) for n in range(50)]
    never = [Ended(f"b{n}", "ben", "", -1.0, False) for n in range(50)]
    ann, ben = (known([*always, *never, Ended("t", by, "cook", -1.0, True)]) for by in ("ann", "ben"))
    assert -1.0 < ann.logit("", "cook", -1.0) < -0.9
    assert ben.logit("", "cook", -1.0) > -0.5


def test_a_strong_pull_makes_little_of_a_few_sessions() -> None:
    ended = [Ended(f"s{n}", "ann", "cook", 0.0, True) for n in range(3)]
    weak, strong = (known(ended, pull).logit("ann", "cook", 0.0) for pull in (PULL, Pull()))
    assert weak > 3 * strong > 0


def test_how_strongly_to_pull_is_learned_from_those_that_were_left_out() -> None:
    chance = np.random.default_rng(0)

    def left_out(agents: float, tasks: float) -> LeftOut:
        agent, task = np.repeat(np.arange(30), 40), np.tile(np.arange(40), 30)
        logits = chance.normal(0, 1, 1200)
        true = logits + chance.normal(0, agents, 30)[agent] + chance.normal(0, tasks, 40)[task]
        return LeftOut(logits, chance.random(1200) < 1 / (1 + np.exp(-true)), agent, task)

    alike, agents, tasks = (pull_of([left_out(*each)]) for each in ((0.0, 0.0), (2.0, 0.0), (0.0, 2.0)))
    assert alike.shift >= 16 > 1 >= agents.shift
    assert alike.task >= 16 > 1 >= tasks.task
    # Nobody was left out: the strongest.
    nobody = np.full(3, FITTED)
    assert pull_of([]) == pull_of([LeftOut(np.zeros(3), np.ones(3, bool), nobody, nobody)]) == Pull()
