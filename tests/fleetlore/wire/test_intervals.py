import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.stats import newcombe, wilson


def test_the_difference_of_two_rates_is_newcombes() -> None:
    # Newcombe 1998, table II, cases (a) and (h) by method 10.
    assert newcombe((70, 56), (80, 48)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe((10, 10), (10, 0)) == pytest.approx((0.6075, 1.0), abs=5e-5)


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_an_interval_holds_its_estimate_and_stays_a_difference(n: int, m: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    low, high = newcombe((n, a), (m, b))
    assert -1 - 1e-9 <= low <= a / n - b / m + 1e-9 and a / n - b / m - 1e-9 <= high <= 1 + 1e-9
    assert newcombe((m, b), (n, a)) == pytest.approx((-high, -low))


def test_nothing_is_known_of_a_rate_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(1, 1)
    assert 0.2 < low < 0.3 and high == 1.0
