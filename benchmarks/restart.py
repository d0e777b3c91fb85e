"""Measure what a restart costs as patterns grow: `python -m benchmarks restart`.

One folder of `fleetlore up` holds 10^4, then 10^5, then 10^6 failure patterns of one tenant, written straight to Milvus
and to the topic in the shapes that a worker writes. At each size the stack stops and starts, and three times are
measured: `up` until it is ready, the first new failure until the topic `patterns` has it, and an agent until it is
ready. The agent is a process that imports nothing but `fleetlore` (`benchmarks.restart_agent`).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson

from benchmarks.report import Report, Row
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.recall.search import row_id
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from models.memory.bottom_k import SessionCounts
from models.memory.pattern_state import PatternState, Subject
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.embedded.stack import Stack
from streams.stage.base import Outgoing

SIZES = (10_000, 100_000, 1_000_000)
# Seconds allowed at 10^5 and 10^6 patterns, and MB of an agent's process.
HINT_BARS, START_BARS, MEMORY_BAR = (1.0, 2.0), (3.0, 5.0), 150.0
TENANT = "default"
TOOLS, CLASSES, FAMILIES = 500, 40, 20_000
CHUNK = 5_000
WAIT_SECONDS = 900.0


class Restart(NamedTuple):
    """One size: seconds of `up`, of the first hint and of an agent's start, with its CPU seconds, peak MB and lore."""

    patterns: int
    up: float
    hint: float
    agent: dict[str, float]


def run(quick: bool) -> Report:
    measured = asyncio.run(_measured((200, 400, 800) if quick else SIZES))
    hints, starts, memory = (
        tuple(_reports(name, unit, bars, measured[1:], figure))
        for name, unit, bars, figure in (
            ("first hint", "s until the first new failure is on its topic", HINT_BARS, lambda each: each.hint),
            ("agent's start", "s until it is ready", START_BARS, lambda each: each.agent["seconds"]),
            ("agent's memory", "MB at its peak", (MEMORY_BAR,) * 2, lambda each: each.agent["peak_mb"]),
        )
    )
    first, *also = hints + starts + memory
    rows = tuple(row for each in measured for row in _rows(each))
    return Report(
        name="restart",
        figure=first.figure,
        bar=first.bar,
        unit=first.unit,
        higher_is_better=False,
        peers={},
        rows=rows,
        also=tuple(also),
    )


def _reports(name: str, unit: str, bars: tuple[float, ...], measured: list[Restart], figure: Any) -> Iterator[Report]:
    for each, bar in zip(measured, bars, strict=True):
        beside = f"{unit}, beside {each.patterns:,} patterns"
        yield Report(
            name=f"{name}, {each.patterns:,} patterns",
            figure=figure(each),
            bar=bar,
            unit=beside,
            higher_is_better=False,
            peers={},
            rows=(Row(name=name, figure=figure(each), unit=beside),),
        )


def _rows(each: Restart) -> Iterator[Row]:
    agent = each.agent
    held = f"{agent['held']:,.0f} patterns held, {agent['left_out']:,.0f} left out"
    yield Row(name=f"{each.patterns:,} patterns: `up` until it is ready", figure=each.up, unit="s")
    yield Row(name="  the first hint", figure=each.hint, unit="s")
    yield Row(name="  an agent until it is ready", figure=agent["seconds"], unit="s")
    yield Row(name="  its CPU by then", figure=agent["cpu_seconds"], unit="s of CPU")
    yield Row(name="  its CPU once all was read", figure=agent["all_cpu_seconds"], unit="s of CPU")
    yield Row(name="  its memory once all was read", figure=agent["peak_mb"], unit="MB", note=held)


async def _measured(sizes: tuple[int, ...]) -> list[Restart]:
    measured: list[Restart] = []
    filled = 0
    with tempfile.TemporaryDirectory(prefix="restart-") as folder:
        for size in sizes:
            async with _stack(folder) as stack:
                await _fill(stack, range(filled, size))
            filled, began = size, time.monotonic()
            async with _stack(folder) as stack:
                up = time.monotonic() - began
                # Digits would be masked in the pattern.
                hint = await _first_hint(stack, "nobody has met this" + " yet" * len(measured))
                measured.append(Restart(size, up, hint, await _agent(folder, size)))
    return measured


def _stack(folder: str) -> Stack:
    return Stack(folder, trainer=False, keep_log=True)


async def _fill(stack: Stack, numbers: range) -> None:
    # Milvus Lite may flush for minutes while it is filled.
    patient = partial(MilvusStore.from_settings, timeout_seconds=WAIT_SECONDS, write_seconds=WAIT_SECONDS)
    async with patient(stack.settings) as store, BatchProducer(stack.settings.cluster) as producer:
        for start in range(numbers.start, numbers.stop, CHUNK):
            rows = [_row(number) for number in range(start, min(start + CHUNK, numbers.stop))]
            await store.upsert("patterns", rows)
            values = [Outgoing(TENANT, "patterns", row["id"].partition("/")[2], row["body"].encode()) for row in rows]
            await producer.deliver(values)


def _row(number: int) -> dict[str, Any]:
    """A pattern that one session met, as the stage `patterns` stores it."""
    tool, error = f"tool_{number % TOOLS}", f"Error{number % CLASSES}"
    text = f"no such thing as {number:x} in what was asked for"
    state = PatternState(Subject(f"{number:032x}", "class", tool, error, text, "", f"{number % FAMILIES:032x}"))
    state.add(number, SessionCounts(number % 100, 1, 1), time.time() - 100, time.time() - 100, "")
    return {
        "id": row_id(TENANT, state.subject.id),
        "tenant": TENANT,
        "level": "class",
        "tool": tool,
        "error_class": error,
        "body": state.to_pattern(TENANT).to_json().decode(),
        "state": state.state_json(),
        "text": f"{tool} {error} {text}",
    }


async def _first_hint(stack: Stack, message: str) -> float:
    """Seconds from a new failure until its pattern is on the topic."""
    seen = asyncio.Event()

    async def look(fetched: Fetched) -> None:
        if any(message.encode() in (each.value or b"") for records in fetched.values() for each in records):
            seen.set()

    cluster = stack.settings.cluster
    lore = Follower(cluster, [topic(TENANT, "patterns")], look, what="patterns", fetch_wait_ms=50, newest=0)
    following = asyncio.create_task(lore.run())
    emitter = Emitter(cluster, TENANT, principal_key=stack.settings.principal_key)
    await emitter.start()
    if not await lore.caught_up(WAIT_SECONDS):
        raise BrokerUnavailable("the topic of patterns cannot be followed")
    data = {ev.TOOL: "tool_1", ev.ARGUMENTS: {}, ev.ERROR_TYPE: "New", ev.ERROR_MESSAGE: message}
    began = time.monotonic()
    emitter.emit(Event("outcome", TENANT, "newcomer", message, 0, time.time(), data), at_once=True)
    async with asyncio.timeout(WAIT_SECONDS):
        await seen.wait()
    seconds = time.monotonic() - began
    await emitter.close(1.0)
    following.cancel()
    await asyncio.wait([following])
    return seconds


async def _agent(folder: str, patterns: int) -> dict[str, float]:
    command = (sys.executable, "-m", "benchmarks.restart_agent", folder, str(patterns))
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    if child.returncode:
        raise BrokerUnavailable("an agent was not ready in time")
    measured: dict[str, float] = orjson.loads(output.splitlines()[-1])
    return measured
