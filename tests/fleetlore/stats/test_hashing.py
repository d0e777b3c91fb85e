from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.stats.hashing import HASHES, drawn, stable_hash


@given(st.text())
def test_a_hash_is_a_number_that_json_keeps(text: str) -> None:
    assert 0 <= stable_hash(text) < HASHES
    assert int(float(stable_hash(text))) == stable_hash(text)


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_what_one_share_draws_a_larger_one_draws_as_well(key: str, one: float, other: float) -> None:
    assert not drawn(key, 0.0) and drawn(key, 1.0)
    assert drawn(key, min(one, other)) <= drawn(key, max(one, other))
