"""Make the events that the benchmarks send: logged runs, in records as the emitter fills them.

The runs are the real ones if their folder exists, and those of the scripted world of `benchmarks.demo.world` otherwise.
Its errors are short and its sessions hold no messages, so figures of the two are not comparable. `Traffic.source` says
which it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer

from benchmarks.replay import interleave
from benchmarks.rollouts import logged, rollouts
from benchmarks.runs import read_runs
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.kafka.encode import encode_event
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, MAX_BYTES, MAX_EVENTS, Event
from fleetlore.wire.topics import partition_for, topic
from sinks.topics import ensure_topics

REAL_DATA = Path(__file__).parents[2] / "shared" / "data" / "dev"
PARTITIONS = 4
TENANT = DEFAULT_TENANT
TOPIC = topic(TENANT, "events")
WORLD_SESSIONS = 5_000
_REQUEST_BYTES = 1024 * 1024


class Sent(NamedTuple):
    """A record's value and where it goes."""

    partition: int
    events: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Traffic:
    """Records, in the order in which they are sent."""

    source: str
    records: list[Sent]

    @property
    def events(self) -> int:
        return sum(record.events for record in self.records)

    @property
    def bytes(self) -> int:
        return sum(len(record.value) for record in self.records)

    def describe(self) -> str:
        events, records = self.events, len(self.records)
        return (
            f"{events:,} events of {self.source} in {records:,} records: "
            f"{events / records:.0f} events a record, {self.bytes / events:.0f} bytes an event"
        )


def sessions() -> tuple[str, list[LoggedSession]]:
    """The source of the runs, and the runs."""
    if REAL_DATA.is_dir():
        return "real runs of agents", read_runs(REAL_DATA)
    return "the scripted world", [logged(rollout) for rollout in rollouts(7, WORLD_SESSIONS)]


def events_of(runs: Sequence[LoggedSession], seed: int, tenant: str = TENANT) -> Iterator[Event]:
    """Events without end: all runs with agents interleaved, and then again as sessions of other names."""
    for round in count():
        named = [replace(run, session=f"{run.session}~{round}") for run in runs]
        yield from interleave(named, tenant, seed + round, time.time())


def traffic(events: int) -> Traffic:
    """About `events` events."""
    source, runs = sessions()
    return Traffic(source, list(pack(ended(islice(events_of(runs, 0), events)))))


def ended(events: Iterable[Event]) -> Iterator[Event]:
    """The events, and an end for every session that they leave open.

    An open session holds the commit back, and the end of the work could not be seen.
    """
    last: dict[str, Event] = {}
    for event in events:
        last[event.session] = event
        if event.kind == "session.ended":
            del last[event.session]
        yield event
    for event in last.values():
        yield event._replace(kind="session.ended", sequence=event.sequence + 1, data={ev.OUTCOME: "unknown"})


def pack(events: Iterable[Event], partitions: int = PARTITIONS) -> Iterator[Sent]:
    """Make records as a busy `fleetlore.kafka.emitter` fills them: by partition, bounded in events and bytes."""
    waiting: list[list[bytes]] = [[] for _ in range(partitions)]
    sizes = [0] * partitions
    for event in events:
        partition = partition_for(event.session, partitions)
        value = encode_event(event)
        queue = waiting[partition]
        if queue and (len(queue) == MAX_EVENTS or sizes[partition] + len(value) + 2 > MAX_BYTES):
            yield Sent(partition, len(queue), b"[" + b",".join(queue) + b"]")
            queue.clear()
            sizes[partition] = 0
        queue.append(value)
        sizes[partition] += len(value) + 1
    for partition, queue in enumerate(waiting):
        if queue:
            yield Sent(partition, len(queue), b"[" + b",".join(queue) + b"]")


def publish(broker: str, records: Sequence[Sent]) -> None:
    """Create the topics and put all records onto the events' topic."""
    asyncio.run(_publish(broker, records))


async def _publish(broker: str, records: Sequence[Sent]) -> None:
    await ensure_topics(Settings(broker=broker, tenants=(TENANT,), partitions=PARTITIONS))
    producer = AIOKafkaProducer(
        bootstrap_servers=broker,
        acks="all",
        max_batch_size=_REQUEST_BYTES,
        max_request_size=_REQUEST_BYTES,
        linger_ms=5,
    )
    await producer.start()
    try:
        headers = list(BATCH_HEADERS)
        sent: list[Any] = [
            await producer.send(TOPIC, record.value, partition=record.partition, headers=headers) for record in records
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
