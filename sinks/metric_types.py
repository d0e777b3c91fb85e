"""Make prometheus_client metrics of a table: one `MetricSpec` a line, its series as a `_Family`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

PREFIX = "fleetlore_"

M = TypeVar("M", Counter, Gauge, Histogram)


class _Family(Generic[M]):
    """The series of one metric. Calling it with the label values, in the order of the spec, gives one series.

    The series are cached: prometheus_client's own `labels()` costs three times as much as the increment itself.
    """

    def __init__(self, collector: M, labels: tuple[str, ...]) -> None:
        self._collector: M = collector
        self._labels = labels
        self._series: dict[tuple[str | int, ...], M] = {}

    def __call__(self, *values: str | int) -> M:
        """The series with these label values.

        Raises:
            ValueError: their number is not that of the spec.
        """
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self._labels):
                raise ValueError(f"expected the labels {self._labels}, got {values}")
            series = self._collector.labels(*values) if self._labels else self._collector
            self._series[values] = series
        return series

    def remove(self, *values: str | int) -> None:
        """Forget one series, so that a partition that moved away does not show its last lag for ever."""
        if self._series.pop(values, None) is not None:
            self._collector.remove(*values)

    def clear(self) -> None:
        """Forget every series."""
        self._series.clear()
        self._collector.clear()


@dataclass(frozen=True, slots=True)
class MetricSpec(Generic[M]):
    """One line of the catalogue. On an object of the table it reads as the `_Family` made from it."""

    stem: str
    metric: type[M]
    row: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The name as it is scraped; a histogram appends `_bucket`, `_sum` and `_count` to it."""
        return PREFIX + self.stem

    @property
    def kind(self) -> str:
        """`counter`, `gauge` or `histogram`."""
        return self.metric.__name__.lower()

    def build(self, registry: CollectorRegistry) -> _Family[M]:
        """The metric itself, registered."""
        buckets: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return _Family(self.metric(self.name, self.help, self.labels, registry=registry, **buckets), self.labels)

    @overload
    def __get__(self, metrics: None, owner: type[MetricTable]) -> MetricSpec[M]: ...
    @overload
    def __get__(self, metrics: MetricTable, owner: type[MetricTable]) -> _Family[M]: ...
    def __get__(self, metrics: MetricTable | None, owner: type[MetricTable]) -> MetricSpec[M] | _Family[M]:
        return self if metrics is None else metrics.family(self)


class MetricTable:
    """Base of a catalogue, whose class body is the table. An object of it has the metrics, in a registry of its own."""

    def __init__(self) -> None:
        # Without this every counter and histogram exports a second series with the time of its creation.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._families = {spec.stem: spec.build(self.registry) for spec in self.specs()}

    @classmethod
    def specs(cls) -> tuple[AnySpec, ...]:
        """The lines of the table, in its order."""
        return tuple(value for value in vars(cls).values() if isinstance(value, MetricSpec))

    def family(self, spec: MetricSpec[M]) -> _Family[M]:
        """The series of one line of the table."""
        return cast("_Family[M]", self._families[spec.stem])


AnySpec = MetricSpec[Counter] | MetricSpec[Gauge] | MetricSpec[Histogram]
