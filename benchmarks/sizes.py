"""Say what an event costs as one thing of a fleet grows: `python -m benchmarks.sizes [WHAT N]`.

All five stages in memory (`benchmarks.volumes`), each size in a process of its own. `length`: sessions of N events.
`text`: results of N characters, as a client of another make may send them. `patterns`: a tenant that knows N failures
beforehand, of which each session meets one again; then also an agent's question against as many. `tenants`: the same
events of N tenants in turn. Printed are microseconds of CPU an event, multiples of `orjson.loads` of the same bytes in
the same process, and its memory. Nothing may grow faster than what is sent: the multiple stays.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from string import ascii_lowercase
from typing import Any

import orjson
import psutil

from benchmarks import peers
from benchmarks.pipeline import BATCH_RECORDS, decode_once
from benchmarks.traffic import TENANT, Sent, pack
from benchmarks.volumes import Flow
from fleetlore.advice.advice import advise
from fleetlore.advice.situation import Situation
from fleetlore.recall.index import LoreIndex
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.lore import Pattern

SIZES = {
    "length": (10, 100, 1_000, 10_000),
    "text": (300, 3_000, 30_000, 250_000),
    "patterns": (100, 1_000, 10_000, 100_000),
    "tenants": (1, 10, 100, 1_000),
}
EVENTS, TEXT_EVENTS = 40_000, 2_000
_MARK = "a-long-text"
_NOW = 1_767_225_600.0
_COMMANDS, _LENGTH, _TOGETHER, _PASSES = 40, 10, 32, 5


def session_events(number: int, length: int, result: str, failure: str, tenant: str = TENANT) -> Iterator[Event]:
    """A session of so many events: every tenth call fails, and the next one is the same call with another option."""
    name, agent = f"session-{number}", f"agent-{number % 50}"
    for at in range(length):
        command = f"make {ascii_lowercase[number % 26]}{at % _COMMANDS}"
        call: dict[str, Any] = {ev.TOOL: "bash", ev.ARGUMENTS: {"command": command}}
        kind: ev.Kind = "outcome"
        if at == 0:
            kind, data = "session.started", {ev.GOAL: f"build {number % 97}", ev.TASK: f"build-{number % 97}"}
        elif at == length - 1:
            kind, data = "session.ended", {ev.OUTCOME: "success"}
        elif at % 10 == 1:
            data = call | {ev.ERROR_TYPE: "ExitCode", ev.ERROR_MESSAGE: f"make: no rule to make '{failure}'"}
        else:
            data = call | {ev.ARGUMENTS: {"command": f"{command} --force"}, ev.RESULT: f"{result} {at}"}
        yield Event(kind, tenant, agent, name, at, _NOW + number % 1000 + at, data)


def word(number: int) -> str:
    """A name that no other number has, in letters: numbers are masked."""
    letters = ""
    while number or not letters:
        number, digit = divmod(number, 26)
        letters = ascii_lowercase[digit] + letters
    return f"target_{letters}"


def packed(length: int, result: str, failures: int, events: int, first: int = 0, tenant: str = TENANT) -> list[Sent]:
    """Records of sessions of so many events each, as many at once as share a record."""
    numbers = range(first, first + max(1, events // length))
    sessions = [list(session_events(n, length, result, word(n % failures), tenant)) for n in numbers]
    groups = [sessions[start : start + _TOGETHER] for start in range(0, len(sessions), _TOGETHER)]
    return list(pack(event for group in groups for turn in zip(*group, strict=True) for event in turn))


async def work(flow: Flow, records: list[tuple[str, Sent]]) -> float:
    """Seconds of CPU that the stages take."""
    before = time.process_time()
    for start in range(0, len(records), BATCH_RECORDS):
        await flow.work_of(records[start : start + BATCH_RECORDS])
    await flow.work_of([])
    return time.process_time() - before


async def measured(what: str, size: int) -> dict[str, float]:
    """See the module."""
    flow, events, found = Flow(), TEXT_EVENTS if what == "text" else EVENTS, {}
    length, failures, tenants = _LENGTH, 97, [TENANT]
    if what == "length":
        length = size
    elif what == "tenants":
        tenants = [f"t{number}" for number in range(size)]
    elif what == "patterns":
        failures = size
        await work(flow, [(TENANT, each) for each in packed(3, "built", failures, 3 * failures)])
        found["advise_us"] = _advise(flow)
    result = _MARK if what == "text" else "built " * 20
    each_tenant = events // len(tenants)
    by_tenant = [packed(length, result, failures, each_tenant, 10**6, tenant) for tenant in tenants]
    records = [
        (tenant, sent) for turn in zip(*by_tenant, strict=False) for tenant, sent in zip(tenants, turn, strict=True)
    ]
    if what == "text":
        long = ("a line of what was built, and where it lies\\n" * (size // 40))[:size].encode()
        whole = [(tenant, sent.value.replace(_MARK.encode(), long), sent.events) for tenant, sent in records]
        split = [(tenant, orjson.dumps(each)) for tenant, value, _ in whole for each in orjson.loads(value)]
        records = [(tenant, Sent(0, 1, value)) for tenant, value in split]
    gc.collect()
    gc.freeze()
    spent, done = await work(flow, records), sum(sent.events for _, sent in records)
    loads = min(decode_once([sent for _, sent in records]) for _ in range(_PASSES))
    rss = psutil.Process().memory_info().rss / 1e6
    return {"n": size, "us": spent / done * 1e6, "loads": spent / loads, "rss_mb": rss, **found}


def _advise(flow: Flow) -> float:
    """Microseconds of CPU of an agent's question before a call, with all these patterns in its replica."""
    index = LoreIndex()
    for row in flow.store.collections["patterns"].values():
        index.put_pattern(Pattern.from_json(row["body"]))
    calls = [("bash", {"command": f"make {ascii_lowercase[n % 26]}{n % _COMMANDS} {n}"}) for n in range(5_000)]
    before = time.process_time()
    for call in calls:
        advise(index, Situation(*call, now=_NOW))
    return (time.process_time() - before) / len(calls) * 1e6


def main() -> None:
    if len(sys.argv) == 3:
        print(orjson.dumps(asyncio.run(measured(sys.argv[1], int(sys.argv[2])))).decode())
        return
    print("| what grows | to | µs of CPU an event | × `orjson.loads` | MB | a question, µs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for what, sizes in SIZES.items():
        for size in sizes:
            said = peers.run("benchmarks.sizes", what, size)
            asked = f"{said['advise_us']:.0f}" if "advise_us" in said else "–"
            figures = f"{said['us']:.0f} | {said['loads']:.0f} | {said['rss_mb']:.0f} | {asked}"
            print(f"| {what} | {size:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
