from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import msgspec
import numpy as np
import pytest

from benchmarks.foresight.earlier_sessions import Pull
from benchmarks.foresight.in_stream import in_stream
from fleetlore.wire.trajectory import Trajectory
from models.backtest.cases import Case, Slice
from models.backtest.scores import Floats
from models.judge.critic import Critic

MakeCase = Callable[..., Case]
GOOD, LAST = ("SELECT good", None), ("SUBMIT", None)


PULL = Pull(16.0, 1.0, 1.0)


class OneFamily:
    """As much of a critic as is asked."""

    def family(self, trajectory: Trajectory, calls: int | None) -> int:
        return 1


def corrected(cases: list[Case], slices: list[Slice], p: float = 0.5) -> Floats:
    foreseen = {1: (list(range(len(cases))), np.full(len(cases), p))}
    ((places, found),) = in_stream(cases, slices, foreseen, cast(Critic, OneFamily()), PULL).values()
    assert places == list(range(len(cases)))
    return found


def at(case: Case, started: float, ended: float) -> Case:
    return replace(case, trajectory=msgspec.structs.replace(case.trajectory, started=started), ended=ended)


def test_only_what_ended_before_is_known(make_case: MakeCase) -> None:
    ann = [
        at(make_case(f"{n}", "ann", f"t{n}", GOOD, LAST), *times) for n, times in enumerate([(0, 9), (5, 7), (8, 20)])
    ]
    ann += [at(make_case("9", "ann", "t9", GOOD, LAST), 30, 31)]
    first, during, after, last = corrected(ann, ["A"] * 4).tolist()
    # The second began while the first ran; the third when the second alone had ended.
    assert first == during == 0.5
    assert 0.5 < after < last
    # Nothing is read of its own end.
    other = [*ann[:3], replace(ann[3], failed=False)]
    assert corrected(other, ["A"] * 4)[3] == last


def test_the_order_of_the_list_is_nothing(make_case: MakeCase) -> None:
    cases = [
        at(make_case(f"{n}", "ab"[n % 2], "tu"[n // 2 % 2], GOOD, LAST, failed=n % 3 > 0), n, n + 0.5)
        for n in range(12)
    ]
    there = corrected(cases, ["AT"] * 12)
    np.testing.assert_array_equal(there, corrected(cases[::-1], ["AT"] * 12)[::-1])
    assert len(set(there.tolist())) > 6


@pytest.mark.parametrize(
    ("slice_", "agent", "task"), [("A", True, False), ("T", False, True), ("S", True, True), ("K", False, False)]
)
def test_only_what_training_does_not_have_is_learned(
    make_case: MakeCase, slice_: Slice, agent: bool, task: bool
) -> None:
    seen = [at(make_case(f"{n}", "ann", "cook", GOOD, LAST), n, n + 0.5) for n in range(5)]
    for own, learned in (
        (make_case("x", "ann", "bake", GOOD, LAST), agent),
        (make_case("x", "ben", "cook", GOOD, LAST), task),
        (make_case("x", "ann", "cook", GOOD, LAST, source="elsewhere"), False),
    ):
        assert (corrected([*seen, at(own, 50, 51)], [slice_] * 6)[5] > 0.5) == learned
