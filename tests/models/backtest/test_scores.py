from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.backtest.scores import (
    balanced_accuracy,
    brier,
    calibration_error,
    cohen_kappa,
    mean,
    within_auroc,
)

PAIRS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans(), st.sampled_from("abc")), max_size=30
)


def arrays(pairs: list[tuple[float, bool, str]]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    return (
        np.array([p for p, *_ in pairs], float),
        np.array([failed for _, failed, _ in pairs], bool),
        [group for *_, group in pairs],
    )


@given(PAIRS)
def test_within_auroc_counts_the_pairs_of_each_group_alone(pairs: list[tuple[float, bool, str]]) -> None:
    score, failed, groups = arrays(pairs)
    wins = [
        (p > q) + (p == q) / 2
        for (p, bad, group), (q, worse, other) in product(pairs, pairs)
        if bad and not worse and group == other
    ]
    assert within_auroc(score, failed, groups) == pytest.approx(sum(wins) / len(wins) if wins else None)


@given(PAIRS)
def test_no_figure_is_ever_nan(pairs: list[tuple[float, bool, str]]) -> None:
    score, failed, groups = arrays(pairs)
    said = score > 0.5
    for figure in (
        within_auroc(score, failed, groups),
        cohen_kappa(said, failed),
        balanced_accuracy(said, failed),
        brier(score, failed),
        calibration_error(score, failed),
        mean(score.tolist()),
    ):
        assert figure is None or math.isfinite(figure)


def test_kappa_of_a_published_example() -> None:
    # Cohen's two readers: 20 both yes, 5 and 10 in dispute, 15 both no.
    said = np.array([True] * 25 + [False] * 25)
    true = np.array([True] * 20 + [False] * 5 + [True] * 10 + [False] * 15)
    assert cohen_kappa(said, true) == pytest.approx(0.4)


def test_kappa_is_undefined_where_there_is_only_one_outcome() -> None:
    assert cohen_kappa(np.ones(5, bool), np.ones(5, bool)) is None
    assert balanced_accuracy(np.ones(5, bool), np.ones(5, bool)) is None


def test_calibration_error_is_the_weighted_gap() -> None:
    probability = np.array([0.9, 0.9, 0.1, 0.1])
    assert calibration_error(probability, np.array([True, True, False, False])) == pytest.approx(0.1)
    assert calibration_error(probability, np.array([False, False, True, True])) == pytest.approx(0.9)
