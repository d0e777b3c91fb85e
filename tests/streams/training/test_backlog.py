"""What a trainer leaves out where more is judged than it can learn, and how much CPU it takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.testing.sessions import judgment
from fleetlore.wire.adapter_manifest import Place
from streams.training.backlog import Backlog, CpuBudget
from streams.training.judgment_log import Judged

MOST = 12


def waiting(agent: str, number: int) -> Judged:
    return Judged(judgment(session=f"s{number}", agent=agent, ending="success"), Place(0, number, 0))


def filled(agents: list[str]) -> tuple[Backlog, int]:
    """With a session of each of `agents`, in order; and how many went."""
    backlog = Backlog(MOST)
    shed = sum(not backlog.add(waiting(agent, number)) for number, agent in enumerate(agents))
    return backlog, shed


def emptied(backlog: Backlog) -> list[tuple[str, int]]:
    taken = [backlog.take() for _ in range(len(backlog))]
    return [(each.judgment.trajectory.agent, each.place.offset) for each in taken]


@given(st.lists(st.sampled_from("abcdef")))
def test_no_agent_loses_a_session_while_another_keeps_more(agents: list[str]) -> None:
    backlog, shed = filled(agents)
    assert len(backlog) + shed == len(agents)
    assert len(backlog) == min(len(agents), MOST)
    sent, kept = Counter(agents), Counter(agent for agent, _ in emptied(backlog))
    most = max(kept.values(), default=0)
    assert all(kept[agent] >= min(sent[agent], most - 1) for agent in sent)


@given(st.lists(st.sampled_from("abc")))
def test_agents_take_turns_and_each_gives_its_newest_in_order(agents: list[str]) -> None:
    taken = emptied(filled(agents)[0])
    numbers = [n for n, _ in enumerate(agents)]
    for agent in set(agents):
        own = [number for number in numbers if agents[number] == agent]
        kept = [number for name, number in taken if name == agent]
        assert kept == own[len(own) - len(kept) :]
    rounds = Counter[str]()
    for agent, _ in taken:
        behind = [other for other in set(agents) if rounds[other] < rounds[agent]]
        assert all(rounds[other] == sum(name == other for name, _ in taken) for other in behind)
        rounds[agent] += 1


def test_what_waits_says_where_it_lies() -> None:
    backlog, _ = filled(["a", "b", "a"])
    assert sorted(place.offset for place in backlog.places()) == [0, 1, 2]
    assert emptied(backlog) == [("a", 0), ("b", 1), ("a", 2)]
    assert not backlog
    with pytest.raises(IndexError):
        backlog.take()


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), min_size=1))
def test_learning_takes_its_share_and_no_more(steps: list[tuple[float, float]]) -> None:
    """Of each step: how long nobody learned before it, and what it took, by the clock as much as of CPU."""
    share, burst = 0.25, 2.0
    budget = CpuBudget(share, burst)
    now = spent = longest = 0.0
    budget.affords(now, spent)
    for idle, took in steps:
        now += idle
        if budget.affords(now, spent):
            now, spent, longest = now + took, spent + took, max(longest, took)
    assert spent <= burst + share * now + longest + 1e-6


def test_who_has_rested_may_go_on() -> None:
    budget = CpuBudget(0.25, 2.0)
    assert budget.affords(0.0, 7.0)  # what was spent before counts for nothing
    assert not budget.affords(2.0, 10.0)
    assert not budget.affords(3.9, 10.0)
    assert budget.affords(4.1, 10.0)
