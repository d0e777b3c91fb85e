from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.risk.outlook import blended
from fleetlore.wire.adapter_manifest import Blend

CHANCES = st.floats(0, 1)


@given(CHANCES, CHANCES)
def test_a_network_of_no_weight_changes_nothing(line: float, network: float) -> None:
    assert blended(Blend("sql", "first", 1.0, 0.0, 0.0, 3.0), line, network) == pytest.approx(line, abs=1e-5)


@given(CHANCES, CHANCES, CHANCES)
def test_the_surer_the_network_the_surer_both(line: float, one: float, other: float) -> None:
    blend = Blend("sql", "first", 0.7, 0.5, -0.2, 3.0)
    low, high = sorted([one, other])
    assert 0 <= blended(blend, line, low) <= blended(blend, line, high) <= 1
