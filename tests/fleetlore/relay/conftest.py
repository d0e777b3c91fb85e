"""A relay without a broker: its events are kept, its lore is given."""

import pytest

from fleetlore import Fleet
from fleetlore.testing import FakeClock
from tests.doubles.recorder import Recorder
from tests.served import serving

__all__ = ["NOW", "serving"]

NOW = 1_700_000_000.0


@pytest.fixture
def fleet(recorder: Recorder) -> Fleet:
    fleet = Fleet("relay", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(NOW))
    fleet.emitter = recorder  # type: ignore[assignment]
    return fleet
