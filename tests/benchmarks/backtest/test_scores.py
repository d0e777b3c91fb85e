from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.backtest.scores import balanced_accuracy, calibration_error, cohen_kappa, mean

PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), max_size=30)


@given(PAIRS)
def test_no_figure_is_ever_nan(pairs: list[tuple[float, bool]]) -> None:
    score, failed = np.array([p for p, _ in pairs], float), np.array([bad for _, bad in pairs], bool)
    said = score > 0.5
    for figure in (
        cohen_kappa(said, failed),
        balanced_accuracy(said, failed),
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
