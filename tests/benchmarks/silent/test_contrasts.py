"""What contrasts of sessions find where something is planted, and that they find nothing where nothing is."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.silent.cases import Case, read_cases
from benchmarks.silent.contrasts import Contrasts, Trait
from tests.benchmarks.silent.made_shop import Call, order, refund, session, shop, write, wrong


def learned(cases: list[Case]) -> Contrasts:
    return Contrasts.learned(cases, Random(0))


def made(folder: Path, bad: list[Call], good: list[Call], **changed: Any) -> list[Case]:
    """Ten sessions that ended badly with some calls, and thirty that ended well with others."""
    sessions = [session(number, number >= 10, *(bad if number < 10 else good)) | changed for number in range(40)]
    return read_cases(write(folder, sessions, [wrong(number, fee=5) for number in range(10)]))


def test_a_look_up_that_successes_made_is_told_before_the_call_that_lacks_it(tmp_path: Path) -> None:
    cases = read_cases(shop(tmp_path))
    contrasts = learned(cases)
    [rule] = contrasts.rules
    assert rule.trait == Trait("process_refund", "first", "get_rules")
    assert (rule.well, rule.of, rule.well_else, rule.of_else) == (30, 30, 0, 10)
    [told] = contrasts.lines(cases[0])
    assert (told.place, told.make) == (1, "get_rules")
    assert told.text == (
        "Before `process_refund`: sessions that first called `get_rules` ended well 30 of 30 (0.89–1.00), "
        "the others 0 of 10 (0.00–0.28)."
    )
    assert list(contrasts.lines(cases[1])) == []


@pytest.mark.parametrize(
    ("bad", "good", "trait"),
    [
        ([refund(1, "late")], [refund(1)], Trait("process_refund", "with", "reason=gift")),
        ([order(1), refund(1, amount=28)], [order(1), refund(1)], Trait("process_refund", "unheard", "amount")),
        (
            [refund(1, confirm=False), refund(1, amount=28)],
            [refund(1, amount=28, confirm=False), refund(1, amount=28)],
            Trait("process_refund", "changed"),
        ),
        ([refund(1)], [refund(1), refund(2)], Trait("process_refund", "several")),
    ],
)
def test_each_sort_of_contrast_is_found(tmp_path: Path, bad: list[Call], good: list[Call], trait: Trait) -> None:
    assert trait in {rule.trait for rule in learned(made(tmp_path, bad, good)).rules}


def test_nobody_is_told_to_look_less(tmp_path: Path) -> None:
    assert learned(made(tmp_path, [order(1), refund(1)], [refund(1)])).rules == ()


def test_what_one_agent_did_is_no_rule(tmp_path: Path) -> None:
    assert learned(made(tmp_path, [refund(1, "late")], [refund(1)], agent="one")).rules == ()


def test_rewards_that_follow_nothing_make_no_rule(tmp_path: Path) -> None:
    sessions = [
        session(number, number % 2 > 0, refund(number, ("gift", "late")[number // 2 % 2])) for number in range(40)
    ]
    cases = read_cases(write(tmp_path, sessions, [wrong(number, fee=5) for number in range(0, 40, 2)]))
    assert learned(cases).rules == ()
