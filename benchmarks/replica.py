"""Measure what an agent of a fleet that knows a lot takes to start: `python -m benchmarks replica`.

100,000 memory items lie on the embedded broker: those that logged runs teach, again and again under other ids, tools
and times. An agent, in a process of its own, reads all of them; the figure is its CPU from the start until it has, with
what the client takes. Memory is what its process grew by. The rival is the same agent without a bound.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import orjson
import psutil

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, traffic
from benchmarks.volumes import BATCH_RECORDS, Flow
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.lore import MemoryItem, Pattern
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics

ITEMS = 100_000
SMALL = 10_000
TAUGHT_BY = 60_000
TOOLS = 50
BAR_SECONDS, BAR_MB = 2.0, 50.0
WAIT_SECONDS = 300.0
_DAY_SECONDS = 86_400.0


class _Sent(NamedTuple):
    topic: str
    key: str
    value: bytes
    tenant: str = TENANT


def run(quick: bool) -> Report:
    items, patterns = asyncio.run(_taught(4_000 if quick else TAUGHT_BY))
    most, small = (1_000, 200) if quick else (ITEMS, SMALL)
    bound = Settings().replica_mb
    many = [_Sent("items", each.id, each.to_json()) for each in _again(items, most)]
    few = [_Sent("items", each.id, each.to_json()) for each in _again(items, small)]
    few += [_Sent("patterns", each.id, each.to_json()) for each in _again(patterns, small)]
    large, large_unbounded = asyncio.run(_started(many, (bound, None)))
    (little,) = asyncio.run(_started(few, (bound,)))
    size = sum(len(each.value) for each in many) / len(many)
    return Report(
        name="replica",
        figure=large["cpu_seconds"],
        bar=BAR_SECONDS,
        unit=f"s of CPU to start beside {most:,} items",
        higher_is_better=False,
        peers={"without a bound": large_unbounded["cpu_seconds"]},
        reference="without a bound",
        rows=(
            *_rows("bounded", large, f"FLEETLORE_REPLICA_MB={bound:g}; {size:.0f} bytes an item"),
            *_rows("without a bound", large_unbounded, "the same process and records"),
            *_rows(f"{small:,} items and as many patterns", little, ""),
            Row(
                name="thermometer: orjson.loads",
                figure=large["loads_seconds"],
                unit="s of CPU",
                note="of as many bytes, in the process of the bounded one",
            ),
        ),
        also=(
            Report(
                name="replica memory",
                figure=large["grown_mb"],
                bar=BAR_MB,
                unit=f"MB grown by {most:,} items",
                higher_is_better=False,
                peers={"without a bound": large_unbounded["grown_mb"]},
                reference="without a bound",
                rows=(Row(name="without a bound", figure=large_unbounded["grown_mb"], unit="MB"),),
            ),
        ),
    )


def _rows(name: str, taken: dict[str, Any], note: str) -> tuple[Row, ...]:
    held = f"{taken['items']:,} items and {taken['patterns']:,} patterns held, {taken['left_out']:,} left out"
    return (
        Row(name=name, figure=taken["cpu_seconds"], unit="s of CPU", note=note),
        Row(name="  the process grew by", figure=taken["grown_mb"], unit="MB", note=held),
        Row(name="  until all was read", figure=taken["seconds"], unit="s"),
    )


async def _taught(events: int) -> tuple[list[MemoryItem], list[Pattern]]:
    sent, flow = traffic(events), Flow()
    for start in range(0, len(sent.records), BATCH_RECORDS):
        await flow.work(sent.records[start : start + BATCH_RECORDS])
    await flow.work([])
    rows = flow.store.collections
    bodies = {name: [row["body"] for row in rows[name].values() if row["body"]] for name in ("items", "patterns")}
    return [MemoryItem.from_json(each) for each in bodies["items"]], [
        Pattern.from_json(each) for each in bodies["patterns"]
    ]


def _again(entries: list[Any], count: int) -> Iterator[Any]:
    """As many, of more tools and from other days, in the order in which they came."""
    random = Random(0)
    last = max(each.last_seen for each in entries)
    for number in range(count):
        each, day = entries[number % len(entries)], random.random() + number * 30 / count
        yield replace(
            each,
            id=f"{each.id[:-8]}{number:08x}",
            tool=f"{each.tool}_{random.randrange(TOOLS)}" if each.tool else "",
            last_seen=last + day * _DAY_SECONDS,
        )


async def _started(sent: list[_Sent], bounds: tuple[float | None, ...]) -> list[dict[str, Any]]:
    """What an agent said with each of the bounds."""
    with EmbeddedBroker() as broker:
        await ensure_topics(Settings(broker=broker.address, tenants=(TENANT,)))
        producer = BatchProducer(broker.address)
        await producer.start()
        for start in range(0, len(sent), 1000):
            await producer.deliver(sent[start : start + 1000])
        await producer.stop()
        said = []
        for bound in bounds:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.replica", broker.address, str(bound or 0), str(len(sent))),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await child.communicate()
            if child.returncode:
                raise BrokerUnavailable("an agent did not read all lore in time")
            said.append(orjson.loads(output.splitlines()[-1]))
    return said


async def _start(bootstrap: str, bound_mb: float, bytes_of: int) -> dict[str, Any]:
    replica = LoreReplica(bootstrap, TENANT, most_bytes=bound_mb * 1e6 or None)
    gc.collect()
    memory, cpu, begun = psutil.Process().memory_info().rss, time.process_time(), time.monotonic()
    await replica.start()
    if not await replica.caught_up(WAIT_SECONDS):
        raise BrokerUnavailable("not all lore was read in time")
    taken = {"cpu_seconds": time.process_time() - cpu, "seconds": time.monotonic() - begun}
    gc.collect()
    grown = (psutil.Process().memory_info().rss - memory) / 1e6
    index = replica.index
    held = {"items": len(index.items), "patterns": len(index.patterns), "left_out": replica.left_out}
    await replica.close()
    value = next(iter(index.items.values())).to_json()
    cpu = time.process_time()
    for _ in range(bytes_of):
        orjson.loads(value)
    return {**taken, **held, "grown_mb": grown, "loads_seconds": time.process_time() - cpu}


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(_start(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))).decode())
