"""An agent whose events are kept instead of sent."""

import pytest

from fleetlore import Fleet
from fleetlore.recall.index import LoreIndex
from fleetlore.testing import FakeClock
from tests.doubles.recorder import Recorder


@pytest.fixture
def index() -> LoreIndex:
    return LoreIndex()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def fleet(recorder: Recorder) -> Fleet:
    fleet = Fleet("agent", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(1000.0))
    fleet.emitter = fleet.reviews = recorder
    return fleet
