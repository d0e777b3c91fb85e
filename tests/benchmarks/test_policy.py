"""That the objectives are compared on the same pairs."""

from pathlib import Path

import pytest

from benchmarks.policy import OBJECTIVES, compared
from benchmarks.tiny_model import save_tiny_model
from models.policy.pairs import preference_pairs
from tests.models.policy.made import fleet


@pytest.mark.long
def test_a_row_says_what_an_objective_gained(tmp_path: Path) -> None:
    pairs, base = preference_pairs(fleet(60), 2), save_tiny_model(tmp_path)
    rows = [compared(base, each, pairs, updates=5, most_later=12) for each in OBJECTIVES]
    assert [row["objective"] for row in rows] == ["margin", "dpo", "imitation"]
    assert {row["pairs"] for row in rows} == {len(pairs)} and len({row["margin_base"] for row in rows}) == 1
    assert rows[0]["margin"] > rows[0]["margin_base"] and rows[1]["margin"] > rows[1]["margin_base"]
