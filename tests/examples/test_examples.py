import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.topics import topic
from streams.offline.memory_pipeline import EventClock, MemoryPipeline
from tests.read_back import read_back, sent

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def address(broker: EmbeddedBroker) -> Iterator[str]:
    """A broker of this module alone: examples belong to the default tenant."""
    with EmbeddedBroker() as mine:
        yield mine.address


def run(name: str, address: str) -> str:
    # All agents have one owner, as in `fleetlore up`.
    given = {"FLEETLORE_BROKER": address, "FLEETLORE_HOLDOUT_SHARE": "0", "FLEETLORE_QUORUM": "1"}
    env, command = {**os.environ, "PYTHONPATH": str(ROOT), **given}, [sys.executable, ROOT / "examples" / name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_without_a_broker(name: str, unused_address: str) -> None:
    assert run(name, unused_address)


@pytest.mark.long
async def test_retrieve_act_judge(address: str) -> None:
    known = len(await sent(address))
    assert run("reasoning_bank.py", address).count("success after 2 calls, 1 failed") == 2
    assert await learn((await sent(address))[known:], address)
    said = run("reasoning_bank.py", address)
    assert said.count("As others found") == 2 and said.count("success after 1 calls, 0 failed") == 2


async def learn(seen: list[dict[str, Any]], address: str) -> list[MemoryItem]:
    """Publish what the stages make of events; return the items."""
    fleet = MemoryPipeline(EventClock(time.time()))
    await fleet.run(read_back(event, "default") for event in seen)
    await fleet.settle()
    found = {name: fleet.store.bodies(name) for name in ("patterns", "items")}
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for name, bodies in found.items():
            for body in bodies:
                key = orjson.loads(body)["id"].encode()
                await producer.send_and_wait(topic("default", name), body, key=key)
    return [MemoryItem.from_json(body) for body in found["items"]]
