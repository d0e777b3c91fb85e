"""`dead-letters redrive`, and the way of an event from the dead letters into a trajectory."""

import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import Result

from benchmarks.cloudevents import encode_record
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.read import read_dead_letters, read_to_end
from fleetlore.testing import FakeClock
from fleetlore.wire.dead_letter import DeadLetterRecord
from fleetlore.wire.events import BATCH_HEADERS, MAX_FUTURE_SECONDS, Event
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import BatchProducer
from streams.offline.memory_pipeline import MemoryStore
from streams.runtime.delivery import Delivery, Ledger
from streams.stage.base import Record
from streams.stages.s1_sessions.stage import SessionsStage
from tests.command import run_beside

PARTITIONS = 2


class Worker:
    """The first stage of the pipeline on a real broker, one batch when the test says so."""

    def __init__(self, broker: str, tenant: str) -> None:
        self.broker, self.tenant = broker, tenant
        self.clock = FakeClock()
        self.producer = BatchProducer(broker)
        metrics = Metrics("test")
        self._stage = SessionsStage(MemoryStore(), self.clock, metrics, 3600.0)
        self._delivery = Delivery(MemoryStore(), self.producer, metrics, self.clock, Ledger(self.clock))
        self._positions: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)

    async def read(self, name: str) -> list[Any]:
        return await read_to_end(self.broker, [topic(self.tenant, name)], 120)

    async def work(self) -> None:
        """Process all new records."""
        batch = [
            # The broker's own clock cannot be moved: here it is the pipeline's.
            Record(each.topic, each.partition, each.offset, each.key, each.value, dict(each.headers), self.clock.now())
            for each in await self.read("events")
            if each.offset >= self._positions[each.partition]
        ]
        for record in batch:
            self._positions[record.partition] = record.offset + 1
        await self._delivery.run(self._stage, batch)

    async def trajectories(self) -> list[Any]:
        return [value for record in await self.read("trajectories") for value in orjson.loads(record.value)]

    async def letters(self) -> list[DeadLetterRecord]:
        return [
            each async for each in read_dead_letters(self.broker, self.tenant, 10) if isinstance(each, DeadLetterRecord)
        ]


@pytest.fixture
async def worker(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> AsyncIterator[Worker]:
    names = ("events", "observations", "trajectories", "dead-letters")
    await make_topics(broker.address, tenant, *names, partitions=PARTITIONS)
    made = Worker(broker.address, tenant)
    await made.producer.start()
    yield made
    await made.producer.stop()


async def redrive(worker: Worker, *arguments: str) -> Result:
    options = ["dead-letters", "redrive", *arguments, "--broker", worker.broker, "--tenant", worker.tenant]
    return await run_beside(*options)


def session(tenant: str, name: str, start: float) -> list[Event]:
    kinds: list[tuple[Any, dict[str, Any]]] = [
        ("session.started", {"fleetlore.goal": "build it"}),
        ("outcome", {"gen_ai.tool.name": "shell", "error.type": "OSError", "error.message": "no space left"}),
        ("outcome", {"gen_ai.tool.name": "shell", "gen_ai.tool.call.result": "ok"}),
        ("session.ended", {"fleetlore.outcome": "success"}),
    ]
    return [Event(kind, tenant, "a", name, n, start + n, data) for n, (kind, data) in enumerate(kinds)]


@pytest.mark.long
async def test_from_a_bad_event_to_a_dead_letter_to_a_trajectory(worker: Worker) -> None:
    """An agent whose clock is an hour ahead: its events are refused until the hour has passed."""
    events = session(worker.tenant, "late", worker.clock.now() + 3600)
    good = session(worker.tenant, "good", worker.clock.now())
    async with AIOKafkaProducer(bootstrap_servers=worker.broker) as producer:
        for part in (events[:1] + good[:2], events[1:] + good[2:]):
            await producer.send_and_wait(
                topic(worker.tenant, "events"), encode_record(part), partition=1, headers=BATCH_HEADERS
            )
    await worker.work()
    assert {letter.reason for letter in await worker.letters()} == {"future_time"}
    assert [letter.offset for letter in await worker.letters()] == [0, 1, 1, 1]
    assert [each["session"] for each in await worker.trajectories()] == ["good"]

    too_early = await redrive(worker, "--reason", "future_time", "--yes")
    assert too_early.exit_code == 0, too_early.output
    assert "4 with future_time sent back to" in too_early.stdout
    await worker.work()
    assert [letter.redriven for letter in await worker.letters()] == [0] * 4 + [1] * 4
    assert len(await worker.trajectories()) == 1

    worker.clock.advance(3600 - MAX_FUTURE_SECONDS + 10)
    dry = await redrive(worker, "--reason", "future_time")
    assert "4 with future_time to send back" in dry.stdout and "dry run" in dry.stdout
    assert "4 were sent back before" in dry.stdout
    await worker.work()
    assert len(await worker.trajectories()) == 1

    done = json.loads((await redrive(worker, "--reason", "future_time", "--yes", "--json")).stdout)
    assert (done["reasons"], done["sent_before"], done["refused"]) == ({"future_time": 4}, 4, [])
    await worker.work()
    assert len(await worker.letters()) == 8
    _, late = await worker.trajectories()
    assert (late["session"], late["ending"], late.get("missing", 0), late["events"]) == ("late", "success", 0, 4)

    nothing = await redrive(worker, "--yes")
    assert "8 were sent back before" in nothing.stdout and nothing.exit_code == 0


async def test_wrong_usage_and_nothing_to_do(worker: Worker) -> None:
    assert (await redrive(worker, "--id", "nonsense")).exit_code == 2
    empty = await redrive(worker)
    assert empty.exit_code == 0 and "No dead letter of tenant" in empty.stdout
