"""No bytes of others crash what reads them, hold it up or are dropped without a reason: a short part of `make fuzz`."""

import os
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.fuzz.boundaries import BOUNDARIES
from tests.fuzz.boundary import answers, batch_of

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "10"))
each_boundary = pytest.mark.parametrize("name", BOUNDARIES)


@each_boundary
@settings(derandomize=True, max_examples=EXAMPLES)
@given(random=st.randoms(use_true_random=False), count=st.integers(1, 3))
def test_odd_inputs_that_can_be_shrunk(name: str, random: Random, count: int) -> None:
    boundary = BOUNDARIES[name]
    inputs = [boundary.make(random) for _ in range(count)]
    note(f"inputs: {inputs}")
    answers(boundary, inputs)


@each_boundary
def test_many_odd_inputs(name: str) -> None:
    boundary = BOUNDARIES[name]
    inputs = batch_of(boundary, "smoke", min(1_000, boundary.full // 100))
    found = answers(boundary, inputs)
    assert found["taken"] > len(inputs) // 20 and len(found) > 1, f"the inputs are all alike: {found}"
