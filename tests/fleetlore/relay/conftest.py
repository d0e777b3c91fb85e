"""A relay without a broker: its events are kept, its lore is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from fleetlore import Fleet
from fleetlore.testing import FakeClock
from streams.embedded.broker import free_port
from tests.doubles.recorder import Recorder

NOW = 1_700_000_000.0


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def fleet(recorder: Recorder) -> Fleet:
    fleet = Fleet("relay", broker="nowhere:1", holdout_share=0.0, clock=FakeClock(NOW))
    fleet.emitter = recorder  # type: ignore[assignment]
    return fleet


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The address of an application, served on a real socket."""
    port = free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task
