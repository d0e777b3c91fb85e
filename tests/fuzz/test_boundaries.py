"""No bytes of others crash what reads them, hold it up or are dropped without a reason: a short part of `make fuzz`."""

from tests.fuzz.boundaries import BOUNDARIES
from tests.fuzz.boundary import answers, batch_of, smallest
from tests.rows import for_each


@for_each("name", *BOUNDARIES)
def test_many_odd_inputs(name: str) -> None:
    boundary = BOUNDARIES[name]
    inputs = batch_of(boundary, "smoke", min(1_000, boundary.full // 100))
    try:
        found = answers(boundary, inputs)
    except Exception as error:
        error.add_note(f"the smallest inputs that fail: {smallest(boundary, inputs, error)!r}"[:4_000])
        raise
    assert found["taken"] > len(inputs) // 20 and len(found) > 1, f"the inputs are all alike: {found}"
