"""Say what one agent's process costs, as a Kafka client and through a relay: `python -m benchmarks.relay_agent`.

Apache Kafka with one broker, `fleetlore relay` on a Unix socket, and one agent in a process of its own after the other.
Of each: CPU a second while nothing happens, CPU an event at `--rate` a second (each is a batch of its own) and of
`--events` in one go, and memory at the end. CPU is the kernel's count of the process, so a busy machine makes it larger
but not another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.relays import started_kafka
from fleetlore import Fleet
from fleetlore.agent.session import Session
from streams.embedded.broker import free_port

ENTERED_SECONDS = 120.0


async def agent(relay: str, broker: str, events: int, rate: float, seconds: float) -> dict[str, float]:
    """What one costs; by the broker where `relay` is empty."""
    where: dict[str, Any] = {"relay": relay} if relay else {"broker": broker}
    async with Fleet("agent-1", ready_seconds=ENTERED_SECONDS, max_buffered_events=events + 1000, **where) as fleet:
        assert fleet.replica.loaded
        found = {}
        await asyncio.sleep(2.0)
        began = time.process_time()
        await asyncio.sleep(seconds)
        found["idle, µs a second"] = (time.process_time() - began) / seconds * 1e6
        async with fleet.session("find a chair", task="shop") as session:
            assert await fleet.flush(60)
            began = time.process_time()
            for number in range(int(rate * seconds)):
                call(session, number)
                await asyncio.sleep(1 / rate)
            assert await fleet.flush(60)
            found["an event at that rate, µs"] = (time.process_time() - began) / int(rate * seconds) * 1e6
            began = time.process_time()
            for number in range(events):
                call(session, number)
                if number % 64 == 63:
                    await asyncio.sleep(0)
            assert await fleet.flush(120)
            found["an event in one go, µs"] = (time.process_time() - began) / events * 1e6
        assert not fleet.dropped
        found["memory, MB"] = psutil.Process().memory_info().rss / 1e6
    return found


def call(session: Session, number: int) -> None:
    session.record("search", {"index": "products", "page": number}, result="three chairs, two tables and a lamp")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agent", metavar="RELAY,BROKER", help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    told = parser.parse_args()
    if told.agent is not None:
        relay, broker = told.agent.split(",")
        print(json.dumps(await agent(relay, broker, told.events, told.rate, told.seconds)))
        return
    with tempfile.TemporaryDirectory() as name:
        socket = f"unix:{name}/relay"
        async with started_kafka(Path(name), free_port()) as broker:
            command = [sys.executable, "-m", "fleetlore.cli.main", "relay", "--http", socket, "--broker", broker]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
            try:
                await measure(told, socket, broker, psutil.Process(process.pid))
            finally:
                process.terminate()
                await process.wait()


async def measure(told: argparse.Namespace, socket: str, broker: str, relay: psutil.Process) -> None:
    """Run each kind in turn, and print the medians."""
    found: dict[str, list[dict[str, float]]] = {"": [], socket: []}
    sent = told.runs * (told.events + int(told.rate * told.seconds) + 2)
    used = 0.0
    for _ in range(told.runs):
        for kind, results in found.items():
            before = sum(relay.cpu_times()[:2])
            options = ["--agent", f"{kind},{broker}", "--events", told.events]
            options += ["--rate", told.rate, "--seconds", told.seconds]
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.relay_agent", *map(str, options)), stdout=asyncio.subprocess.PIPE
            )
            results.append(json.loads((await child.communicate())[0]))
            used += sum(relay.cpu_times()[:2]) - before if kind else 0.0
    for figure in found[""][0]:
        by_broker, by_relay = (sorted(each[figure] for each in found[kind]) for kind in ("", socket))
        middle = told.runs // 2
        print(
            f"{figure}: {by_broker[middle]:.0f} by the broker, {by_relay[middle]:.0f} by a relay", by_broker, by_relay
        )
    print(f"CPU of the relay: {used / sent * 1e6:.0f} µs an event; memory {relay.memory_info().rss / 1e6:.0f} MB")


if __name__ == "__main__":
    asyncio.run(main())
