"""List every metric of the pipeline in one typed table.

Labels have bounded values only: agents, sessions or error texts would exhaust Prometheus' memory.
"""

from __future__ import annotations

import platform
from typing import Any, Generic, TypeVar, cast, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from sinks.health_endpoint import Endpoint, Readiness, package_version

__all__ = ["CATALOGUE", "Metrics"]

PREFIX = "fleetlore_"
_LATENCY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

M = TypeVar("M", Counter, Gauge, Histogram)

LABELS = {
    "adapter": "name of an adapter",
    "advice": "what was done with advice for a call: given or withheld",
    "collection": "Milvus collection",
    "ending": "how a session ended: success, failure, unknown or continued",
    "kind": "kind of a memory item: recovery or strategy",
    "label": "label of a verdict: success, failure or abstained",
    "partition": "partition number",
    "python": "version of Python",
    "reason": "a reason from a fixed list in the code, never the text of an error",
    "result": "ok, or another result from a fixed list in the code",
    "role": "role of the process: worker or trainer",
    "source": "source of a verdict: guard, reward, feedback, rules or a model",
    "stage": "stage of the pipeline",
    "stream": "full name of a topic, or a Milvus collection",
    "tenant": "a tenant; those of a worker are a fixed list",
    "tool": "one of the 100 tools that a worker sees called most in a tenant; `other` for all else",
    "topic": "full name of a topic; the tenants of a worker are a fixed list, so this is bounded",
    "version": "version of the package, or of an adapter",
}


class MetricSpec(Generic[M]):
    def __init__(
        self, metric: type[M], row: str, help: str, labels: tuple[str, ...], unit: str, **options: Any
    ) -> None:
        self.row, self.help, self.labels = row, help, labels
        self.kind = metric.__name__.lower()
        self._metric: type[M] = metric
        self._unit, self._options = unit, options

    def __set_name__(self, owner: type[Metrics], name: str) -> None:
        self.stem = "_".join(filter(None, (name, self._unit)))

    @property
    def name(self) -> str:
        return PREFIX + self.stem

    @overload
    def __get__(self, metrics: None, owner: type[Metrics]) -> MetricSpec[M]: ...
    @overload
    def __get__(self, metrics: Metrics, owner: type[Metrics]) -> M: ...
    def __get__(self, metrics: Metrics | None, owner: type[Metrics]) -> MetricSpec[M] | M:
        return self if metrics is None else cast(M, metrics._collectors[self])

    def build(self, registry: CollectorRegistry) -> M:
        return self._metric(self.name, self.help, self.labels, registry=registry, **self._options)


def _counter(row: str, help: str, *labels: str) -> MetricSpec[Counter]:
    return MetricSpec(Counter, row, help, labels, "total")


def _gauge(row: str, help: str, *labels: str, unit: str = "") -> MetricSpec[Gauge]:
    return MetricSpec(Gauge, row, help, labels, unit)


def _histogram(row: str, help: str, *labels: str) -> MetricSpec[Histogram]:
    return MetricSpec(Histogram, row, help, labels, "seconds", buckets=_LATENCY_SECONDS)


