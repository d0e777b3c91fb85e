from __future__ import annotations

import pytest

from fleetlore.errors import ConfigError
from models.backtest.heard import CallLog
from models.backtest.splitting import slices_of, split
from tests.models.backtest.made import log


@pytest.fixture
def cases() -> list[CallLog]:
    return [
        log(session=f"{source}/{agent}/{task}", agent=f"agent-{agent}", task=f"task-{task}", source=source)
        for source in ("shop", "bank")
        for agent in range(5)
        for task in range(10)
    ]


def test_the_slices_come_out_by_themselves(cases: list[CallLog]) -> None:
    train, test = split(cases, seed=1, share=0.2)
    slices = slices_of(train, test)
    # Of each source one of five agents and two of ten tasks.
    assert {name: slices.count(name) for name in set(slices)} == {"A": 16, "T": 16, "AT": 4}
    assert len(train) == 64


def test_the_split_depends_on_seed_and_names_alone(cases: list[CallLog]) -> None:
    names = [{case.session for case in part} for part in split(cases, 1, 0.2)]
    assert names == [{case.session for case in part} for part in split(cases[::-1], 1, 0.2)]
    assert names != [{case.session for case in part} for part in split(cases, 2, 0.2)]


def test_a_source_is_left_out_whole(cases: list[CallLog]) -> None:
    train, test = split(cases, 1, 0.2, leave_out="bank")
    assert {case.source for case in train} == {"shop"}
    assert slices_of(train, test).count("S") == 50


def test_set_ups_of_one_model_are_held_out_together() -> None:
    agents = [*(f"big/{each}" for each in "abcdef"), "small/react", "small/plan", "other/react", "last/react"]
    cases = [log(session=f"{agent} {task}", agent=agent, task=f"task-{task}") for agent in agents for task in range(10)]
    for seed in range(5):
        train, test = split(cases, seed, share=0.2)
        known = {case.agent for case in train}
        held = {case.agent for case in test} - known
        # Two of ten, and never one of two set-ups.
        assert len(held) == 2
        assert not {agent.partition("/")[0] for agent in held} & {agent.partition("/")[0] for agent in known}
    of_two, other = split(
        [case for case in cases if case.agent[0] in "bs"], 0, 0.1
    )  # none is small enough: the smaller
    assert {case.agent for case in other} - {case.agent for case in of_two} == {"small/react", "small/plan"}


def test_what_cannot_be_split_is_refused(cases: list[CallLog]) -> None:
    with pytest.raises(ConfigError, match="no source 'mine' to leave out; there are: bank, shop"):
        split(cases, 1, 0.2, leave_out="mine")
    with pytest.raises(ConfigError, match="too few agents and tasks"):
        split(cases[:1], 1, 0.2)


def test_each_session_is_sorted_into_its_slice() -> None:
    train = [log(agent="ann", task="cook"), log(agent="ben", task="bake")]
    test = [
        log(agent="new", task="cook"),
        log(agent="ann", task="roast"),
        log(agent="new", task="roast"),
        log(agent="ann", task="bake"),
        log(agent="ann", task="cook", source="elsewhere"),
    ]
    assert slices_of(train, test) == ["A", "T", "AT", "K", "S"]


def test_an_agent_of_another_source_is_a_new_agent() -> None:
    train = [log(agent="ann", task="cook"), log(agent="ben", task="cook", source="elsewhere")]
    assert slices_of(train, [log(agent="ann", task="cook", source="elsewhere")]) == ["A"]
