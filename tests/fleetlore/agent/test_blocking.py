from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import BlockingFleet, Budget, ConfigError, FleetloreError


def test_the_whole_story_without_asyncio(broker: EmbeddedBroker, tenant: str) -> None:
    with BlockingFleet("agent", broker=broker.address, tenant=tenant) as fleet:
        assert fleet.ready(10)
        with fleet.session("g", task="t", session_id="s1", budget=Budget(tokens=100)) as session:
            assert session.id == "s1"
            assert not session.advise("sql", {"query": "x"})
            with session.action("sql", {"query": "x"}) as action:
                action.result = [1]
                assert action.result == [1]
            with pytest.raises(ValueError, match="mine"), session.action("sql"):
                raise ValueError("mine")
            with session.action("sql") as action:
                action.fail("E", "text")
            session.message("user", "hello")
            session.spend(tokens=90)
            assert [caution.id for caution in session.cautions()] == ["guard:tokens"]
            session.succeed(reward=1.0)
        with fleet.session("g") as session:
            session.fail()
        assert fleet.feedback("s1", "failure")
        assert fleet.flush(30)
        assert fleet.retrieval is None and fleet.adapter_version is None
    assert (fleet.sent, fleet.dropped) == (9, 0)


def test_a_missing_broker_neither_blocks_nor_breaks(unused_address: str) -> None:
    started = time.perf_counter()
    with BlockingFleet("agent", broker=unused_address, ready_seconds=0) as fleet, fleet.session("g") as session:
        session.succeed()
    assert time.perf_counter() - started < 20.0  # a busy machine is late; what hangs hangs for ever
    assert (fleet.sent, fleet.dropped) == (0, 2)


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(FleetloreError, match="inside its `with` block"):
        BlockingFleet("agent").flush(1)
    before: Any = threading.active_count()
    with pytest.raises(ConfigError), BlockingFleet("a\nb", broker="x:1"):
        pass
    assert threading.active_count() == before
