"""The figures of the agents of a process, against a broker that goes away."""

from weakref import WeakSet

import pytest

import fleetlore
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import Fleet
from fleetlore.agent import fleet as of_process
from tests.waiting import until


@pytest.fixture(autouse=True)
def _no_fleets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_process, "_fleets", WeakSet())


async def test_metrics_say_what_was_sent_shown_and_how_old_the_lore_is(own_broker: EmbeddedBroker, tenant: str) -> None:
    own_broker.start()
    before = fleetlore.metrics()
    async with Fleet("agent", broker=own_broker.address, tenant=tenant) as fleet:
        with fleet.session("find a bicycle") as session:
            session.advise("search", {"index": "products"})
            async with session.action("search", {"index": "products"}) as action:
                action.result = "3 hits"
            session.succeed()
        assert await fleet.flush(120)
        now = fleetlore.metrics()
        assert now["fleets"] == before["fleets"] + 1
        assert await fleet.ready(120)
        assert (fleetlore.metrics()["replica_loaded"], now["records_unreadable"]) == (1, 0)
        assert now["events_sent_total"] - before["events_sent_total"] == fleet.sent == 3
        assert now["events_dropped_total"] == before["events_dropped_total"]
        assert now["advice_total"] - before["advice_total"] == 1
        assert 0 < now["advice_seconds_p50"] <= now["advice_seconds_p99"]
        await until(lambda: fleet.replica.age_seconds <= 1)
        own_broker.kill()
        await until(lambda: fleet.replica.age_seconds >= 2)
        assert fleetlore.metrics()["replica_age_seconds"] >= 2
    now = fleetlore.metrics()
    assert now["fleets"] == before["fleets"], "the fleet was left"
    assert now["events_sent_total"] - before["events_sent_total"] == 3
