from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.auroc import auroc

PAIRS = st.lists(st.tuples(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-3, 3)), st.booleans()), max_size=30)


@given(PAIRS)
def test_it_is_the_share_of_pairs_ranked_right(pairs: list[tuple[float, bool]]) -> None:
    good = [score for score, positive in pairs if positive]
    bad = [score for score, positive in pairs if not positive]
    found = auroc([score for score, _ in pairs], [positive for _, positive in pairs])
    if not good or not bad:
        assert found is None
    else:
        assert found == pytest.approx(sum((a > b) + (a == b) / 2 for a in good for b in bad) / len(good) / len(bad))
