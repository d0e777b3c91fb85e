"""Count the events that one process hands to the broker a second, masked and acknowledged.

One process, one thread, one event loop; the embedded broker runs in another process. The events are those of real runs.
The figure counts acknowledged events, by the wall clock from the first event to the last acknowledgement. The CPU time
of an event (user and system) has a separate row and says what a whole core would reach.

*Peers* send the same bytes to the same broker, one record per event, each in a separate process: aiokafka by `send` and
by `create_batch`. They get the bytes ready made. Only our emitter encodes and masks an event; the rows show the cost of
each part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from benchmarks import peers
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.emitting import PEERS
from benchmarks.report import Report, Row
from benchmarks.traffic import events_of, publish, sessions
from fleetlore.kafka.encode import encode, encode_event, mask, record

EVENTS = 200_000
QUICK_EVENTS = 5_000
PART_EVENTS = 50_000
PASSES = 3
BAR = 100_000.0
UNIT = "events/s"
CPU = "µs of CPU per event"
REFERENCE = "aiokafka_create_batch"


def run(quick: bool) -> Report:
    events = QUICK_EVENTS if quick else EVENTS
    measured = {name: _measured(name, events, 1 if quick else PASSES) for name in ("emitter", *PEERS)}
    rates = {name: said["events"] / said["seconds"] for name, said in measured.items()}
    rows = []
    for name, said in measured.items():
        label = "fleetlore, encoding and masking included" if name == "emitter" else f"{name}, bytes ready made"
        rows.append(Row(name=label, figure=rates[name], unit=UNIT, note=f"{said['max_rss_mb']:.0f} MB"))
        rows.append(Row(name="  CPU", figure=said["cpu_seconds"] / said["events"] * 1e6, unit=CPU))
    return Report(
        name="emitter",
        figure=rates.pop("emitter"),
        bar=BAR,
        unit=UNIT,
        peers=rates,
        reference=REFERENCE,
        rows=(*rows, *_parts(QUICK_EVENTS if quick else PART_EVENTS)),
    )


def _measured(who: str, events: int, passes: int) -> dict[str, float]:
    """The fastest of several passes: what slows one down comes from outside of it."""
    said = []
    for _ in range(passes):
        with EmbeddedBroker() as broker:  # a new broker for each, because it keeps everything in memory
            publish(broker.address, [])
            said.append(peers.run("benchmarks.emitting", who, broker.address, events))
    fastest: dict[str, float] = min(said, key=lambda each: float(each["seconds"]))
    return fastest


def _parts(count: int) -> list[Row]:
    """The parts of the CPU time that only our emitter takes."""
    source, runs = sessions()
    events = list(islice(events_of(runs, seed=0), count))
    batches = [events[start : start + 64] for start in range(0, count, 64)]
    encoded = [[encode(event) for event in batch] for batch in batches]
    size = sum(len(encode_event(event)) for event in events) / count
    # 64 events at a time: the emitter's buffer is no longer when the broker keeps up.
    parts: dict[str, Callable[[], object]] = {
        "encode: a copy of the event": lambda: [len([encode(event) for event in batch]) for batch in batches],
        "mask, 64 events at once": lambda: [len(mask(batch)) for batch in encoded],
        "mask, one at a time": lambda: [len([mask([event]) for event in batch]) for batch in encoded],
        "record of 64 events: ids, times, names": lambda: [len(record(batch)) for batch in encoded],
    }
    note = f"{size:.0f} bytes an event, {source}"
    return [
        Row(name=f"part: {name}", figure=_cpu_micros(part) / count, unit=CPU, note=note) for name, part in parts.items()
    ]


def _cpu_micros(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(PASSES):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken) * 1e6
