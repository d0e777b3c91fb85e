"""Measure what a kept log costs: CPU of the broker for an event, tansu in memory and Apache Kafka on disk in turns.

`python -m benchmarks.kept_log`: the row of docs/results/performance.md. CPU counts, not time: a busy machine changes it
little. Each turn sends 500 records of 64 events, as the emitter cuts them, and reads them back once.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer

from benchmarks.cloudevents import encode_record
from benchmarks.gateway import cpu_seconds
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import read_to_end
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics
from streams.embedded.broker import broker_command, free_port
from streams.embedded.kafka import kafka_command

TURNS = 5
RECORDS = 500
EVENTS = 64
IDLE_SECONDS = 10.0


def record(number: int) -> bytes:
    data = {ev.TOOL: "search", ev.ARGUMENTS: f"index=products page={number}", ev.RESULT: "found " * 30}
    session = f"s{number}"
    return encode_record(ev.Event("outcome", "default", "agent", session, n, time.time(), data) for n in range(EVENTS))


async def turn(broker: str, tenant: str) -> None:
    await ensure_topics(Settings(broker=broker, tenants=(tenant,)))
    async with AIOKafkaProducer(bootstrap_servers=broker, acks="all", linger_ms=0) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(topic(tenant, "events"), record(number), headers=BATCH_HEADERS)
    assert len(await read_to_end(broker, [topic(tenant, "events")], 60)) == RECORDS


async def measure() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ports = {"tansu, in memory": free_port(), "Kafka, on disk": free_port()}
        commands = {
            "tansu, in memory": broker_command(ports["tansu, in memory"]),
            "Kafka, on disk": kafka_command(Path(folder) / "kafka", ports["Kafka, on disk"], free_port()),
        }
        running = {}
        for name, command in commands.items():
            null = asyncio.subprocess.DEVNULL
            running[name] = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=null)
        try:
            for port in ports.values():
                await answering(f"127.0.0.1:{port}")
            used: dict[str, list[float]] = {name: [] for name in running}
            for number in range(TURNS):
                for name, process in running.items():
                    before = cpu_seconds(process.pid)
                    await turn(f"127.0.0.1:{ports[name]}", f"turn{number}")
                    used[name].append((cpu_seconds(process.pid) - before) / (RECORDS * EVENTS) * 1e6)
            idle = {name: cpu_seconds(process.pid) for name, process in running.items()}
            await asyncio.sleep(IDLE_SECONDS)
            for name, process in running.items():
                still = (cpu_seconds(process.pid) - idle[name]) / IDLE_SECONDS
                turns = ", ".join(f"{each:.1f}" for each in used[name])
                resident = next(
                    int(line.split()[1]) // 1024
                    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
                    if line.startswith("VmRSS")
                )
                cost = f"{min(used[name]):.1f} µs of CPU an event (turns {turns})"
                print(f"{name}: {cost}, idle {still:.1%} of a core, {resident} MB")
        finally:
            for process in running.values():
                process.kill()
                await process.wait()


async def answering(broker: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await ensure_topics(Settings(broker=broker))
                return
            except BrokerUnavailable:
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(measure())
