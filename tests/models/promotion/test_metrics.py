from __future__ import annotations

import math

import numpy as np
import pytest

from models.promotion.metrics import Predictions


def predictions(*pairs: tuple[float, bool]) -> Predictions:
    return Predictions(
        np.array([p for p, _ in pairs]),
        np.array([f for _, f in pairs], dtype=np.bool_),
        np.array(["t"] * len(pairs)),
        np.arange(len(pairs)),
        np.array(["d"] * len(pairs)),
    )


def test_balanced_accuracy_weighs_both_outcomes_alike() -> None:
    assert predictions((0.9, True), (0.1, False), (0.1, False), (0.9, False)).balanced_accuracy == pytest.approx(5 / 6)


def test_cross_entropy_of_a_coin() -> None:
    assert predictions((0.5, True), (0.5, False)).cross_entropy == pytest.approx(math.log(2))


def test_nothing_predicted_gives_no_figures() -> None:
    empty = predictions()
    assert math.isnan(empty.auroc) and math.isnan(empty.cross_entropy) and math.isnan(empty.balanced_accuracy)