class Metrics:
    """The metrics of one process: `metrics.dead_letters.labels("bad_json").inc(3)`. Thread-safe.

    Update once a batch: an increment can cost more than decoding an event.
    """

    received_records = _counter("traffic", "Kafka records read. Worry when it stands still while agents work.", "topic")
    received_events = _counter("traffic", "Events in the records read, bad ones included.", "topic")
    processed_events = _counter(
        "traffic", "Events or records that a stage has finished. Worry when it falls behind what is received.", "stage"
    )
    duplicate_events = _counter(
        "traffic", "Events seen before and ignored. A steady rate means that an agent sends twice; a burst is normal."
    )
    dead_letters = _counter(
        "errors", "Events and records in the dead letters. Worry above 1 %: an agent speaks another format.", "reason"
    )
    lost_run = _gauge(
        "errors",
        "Records in a row without a usable part, of several senders. Worry when it grows: at the limit the topic "
        "stops, because the producers or the worker were deployed with a fault.",
        "stream",
        unit="records",
    )
    stage_duration = _histogram("latency", "Time a stage takes for one batch, its sinks included.", "stage")
    end_to_end_latency = _histogram(
        "latency", "From an event to the end of a stage. Worry when the 99th percentile passes 2 s.", "stage"
    )
    consumer_lag = _gauge(
        "lag",
        "Records of a partition to process. Worry when it grows for minutes.",
        "topic",
        "partition",
        unit="records",
    )
    uncommitted_records = _gauge(
        "lag",
        "Processed and uncommitted records of a partition, which a restart reads again. Worry when it grows for an "
        "hour: sessions that never end hold the commit back.",
        "topic",
        "partition",
    )
    expired_records = _counter(
        "errors", "Records deleted before a worker came to them. Worry at the first: their events are lost.", "topic"
    )
    truncated_records = _counter(
        "errors",
        "Records that a broker had acknowledged and has no more, at least. Worry at the first: a replica that was not "
        "in sync was elected, events may be lost, and the partition is read again.",
        "topic",
    )
    paused_partitions = _gauge(
        "lag", "Partitions whose fetched records wait. Worry when it stays above 0: Milvus or the worker is too slow."
    )
    commits = _counter("lag", "Commits of offsets. A failed one after a rebalance is normal.", "result")
    last_commit = _gauge(
        "lag", "Unix time of the last commit. Worry when it is old while there is lag: a sink fails.",
        unit="timestamp_seconds",
    )  # fmt: skip
    rebalances = _counter(
        "lag", "Rebalances. Worry above 10 in 10 minutes: a worker restarts or misses its heartbeats."
    )
    open_sessions = _gauge(
        "sessions", "Sessions that have not ended. They hold commits back, so many of them make a restart slow."
    )
    sessions_closed = _counter(
        "sessions", "Sessions closed. Many that are continued mean that agents do not send their end.", "ending"
    )
    reopened_sessions = _counter(
        "sessions",
        "Sessions that went on after they were closed. Many mean that agents pause for longer than "
        "FLEETLORE_SILENT_SECONDS, or that their clocks are behind.",
    )
    judgments = _counter(
        "lore", "Verdicts on sessions. Worry when most are abstained: nothing is learned from those.", "label", "source"
    )
    judge_cases = _counter(
        "lore",
        "Verdicts of a judge on sessions that have feedback or a reward too: agreed or contradicted. Worry when a "
        "fifth are contradicted: set a reward, or send feedback, because that judge is wrong about your sessions.",
        "source",
        "result",
    )
    llm_questions = _counter(
        "lore",
        "Questions to the language model by how they ended: ok, cached, malformed, budget, timeout, refused or failed; "
        "and unkept, besides, for answers that could not be written. Worry when most are anything but ok or cached.",
        "result",
    )
    llm_tokens = _counter("lore", "Tokens that the model's endpoint counted, or that were reserved if it counts none.")
    items = _counter("lore", "Memory items written, new or changed.", "kind")
    advised_calls = _counter(
        "lore", "Calls with advice, or from which it was withheld at random. Worry when none is given.", "advice"
    )
    junk_items = _counter(
        "lore",
        "Memory items that no agent should recall. Worry when it passes a fifth of those written: tools report empty "
        "errors, or a distiller was changed for the worse.",
        "reason",
    )
    tool_calls = _gauge("lore", "Calls in the newest hour of event time, by tool.", "tenant", "tool")
    tool_failures = _gauge(
        "lore", "Those of them that failed. `fleetlore health --hours 1` says where and of what.", "tenant", "tool"
    )
    degraded_tools = _gauge(
        "lore",
        "1 where the tool failed in that hour more often than in the hours before, by 10 points even at the lower end "
        "of the 95 % interval.",
        "tenant",
        "tool",
    )
    sink_rows = _counter("sinks", "Rows that Milvus has acknowledged.", "collection")
    sink_duration = _histogram("sinks", "Time of one upsert, retries included.", "collection")
    sink_retries = _counter(
        "sinks", "Upserts tried again. Worry when it grows: Milvus is away or overloaded.", "collection"
    )
    trainer_sessions = _counter(
        "training", "Sessions that an adapter learns from. Worry when it stands still while sessions end.", "adapter"
    )
    trainer_updates = _counter(
        "training", "Versions learned, passed or not. Worry when it stands still while sessions come.", "adapter"
    )
    trainer_newest_session = _gauge(
        "training", "Unix time at which the newest learned session ended. Worry when it is more than 20 s behind.",
        "tenant", unit="timestamp_seconds",
    )  # fmt: skip
    gate_decisions = _counter(
        "training", "Candidate adapters that the gate has decided on. Worry when many in a row are rejected.", "result"
    )
    adapters_published = _counter("adapters", "Attempts to publish a version. Worry at any result but ok.", "result")
    adapters_refused = _counter(
        "adapters",
        "Adapter versions that failed their checks and were not loaded. Worry at any: someone else writes to the "
        "adapter topics, or the bytes were damaged.",
        "reason",
    )
    adapter_info = _gauge(
        "adapters", "1 for the adapter version that this process published or loaded last.", "adapter", "version"
    )
    build_info = _gauge("process", "1, with the versions of the package and of Python.", "version", "python", "role")

    def __init__(self, role: str) -> None:
        # A second series of each counter and histogram would hold its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._collectors = {spec: spec.build(self.registry) for spec in CATALOGUE}
        self.role = role
        self._shown_adapters: dict[str, str] = {}
        self.build_info.labels(package_version(), platform.python_version(), role).set(1)

    def show_adapter(self, adapter: str, adapter_version: str) -> None:
        shown = self._shown_adapters.get(adapter)
        if shown is not None:
            self.adapter_info.remove(adapter, shown)
        self._shown_adapters[adapter] = adapter_version
        self.adapter_info.labels(adapter, adapter_version).set(1)

    def serve(self, port: int, host: str = "127.0.0.1", health: Readiness | None = None) -> Endpoint:
        return Endpoint(self.registry, health or Readiness(), self.role, host, port)


CATALOGUE: tuple[MetricSpec[Any], ...] = tuple(each for each in vars(Metrics).values() if isinstance(each, MetricSpec))
