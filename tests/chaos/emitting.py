"""Run the child that emits: `python -m tests.chaos.emitting BROKER TENANT SEED SESSIONS SECONDS ACKED`, in order,
with `--disorder`, or by the relay at `--relay URL`.

It writes down in the file ACKED how many of the events the broker has acknowledged, and goes on from there when it is
started again. Events that it had sent but not noted when it was killed are sent twice.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import httpx2
import msgspec
from aiokafka import AIOKafkaProducer

from benchmarks.cloudevents import encode_record
from fleetlore.kafka.emitter import Emitter
from fleetlore.relay.schemas import EventsAnswer
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import partition_for, topic
from tests.chaos.fleet import fleet_events

BURST = 64
FLUSH_SECONDS = 5.0
DISORDER_EVENTS = 4  # in a record
REPEATED = 0.3

Send = Callable[[list[Event]], Awaitable[None]]


def acknowledged(path: Path) -> int:
    """How many events the broker has, as far as is written down; a line that was cut off does not count."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return int(lines[-1]) if lines else 0


@asynccontextmanager
async def in_order(broker: str, tenant: str, rng: Random) -> AsyncIterator[Send]:
    """Send events in order, like an agent."""
    emitter = Emitter(broker, tenant)
    await emitter.start()

    async def send(events: list[Event]) -> None:
        for event in events:
            while not emitter.emit(event):
                await asyncio.sleep(0.05)
        while not await emitter.flush(FLUSH_SECONDS):
            pass

    yield send
    await emitter.close()


async def emit_in_bursts(broker: str, tenant: str, events: list[Event], burst: int = 16, pause: float = 0.0) -> None:
    async with in_order(broker, tenant, Random(1)) as send:
        for start in range(0, len(events), burst):
            await send(events[start : start + burst])
            await asyncio.sleep(pause)


@asynccontextmanager
async def in_disorder(broker: str, tenant: str, rng: Random) -> AsyncIterator[Send]:
    """Send events as no client should: records of one partition overtake each other, and some come twice."""
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        name = topic(tenant, "events")
        partitions = len(await producer.partitions_for(name))

        async def send(events: list[Event]) -> None:
            lanes: dict[int, list[Event]] = {}
            for event in events:
                lanes.setdefault(partition_for(event.session, partitions), []).append(event)
            records = [
                (partition, lane[start : start + DISORDER_EVENTS])
                for partition, lane in lanes.items()
                for start in range(0, len(lane), DISORDER_EVENTS)
            ]
            records += [record for record in records if rng.random() < REPEATED]
            rng.shuffle(records)
            for partition, chunk in records:
                await producer.send_and_wait(name, encode_record(chunk), partition=partition, headers=BATCH_HEADERS)

        yield send


@asynccontextmanager
async def by_relay(url: str, broker: str, tenant: str, rng: Random) -> AsyncIterator[Send]:
    """Send events like an agent in another language, which keeps them until the relay has stored them."""
    async with httpx2.AsyncClient(base_url=url, headers={"fleetlore-tenant": tenant}, timeout=10) as client:

        async def send(events: list[Event]) -> None:
            while True:
                try:
                    answer = await client.post("/v1/events", content=encode_record(events))
                    if answer.is_success and msgspec.json.decode(answer.content, type=EventsAnswer).stored:
                        return
                    assert answer.is_success or answer.status_code == 429, answer.text
                except httpx2.TransportError:
                    pass  # it is killed, or being started again
                await asyncio.sleep(0.05)

        yield send


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("broker", str), ("tenant", str), ("seed", int), ("sessions", int), ("seconds", float)):
        parser.add_argument(name, type=kind)
    parser.add_argument("acked", type=Path)
    parser.add_argument("--disorder", action="store_true")
    parser.add_argument("--relay")
    told = parser.parse_args()
    events = fleet_events(told.tenant, told.seed, told.sessions)
    pause = told.seconds * BURST / len(events)
    sender = partial(by_relay, told.relay) if told.relay else in_disorder if told.disorder else in_order
    async with sender(told.broker, told.tenant, Random(told.seed)) as send:
        for start in range(acknowledged(told.acked), len(events), BURST):
            burst = events[start : start + BURST]
            await send(burst)
            with told.acked.open("a") as file:
                file.write(f"{start + len(burst)}\n")
            await asyncio.sleep(pause)


if __name__ == "__main__":
    asyncio.run(main())
