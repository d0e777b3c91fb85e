"""A relay without a broker: its events are kept, its lore is given."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from fleetlore import Fleet
from fleetlore.relay.app import relay_app
from fleetlore.testing import FakeClock
from tests.doubles.recorder import Recorder
from tests.served import serving

NOW = 1_700_000_000.0


@pytest.fixture
def fleet(recorder: Recorder) -> Fleet:
    fleet = Fleet("relay", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(NOW))
    fleet.emitter = recorder
    return fleet


@asynccontextmanager
async def client_of(app: Any, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that is served."""
    async with serving(app) as address, httpx2.AsyncClient(base_url=address, timeout=120, headers=headers) as http:
        yield http


@pytest.fixture
async def http(fleet: Fleet) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(relay_app({"default": fleet}), **{"fleetlore-agent": "a1"}) as client:
        yield client
