"""A worker makes its stages anew for each assignment."""

from fleetlore.config import Settings
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.app import FleetApp


async def test_a_revocation_throws_the_stages_away() -> None:
    app = FleetApp(Settings(broker="127.0.0.1:1", milvus="http://127.0.0.1:1"), Metrics("worker"), Readiness())
    before = dict(app._stages)
    await app.on_revoked()
    assert app._stages.keys() == before.keys() and "sessions" in before
    assert not set(map(id, app._stages.values())) & set(map(id, before.values()))
