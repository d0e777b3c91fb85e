"""Compute the tables of `docs/results/scale.md` from the inputs below: `python -m benchmarks.docs.scale`.

Every measured or assumed number stands in `MEASURED` or `ASSUMED`; the tables follow from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "results" / "scale.md"

# Value, unit, where it comes from.
MEASURED: dict[str, tuple[float, str, str]] = {
    "event": (699, "bytes", "volumes: an event in a record"),
    "event_64": (148, "bytes", "volumes: the same with zstd, in records of 64"),
    "event_8": (234, "bytes", "volumes: the same in records of 8"),
    "event_1": (414, "bytes", "volumes: the same alone in a record"),
    "sessions": (0.110, "per event", "volumes: sessions that close; 9.1 events a session"),
    "observations": (0.631 * 210, "bytes per event", "volumes: `observations`, 0.631 values of 210 bytes"),
    "trajectories": (0.110 * 4005, "bytes per event", "volumes: `trajectories`, 0.110 values of 4,005 bytes"),
    "judgments": (0.110 * 3228, "bytes per event", "volumes: `judgments`, 0.110 values of 3,228 bytes"),
    "candidates": (0.147 * 1186, "bytes per event", "volumes: `candidates`, 0.147 values of 1,186 bytes"),
    "pattern": (436, "bytes", "volumes: a row of lore on the topic `patterns`"),
    "item": (1488, "bytes", "volumes: a row of lore on the topic `items`"),
    "pattern_updates": (0.158, "per event", "volumes: `patterns`, rows published by one worker, 4,096 events a batch"),
    "item_updates": (0.082, "per event", "volumes: `items`, rows published"),
    "item_rows": (0.113, "per event", "volumes: `items`, rows written to Milvus"),
    "patterns_2e4": (2118, "rows", "volumes: distinct patterns after 20,000 events"),
    "patterns_2e5": (10588, "rows", "volumes: distinct patterns after 200,000 events"),
    "replica": (841, "bytes", "volumes: memory of a replica for a pattern"),
    "judgment_row": (
        3544 + 256,
        "bytes",
        "volumes: a row of judgments in Milvus: body, state and text, and 64 floats",
    ),
    "adapter": (150_000, "bytes", "trainer: weights of a version of an adapter"),
    "packing": (4.7, "×", "volumes: what zstd takes off records of 64"),
    "cpu_agents": (
        150,
        "µs per event",
        "immunity, when a call was two events: agents with emitter, replica, a question before each call",
    ),
    "cpu_broker": (35, "µs per event", "immunity, when a call was two events: the embedded broker"),
    "cpu_worker": (135, "µs per event", "immunity, when a call was two events: a worker with all stages"),
    "cpu_milvus": (22, "µs per event", "immunity, when a call was two events: Milvus Lite"),
    "cpu_stages": (
        57,
        "µs per event",
        "ingest: the stages `sessions` and `judgments` alone, to judgments, what they teach, and rows",
    ),
    "cpu_record": (237, "µs per record", "single: what Faust takes for a record, whatever it holds"),
    "cpu_row": (105, "µs per row", "milvus: CPU of Milvus Lite, batches of 1,000"),
}
ASSUMED: dict[str, tuple[float, str, str]] = {
    "agents": (1_000_000, "", "the question"),
    "rate": (10, "events/s", "of an agent; the question"),
    "per_host": (50, "agents", "on one host"),
    "cell": (10_000, "agents", "in a cell"),
    "linger": (0.1, "s", "that an emitter waits to fill a batch: the default"),
    "tools": (0.01, "share", "of all lore is about tools that one agent uses"),
    "host_tools": (0.05, "share", "of all lore is about tools that the agents of one host use"),
    "item_growth": (0.1, "share", "of an item's changes are significant"),
    "live_patterns": (1_000_000, "rows", "of a fleet at a time; older ones expire after 30 days without a sighting"),
    "hot_patterns": (100_000, "rows", "change every second"),
    "headroom": (2, "×", "capacity over mean load"),
    "replicas": (3, "copies", "of a record"),
    "events_days": (7, "days", "of events on brokers' disks; then object storage to the 30th"),
    "broker_bytes": (200e6, "bytes/s", "compressed, written by one broker, copies included"),
    "broker_connections": (10_000, "", "that one broker serves well"),
    "partition_bytes": (5e6, "bytes/s", "compressed, of one partition"),
    "milvus_rows": (50_000, "rows/s", "upserted by one Milvus cluster of 16 cores; to be measured"),
    "row_days": (30, "days", "that rows of judgments are kept"),
    "sample": (0.01, "share", "of judgments that get a row, beside all that wait for feedback"),
    "core_hour": (0.04, "$", "a virtual core with 4 GB"),
    "disk": (0.08, "$ per GB and month", "SSD"),
    "object": (0.021, "$ per GB and month", "object storage"),
    "traffic": (0.01, "$ per GB", "between zones"),
}
HOURS = 730
DAY = 86_400


def m(name: str) -> float:
    return MEASURED[name][0]


def a(name: str) -> float:
    return ASSUMED[name][0]


EVENTS = a("agents") * a("rate")
HOSTS = a("agents") / a("per_host")
DERIVED = sum(m(name) for name in ("observations", "trajectories", "judgments", "candidates"))


def inputs() -> Iterable[Sequence[str]]:
    yield "input", "value", "source"
    for value, unit, source in MEASURED.values():
        yield source.partition(": ")[2] or source, f"{shown(value)} {unit}", source.partition(":")[0]


def assumptions() -> Iterable[Sequence[str]]:
    yield "assumption", "value"
    for value, unit, what in ASSUMED.values():
        yield what, f"{shown(value)} {unit}".strip()


def log() -> Iterable[Sequence[str]]:
    """What goes through the brokers."""
    yield "topic", "bytes per event", "GB/s", "GB/s with zstd", "partitions"
    packed_derived = DERIVED / m("packing")
    for name, raw, packed in (
        ("`events`, one in a record (an agent that emits alone)", m("event"), m("event_1")),
        ("`events`, 64 in a record (a gateway emits for many)", m("event"), m("event_64")),
        ("`observations`, `trajectories`, `judgments`, `candidates`", DERIVED, packed_derived),
    ):
        load = EVENTS * packed
        partitions = a("headroom") * load / a("partition_bytes")
        yield name, f"{raw:.0f}", gb(EVENTS * raw), gb(load), shown(partitions)


def compute() -> Iterable[Sequence[str]]:
    """Cores at mean load, and what is bought."""
    yield "part", "µs of CPU per event", "cores at 10 M events/s", "with headroom"
    for name, cost in (
        ("workers, stages alone", m("cpu_stages")),
        ("workers, everything", m("cpu_worker")),
        ("brokers (by the embedded broker's cost)", m("cpu_broker")),
        ("Milvus, a row for every session, pattern and item (by Milvus Lite's cost)", m("cpu_milvus")),
        ("agents' side, spread over all hosts", m("cpu_agents")),
    ):
        cores = EVENTS * cost / 1e6
        yield name, shown(cost), shown(cores), shown(cores * a("headroom"))


def fan_out() -> Iterable[Sequence[str]]:
    """What lore costs to bring to everybody."""
    yield "how lore is sent", "updates/s", "to one replica", "to all"
    every = EVENTS * m("pattern_updates")
    significant = a("live_patterns") * 145 / (30 * DAY)
    row = m("pattern")
    for name, updates, share, readers in (
        ("each change, to each agent", every, 1.0, a("agents")),
        ("at most once a second and row", a("hot_patterns"), 1.0, a("agents")),
        ("when a figure has grown by a tenth", significant, 1.0, a("agents")),
        ("… and one replica a host", significant, 1.0, HOSTS),
        ("… and only the partitions of one's own tools", significant, a("host_tools"), HOSTS),
    ):
        yield name, shown(updates), rate(updates * row * share), rate(updates * row * share * readers)


def joining() -> Iterable[Sequence[str]]:
    """What a replica holds."""
    yield "a replica of", "patterns", "to download", "in memory"
    for name, share in (
        ("all lore", 1.0),
        ("one's own tools", a("tools")),
        ("the tools of a host's agents", a("host_tools")),
    ):
        rows = a("live_patterns") * share
        yield name, shown(rows), size(rows * m("pattern")), size(rows * m("replica"))


def records() -> Iterable[Sequence[str]]:
    """How full records get: the events of a partition that one emitter has within its linger."""
    yield "who emits, in a cell", "events/s", "over partitions", "events a record", "records/s", "cores for Faust alone"
    cell = a("cell") * a("rate")
    partitions = _partitions(cell)
    for name, load, spread in (
        ("each agent", a("rate"), partitions),
        ("each host", a("rate") * a("per_host"), partitions),
        ("each host, on a partition of its own", a("rate") * a("per_host"), 1.0),
        ("one gateway", cell, partitions),
    ):
        filled = min(64.0, max(1.0, load * a("linger") / spread))
        each = cell / filled
        yield name, shown(load), shown(spread), shown(filled), shown(each), shown(each * m("cpu_record") / 1e6)


def connections() -> Iterable[Sequence[str]]:
    """A client is connected to each broker that leads a partition of its."""
    yield "who connects", "brokers' clients, one cluster", "within the limit", "one cell", "within the limit"
    cells = a("agents") / a("cell")
    for name, clients in (
        ("each agent: emitter and replica", 2 * a("agents")),
        ("each host", 2 * HOSTS),
        ("one gateway for 100 hosts", 2 * HOSTS / 100),
    ):
        counts = (clients, max(2.0, clients / cells))
        yield name, *(text for n in counts for text in (shown(n), "yes" if n <= a("broker_connections") else "no"))


def store() -> Iterable[Sequence[str]]:
    """Rows of Milvus."""
    yield "rows", "rows/s", "Milvus clusters", "kept", "size"
    sessions, kept = EVENTS * m("sessions"), a("row_days") * DAY
    for name, rows, lasting in (
        ("judgments, each session", sessions, sessions * kept),
        ("judgments, a sample", sessions * a("sample"), sessions * a("sample") * kept),
        ("patterns, each change", EVENTS * m("pattern_updates"), a("live_patterns")),
        ("patterns, at most once a second and row", a("hot_patterns"), a("live_patterns")),
        ("items, each change", EVENTS * m("item_rows"), a("live_patterns") / 2),
    ):
        clusters = a("headroom") * rows / a("milvus_rows")
        yield name, shown(rows), shown(max(1.0, clusters)), shown(lasting), size(lasting * m("judgment_row"))


def money() -> Iterable[Sequence[str]]:
    """Dollars a month, after the changes of this page."""
    yield "part", "quantity", "$ a month"
    packed = EVENTS * (m("event_64") + DERIVED / m("packing"))
    cores = EVENTS * (m("cpu_worker") + m("cpu_broker")) / 1e6 * a("headroom")
    disk = packed * a("events_days") * DAY * a("replicas") / 1e9
    object_ = EVENTS * m("event_64") * 30 * DAY / 1e9
    # Two thirds of what is produced and of what is consumed cross a zone, and two copies of three.
    crossing = packed * (2 / 3 + 2 / 3 + 2) * HOURS * 3600 / 1e9
    stored = EVENTS * m("sessions") * a("sample") * a("row_days") * DAY * m("judgment_row") * a("replicas") / 1e9
    rows = EVENTS * m("sessions") * a("sample") + a("hot_patterns") + EVENTS * m("item_rows") * a("item_growth")
    milvus = a("headroom") * rows / a("milvus_rows") * 16
    total = 0.0
    for name, quantity, unit, price in (
        ("workers and brokers", cores, "cores", a("core_hour") * HOURS),
        ("Milvus", milvus, "cores", a("core_hour") * HOURS),
        ("Milvus' rows", stored, "GB", a("disk")),
        ("brokers' disks", disk, "GB", a("disk")),
        ("events to the 30th day", object_, "GB", a("object")),
        ("traffic between zones", crossing, "GB", a("traffic")),
    ):
        total += quantity * price
        yield name, f"{shown(quantity)} {unit}", shown(quantity * price)
    yield "**together**", f"{shown(total / a('agents'))} $ an agent", f"**{shown(total)}**"


def cells() -> Iterable[Sequence[str]]:
    """The same figures for one cell of a hundred, which is what anybody would run."""
    yield "one cell of", "events/s", "workers", "partitions of `events`", "brokers", "sessions/s"
    for agents in (10_000.0, 100_000.0, a("agents")):
        events = agents * a("rate")
        workers = events * m("cpu_worker") / 1e6 * a("headroom")
        brokers = _brokers() * agents / a("agents")
        yield (
            f"{shown(agents)} agents",
            shown(events),
            shown(ceil(workers)),
            shown(_partitions(events)),
            shown(ceil(max(3.0, brokers))),
            shown(events * m("sessions")),
        )


def _partitions(events: float) -> float:
    """Every worker needs a partition; twice as many let their number grow."""
    workers = events * m("cpu_worker") / 1e6 * a("headroom")
    return ceil(max(2 * workers, a("headroom") * events * m("event_64") / a("partition_bytes")))


def _brokers() -> float:
    """By bytes written, copies included."""
    packed = EVENTS * (m("event_64") + DERIVED / m("packing"))
    return a("headroom") * packed * a("replicas") / a("broker_bytes")


def shown(figure: float) -> str:
    """Two digits that count, and words for the many."""
    for limit, unit in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M")):
        if figure >= limit:
            return f"{figure / limit:.3g}{unit}"
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def size(amount: float) -> str:
    return f"{shown(amount)}B" if amount >= 1e6 else f"{shown(amount / 1e3)} kB"


def rate(amount: float) -> str:
    return f"{size(amount)}/s"


def gb(amount: float) -> str:
    return f"{amount / 1e9:.2f}"


TABLES = {
    each.__name__: each
    for each in (inputs, assumptions, log, compute, cells, records, fan_out, joining, connections, store, money)
}
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(text: str) -> str:
    """The page with its tables made anew."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{_markdown(TABLES[match[2]]())}\n{match[3]}", text)


def _markdown(rows: Iterable[Sequence[str]]) -> str:
    head, *lines = rows
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
