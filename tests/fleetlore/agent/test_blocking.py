import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import BlockingFleet, Budget, ConfigError, Fleet, NotOpen, Session, current_session
from fleetlore.agent.blocking import BlockingSession
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.topics import topic
from tests.rows import for_each


def test_the_whole_story_without_asyncio(broker: EmbeddedBroker, tenant: str) -> None:
    with BlockingFleet("agent", broker=broker.address, tenant=tenant) as fleet:
        assert fleet.ready(120)
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
            assert current_session() is session
            with ThreadPoolExecutor() as pool:
                pool.submit(session.begin("sql", {"q": 1}).end, "done").result()
            session.message("user", "hello")
            session.spend(tokens=90)
            assert [caution.id for caution in session.cautions()] == ["guard:tokens"]
            session.succeed(reward=1.0)
        with fleet.session("g") as session:
            session.fail()
        assert fleet.feedback("s1", "failure")
        assert fleet.flush(120)
        assert fleet.adapter_version is None
    assert (fleet.sent, fleet.dropped) == (10, 0)


def test_a_mistake_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError), BlockingFleet("a\nb", broker="x:1"):
        pass
    assert set(threading.enumerate()) <= before


@for_each("blocking, original", (BlockingFleet, Fleet), (BlockingSession, Session))
def test_arguments_are_those_of_the_original(blocking: type, original: type) -> None:
    def arguments(of: type, name: str) -> list[tuple[str, Any, Any]]:
        parameters = inspect.signature(getattr(of, name)).parameters.values()
        return [(each.name, each.kind, each.default) for each in parameters]

    shared = [name for name in vars(blocking) if callable(getattr(original, name, None)) and name[:2] != "__"]
    assert shared
    for name in [*shared, *(["__init__"] if blocking is BlockingFleet else [])]:
        assert arguments(blocking, name) == arguments(original, name), name


@for_each("blocking", BlockingFleet, BlockingSession)
def test_nothing_is_to_be_awaited(blocking: type) -> None:
    assert not [name for name, _ in inspect.getmembers(blocking, inspect.iscoroutinefunction) if name[0] != "_"]


def test_it_is_started_and_closed_as_by_its_block(unused_address: str) -> None:
    before = set(threading.enumerate())
    fleet = BlockingFleet("agent", broker=unused_address, ready_seconds=0)
    fleet.close()
    fleet.start()
    with fleet.session("g") as session:
        session.succeed()
    fleet.close(0.0)
    fleet.close()
    assert fleet.dropped == 2 and set(threading.enumerate()) <= before
    with pytest.raises(NotOpen, match="has been left"):
        fleet.flush(1)


async def test_async_with_says_what_to_write() -> None:
    with pytest.raises(NotOpen, match="use `with`"):
        async with BlockingFleet("agent", broker="x:1"):
            pass


@pytest.mark.parametrize("forked", [False, True])
async def test_what_was_recorded_is_sent_though_nobody_closes_the_fleet(
    broker: EmbeddedBroker, tenant: str, forked: bool
) -> None:
    code = f"""
import os, sys
from fleetlore import BlockingFleet
fleet = BlockingFleet("agent", broker={broker.address!r}, tenant={tenant!r})
fleet.start()
if {forked} and os.fork() == 0:
    sys.exit()
with fleet.session("goal") as session:
    session.succeed()
"""
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], timeout=60, check=False)
    assert ended.returncode == 0
    [record] = await read_to_end(broker.address, [topic(tenant, "events")], 60)
    assert [each["type"] for each in orjson.loads(record.value)][-1] == "ai.fleetlore.session.ended.v1"
