"""Put many agents behind a few relays and count what reaches the broker: `python -m benchmarks.relays --agents 10000`.

Apache Kafka with one broker, relays as processes of their own, and for each agent one HTTP connection with one open
session. First all are idle, then each sends events at `--rate` a second and waits for the answer, which comes once the
broker has them. A relay's requests are counted where it sends them. CPU and memory are the kernel's figures of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psutil

from fleetlore.config import Settings
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.embedded.child import Child
from streams.embedded.kafka import kafka_command

IDLE_SECONDS = 20.0
AT_ONCE = 50
BARS = {"connections": 20, "idle requests/s": 20, "kB an agent": 100}


def relay() -> None:
    """The relay's process: `python -m benchmarks.relays relay COUNTS OPTIONS`; it writes what it has asked brokers."""
    from aiokafka.conn import AIOKafkaConnection

    from fleetlore.cli.main import main as command

    file, asked, send = Path(sys.argv[2]), Counter[str](), AIOKafkaConnection.send
    whole = file.with_suffix(".new")

    def counted(self: Any, request: Any, *given: Any, **named: Any) -> Any:
        asked[type(request).__name__.split("_")[0]] += 1
        whole.write_text(json.dumps(asked))
        whole.replace(file)  # never seen half-written
        return send(self, request, *given, **named)

    AIOKafkaConnection.send = counted
    sys.argv = ["fleetlore", "relay", *sys.argv[3:]]
    command()


class Agent:
    """One, by a connection that it keeps."""

    def __init__(self, number: int, port: int) -> None:
        self._name, self._port, self._next = f"agent-{number}", port, 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def say(self, kind: str, data: dict[str, Any]) -> bool:
        """Send an event; whether it is stored."""
        event = {"specversion": "1.0", "type": f"ai.fleetlore.{kind}.v1", "session": f"{self._name}-1", "data": data}
        answer = await self.post("/v1/events?wait=30", event | {"sequence": self._next})
        self._next += 1
        return bool(answer["stored"])

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        while True:
            try:
                return await self._asked(path, body)
            except (asyncio.IncompleteReadError, ConnectionError):  # the relay closes what is silent for five seconds
                if self._streams is not None:
                    self._streams[1].close()
                self._streams = None

    async def _asked(self, path: str, body: dict[str, Any]) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        content = orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nfleetlore-agent: {self._name}\r\n"
        writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        found = await reader.readexactly(int(told.partition("content-length: ")[2].partition("\r\n")[0]))
        assert told.startswith(("http/1.1 200", "http/1.1 202")), found
        return orjson.loads(found)

    async def join(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            assert await self.say("session.started", {"fleetlore.goal": "find a chair", "fleetlore.task": "shop"})
            await self.post("/v1/advise", {"session": f"{self._name}-1", "tool": "search", "arguments": {"index": "a"}})
            await self.call()

    async def call(self) -> None:
        data = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": {"index": self._next}}
        assert await self.say("outcome", data | {"gen_ai.tool.call.result": "three chairs"})

    async def work(self, rate: float, until: float) -> int:
        calls = 0
        while (now := time.monotonic()) < until:
            await self.call()
            calls += 1
            await asyncio.sleep(max(0.0, now + 1 / rate - time.monotonic()))
        return calls


class Relays:
    """Their processes.

    Attributes:
        ports: that they serve on.
    """

    def __init__(self, folder: Path, broker: str, count: int) -> None:
        self._folder, self._broker = folder, broker
        self.ports = [free_port() for _ in range(count)]
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        for port in self.ports:
            options = [str(self._folder / str(port)), "--http", f"127.0.0.1:{port}", "--broker", self._broker]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.relays", "relay", *options, stdout=asyncio.subprocess.DEVNULL
            )
            self._processes.append(process)
            async with asyncio.timeout(120):
                while not await self._listens(port):
                    await asyncio.sleep(0.2)

    async def _listens(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in self._processes))

    def requests(self) -> Counter[str]:
        return sum((Counter(json.loads((self._folder / str(port)).read_text())) for port in self.ports), Counter())

    def connections(self) -> int:
        """Of all relays to the broker."""
        port = int(self._broker.rpartition(":")[2])
        found = [each for pid in self._pids() for each in psutil.Process(pid).net_connections("tcp")]
        return sum(each.status == "ESTABLISHED" and bool(each.raddr) and each.raddr.port == port for each in found)

    def memory(self) -> int:
        return sum(psutil.Process(pid).memory_info().rss for pid in self._pids())

    def cpu(self) -> float:
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self._pids())

    def _pids(self) -> list[int]:
        return [process.pid for process in self._processes]


async def measure(agents: int, relays: Relays, rate: float, seconds: float) -> None:
    gate, members = asyncio.Semaphore(AT_ONCE), []
    warm = [Agent(-1 - number, port) for number, port in enumerate(relays.ports)]
    await asyncio.gather(*(each.join(gate) for each in warm))
    alone = relays.memory()
    members = [Agent(number, relays.ports[number % len(relays.ports)]) for number in range(agents)]
    await asyncio.gather(*(each.join(gate) for each in members))
    kb = (relays.memory() - alone) / agents / 1e3
    say("connections", relays.connections())
    say("kB an agent", kb)
    print(f"relays before the first agent: {alone / len(relays.ports) / 1e6:.0f} MB each")
    await asyncio.sleep(2.0)
    before, used = relays.requests(), relays.cpu()
    await asyncio.sleep(IDLE_SECONDS)
    kinds = {kind: count / IDLE_SECONDS for kind, count in (relays.requests() - before).items()}
    say("idle requests/s", sum(kinds.values()))
    print({kind: round(count, 2) for kind, count in sorted(kinds.items())})
    print(f"idle: {(relays.cpu() - used) / IDLE_SECONDS / agents * 1e6:.1f} µs of CPU an agent and second")
    before, used, began = relays.requests(), relays.cpu(), time.monotonic()
    calls = sum(await asyncio.gather(*(each.work(rate, began + seconds) for each in members)))
    took = time.monotonic() - began
    print(
        f"{calls} events in {took:.1f} s of {agents * rate * seconds:.0f} asked for: {calls / took:.0f} events/s, "
        f"{(relays.requests() - before).total() / took:.1f} requests/s at the broker, "
        f"{(relays.cpu() - used) / max(1, calls) * 1e6:.0f} µs of CPU of a relay an event; "
        f"{relays.connections()} connections"
    )


def say(what: str, found: float) -> None:
    print(f"{what}: {found:.1f} (bar: at most {BARS[what]}): {'met' if found <= BARS[what] else 'MISSED'}")


@asynccontextmanager
async def started_kafka(folder: Path, port: int) -> AsyncIterator[str]:
    """The address of a broker with all topics."""
    broker = Child("broker", kafka_command(folder / "kafka", port, free_port()), folder)
    await broker.start()
    try:
        settings = Settings.from_env(broker=f"127.0.0.1:{port}", partitions=4)
        async with asyncio.timeout(120):
            while True:
                try:
                    await ensure_topics(settings)
                    break
                except Exception:
                    await asyncio.sleep(1.0)
        yield settings.broker
    finally:
        await broker.stop()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--relays", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    told = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as name:
        async with started_kafka(Path(name), free_port()) as broker:
            relays = Relays(Path(name), broker, told.relays)
            try:
                await relays.start()
                await measure(told.agents, relays, told.rate, told.seconds)
            finally:
                await relays.stop()


if __name__ == "__main__":
    relay() if sys.argv[1:2] == ["relay"] else asyncio.run(main())
