from __future__ import annotations

from collections.abc import Callable

import pytest

from fleetlore.errors import ConfigError
from models.backtest.cases import Case, slices_of
from models.backtest.splitting import split

MakeCase = Callable[..., Case]


@pytest.fixture
def cases(make_case: MakeCase) -> list[Case]:
    return [
        make_case(f"{source}/{agent}/{task}", f"agent-{agent}", f"task-{task}", source=source)
        for source in ("shop", "bank")
        for agent in range(5)
        for task in range(10)
    ]


def test_the_slices_come_out_by_themselves(cases: list[Case]) -> None:
    train, test = split(cases, seed=1, share=0.2)
    slices = slices_of(train, test)
    # Of each source one of five agents and two of ten tasks.
    assert {name: slices.count(name) for name in set(slices)} == {"A": 16, "T": 16, "AT": 4}
    assert len(train) == 64


def test_the_split_depends_on_seed_and_names_alone(cases: list[Case]) -> None:
    names = [{case.trajectory.session for case in part} for part in split(cases, 1, 0.2)]
    assert names == [{case.trajectory.session for case in part} for part in split(cases[::-1], 1, 0.2)]
    assert names != [{case.trajectory.session for case in part} for part in split(cases, 2, 0.2)]


def test_a_source_is_left_out_whole(cases: list[Case]) -> None:
    train, test = split(cases, 1, 0.2, leave_out="bank")
    assert {case.source for case in train} == {"shop"}
    assert slices_of(train, test).count("S") == 50


def test_what_cannot_be_split_is_refused(cases: list[Case]) -> None:
    with pytest.raises(ConfigError, match="no source 'mine' to leave out; there are: bank, shop"):
        split(cases, 1, 0.2, leave_out="mine")
    with pytest.raises(ConfigError, match="too few agents and tasks"):
        split(cases[:1], 1, 0.2)
