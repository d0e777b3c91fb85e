"""Print the files that an event passes: `python -m benchmarks.walk [--json]`.

A profiler hook follows one session of eight events. The first way leads from the bytes of its record to the rows for
Milvus, the second from the contributions of its judgment to the agent's next `advise()`. The broker is a real one;
Milvus is a stub behind the real `sinks.milvus.MilvusStore`. A process walks once, because a second session would find
everything in the caches.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import orjson

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.agent.fleet import Fleet
from fleetlore.clock import SystemClock
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.kafka.encode import encode_event
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import PREFIX
from sinks import milvus
from sinks.metrics import Metrics
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics
from streams.runtime.delivery import Delivery, Ledger
from streams.stage.base import Outgoing, Record, Stage
from streams.stages.pipeline import pipeline

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("fleetlore", "models", "sinks", "streams"))

# The files to read, in the order in which the walk first enters them: docs/explain/architecture.md goes through them.
WAY_IN = (
    "streams/runtime/delivery.py",
    "streams/stages/s1_sessions/stage.py",
    "streams/stages/s1_sessions/open_session.py",
    "streams/stages/s2_patterns.py",
    "sinks/milvus.py",
    "streams/stages/s3_judgments.py",
    "streams/stages/s4_items.py",
)
WAY_OUT = (
    "streams/stages/s4_items.py",
    "models/memory/item_state.py",
    "sinks/producer.py",
    "fleetlore/recall/replica.py",
    "fleetlore/recall/index.py",
    "fleetlore/agent/session.py",
    "fleetlore/advice/advice.py",
)
# Both are missed.
BARS = {"way in": 40, "way out": 30}
# Until they are met, the ways must not grow.
MOST_FILES = {"way in": 50, "way out": 48}

WRONG = "SELECT nam FROM users", "no such column: 'nam'"
RIGHT = "SELECT name FROM users", None


class Walk:
    """A profiler hook, while it is entered.

    Attributes:
        files: of our packages, in the order of first entry.
        moves: how often one of them called another.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.moves = 0
        self._here: str | None = None

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        code = (frame if event == "call" else frame.f_back or frame).f_code
        if not code.co_filename.startswith(PACKAGES) or code.co_name == "<module>":
            return
        file = code.co_filename.removeprefix(f"{ROOT}/")
        if file != self._here:
            self.moves += event == "call" and self._here is not None
            self._here = file
        if event == "call" and file not in self.files:
            self.files.append(file)


class StubMilvus:
    """A client of Milvus that knows no row and takes every row."""

    def __init__(self, **_: Any) -> None:
        self.rows: list[str] = []

    def describe_collection(self, name: str) -> dict[str, Any]:
        return {"collection_name": name}

    def query(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    def upsert(self, target: str, columns: Sequence[dict[str, Any]], **_: Any) -> None:
        self.rows += [target] * len(columns[0]["values"])

    def _get_connection(self) -> StubMilvus:
        return self

    def _generate_call_context(self) -> None:
        return None

    def close(self) -> None:
        return None


class Inline(ThreadPoolExecutor):
    """Runs at once what is given to it, so that the walk has one order."""

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except BaseException as error:
            done.set_exception(error)
        return done


class Producer(BatchProducer):
    """Remembers what the stages had for the topics."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.values: list[Outgoing] = []

    async def deliver(  # type: ignore[override]
        self, values: Sequence[Outgoing], positions: Mapping[tuple[str, int], int]
    ) -> None:
        await super().deliver(values, positions)
        self.values += values


def session() -> list[Event]:
    """Eight events: a call that fails, the same again, and one that works."""
    steps: list[tuple[ev.Kind, dict[str, Any]]] = [("session.started", {ev.GOAL: "count the users", ev.TASK: "count"})]
    for arguments, error in (WRONG, WRONG, RIGHT):
        call = {ev.TOOL: "sql", ev.ARGUMENTS: arguments}
        steps.append(("action", call))
        steps.append(("outcome", call | ({ev.ERROR_MESSAGE: error} if error else {ev.RESULT: "7 rows"})))
    steps.append(("session.ended", {ev.OUTCOME: "success", ev.REWARD: 1.0}))
    start = SystemClock().now() - len(steps)
    return [
        Event(kind, DEFAULT_TENANT, "ann", "s1", sequence, start + sequence, data)
        for sequence, (kind, data) in enumerate(steps)
    ]


def records(name: str, values: Sequence[bytes]) -> list[Record]:
    """One record of a topic with all values, or none."""
    packed = b"[" + b",".join(values) + b"]"
    return [Record(f"{PREFIX}.{DEFAULT_TENANT}.{name}", 0, 0, None, packed, dict(BATCH_HEADERS))] if values else []


async def walk(broker: str) -> tuple[Walk, Walk]:
    """The way in and the way out."""
    asyncio.get_running_loop().set_default_executor(Inline(1))
    setattr(milvus, "connect", lambda *_: StubMilvus())  # noqa: B010
    settings = Settings(broker=broker, tenants=(DEFAULT_TENANT,), partitions=1)
    await ensure_topics(settings)
    metrics, clock = Metrics("walk"), SystemClock()
    store, producer = milvus.MilvusStore.from_settings(settings, metrics=metrics), Producer(broker)
    await producer.start()
    delivery = Delivery(store, producer, metrics, clock, Ledger())
    stages = pipeline(store, metrics, clock, settings)

    async def run(stage: Stage, values: Sequence[bytes]) -> None:
        if batch := records(stage.reads, values):
            await delivery.run(stage, batch)
        if stage.holds:
            await delivery.run(stage, [])

    def made(name: str) -> list[bytes]:
        return [each.value for each in producer.values if each.topic == name and each.value is not None]

    events = [encode_event(event) for event in session()]
    with Walk() as way_in:
        for stage in stages:
            await run(stage, events if stage.reads == "events" else made(stage.reads))
    contributions = made("candidates")
    producer.values.clear()
    items = pipeline(store, metrics, clock, settings)[-1]
    async with Fleet("ben", broker=broker, holdout_share=0.0) as fleet:
        assert await fleet.ready(30)
        async with fleet.session("count the users", "count") as attempt:
            await fleet.flush(30)
            with Walk() as way_out:
                await run(items, contributions)
                assert await fleet.ready(30)
                advice = attempt.advise("sql", WRONG[0])
            assert advice
    await producer.stop()
    await store.close()
    return way_in, way_out


def main() -> None:
    with EmbeddedBroker() as broker:
        way_in, way_out = asyncio.run(walk(broker.address))
    ways = {"way in": (way_in, WAY_IN), "way out": (way_out, WAY_OUT)}
    if "--json" in sys.argv:
        said = {name: {"files": way.files, "moves": way.moves} for name, (way, _) in ways.items()}
        print(orjson.dumps(said).decode())
        return
    for name, (way, to_read) in ways.items():
        print(f"{name}: {len(way.files)} files (bar {BARS[name]}), {way.moves} moves")
        for number, file in enumerate(way.files, 1):
            print(f"{number:4} {'*' if file in to_read else ' '} {file}")
    print("* to read")


if __name__ == "__main__":
    main()
