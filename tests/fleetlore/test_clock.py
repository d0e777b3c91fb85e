import pytest

from fleetlore.clock import Clock
from fleetlore.testing import FakeClock


def test_time_moves_only_when_told() -> None:
    clock: Clock = FakeClock(100.0)
    assert (clock.now(), clock.monotonic()) == (100.0, 0.0)
    assert isinstance(clock, FakeClock)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 2.5)


def test_the_wall_clock_may_be_stepped_the_monotonic_one_may_not() -> None:
    clock = FakeClock(100.0)
    clock.set(50.0)
    assert (clock.now(), clock.monotonic()) == (50.0, 0.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
