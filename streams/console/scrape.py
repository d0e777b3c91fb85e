"""Read the metrics of workers and trainer, and compute their rates over the last minutes."""

from __future__ import annotations

import asyncio
import urllib.request
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from fleetlore.clock import Clock

_TIMEOUT_SECONDS = 2.0
MAX_BYTES = 4 << 20
_EVERY_SECONDS = 2.0
# What the page draws.
KEPT_SECONDS = 900.0
# Over which a rate or a quantile is taken: shorter ones jump, longer ones hide what happens now.
_WINDOW_SECONDS = 60.0

_PREFIX = "fleetlore_"
# The first stage handles every event; the second makes a failure known to all.
FIRST_STAGE, LORE_STAGE = "sessions", "patterns"

_Labels = tuple[tuple[str, str], ...]


class _Sample(NamedTuple):
    """All values of all endpoints at one moment; those with the same name and labels are added up."""

    at: float
    values: Mapping[str, Mapping[_Labels, float]]

    def total(self, name: str, **labels: str) -> float:
        wanted = labels.items()
        return sum(value for found, value in self.values.get(name, {}).items() if wanted <= dict(found).items())

    def by(self, name: str, label: str) -> Counter[str]:
        counted: Counter[str] = Counter()
        for found, value in self.values.get(name, {}).items():
            counted[dict(found).get(label, "")] += int(value)
        return counted


@dataclass(frozen=True, slots=True)
class Figures:
    """What the endpoints say now.

    Attributes:
        answering, endpoints: how many of them answered, of how many.
        events_per_second: that the first stage finished, over the window.
        lag_records: read by no stage yet. lag_seconds: how long they take at the rate of the last minute.
        latency: (median, 99th percentile) in seconds from an event to the lore that it changed; None without one.
        rates: events a second over time, oldest first, for a chart.
        sample: the values themselves; None before the first answer.
    """

    answering: int = 0
    endpoints: int = 0
    events_per_second: float = 0.0
    lag_records: int = 0
    lag_seconds: float | None = None
    latency: tuple[float, float] | None = None
    rates: tuple[float, ...] = ()
    sample: _Sample | None = None


@dataclass(slots=True)
class Scraper:
    """Asks the endpoints every `_EVERY_SECONDS`, as long as `run()` runs."""

    urls: Sequence[str]
    clock: Clock
    figures: Figures = field(default_factory=Figures)
    _samples: deque[_Sample] = field(default_factory=deque)

    async def run(self) -> None:
        while True:
            texts = await asyncio.gather(*(asyncio.to_thread(_get, url) for url in self.urls))
            self.take([text for text in texts if text is not None])
            await asyncio.sleep(_EVERY_SECONDS)

    def take(self, texts: Sequence[str]) -> None:
        """Take what the endpoints that answered said."""
        if texts:
            now = self.clock.monotonic()
            self._samples.append(_Sample(now, read_metrics(texts)))
            while self._samples[0].at < now - KEPT_SECONDS:
                self._samples.popleft()
        self.figures = _figures_of(list(self._samples), len(texts), len(self.urls))


def read_metrics(texts: Iterable[str]) -> dict[str, dict[_Labels, float]]:
    """Values by name (without `fleetlore_`) and labels. Endpoints that say something else are left out."""
    values: dict[str, dict[_Labels, float]] = {}
    for text in texts:
        try:
            samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
        except ValueError:
            continue
        for each in samples:
            if each.name.startswith(_PREFIX) and not each.name.endswith("_created"):
                of_name = values.setdefault(each.name.removeprefix(_PREFIX), {})
                labels = tuple(sorted(each.labels.items()))
                of_name[labels] = of_name.get(labels, 0.0) + each.value
    return values


def _figures_of(samples: Sequence[_Sample], answering: int, endpoints: int) -> Figures:
    """Figures of samples, oldest first."""
    if not samples:
        return Figures(answering, endpoints)
    last = samples[-1]
    start = samples[bisect_left(samples, last.at - _WINDOW_SECONDS, key=lambda each: each.at)]
    rate = _rate(start, last)
    lag = int(last.total("consumer_lag_records"))
    records = _gained(start, last, "received_records_total") / max(last.at - start.at, 1e-9)
    return Figures(
        answering,
        endpoints,
        rate,
        lag,
        0.0 if not lag else lag / records if records > 0 else None,
        _latency(start, last),
        tuple(_rate(before, after) for before, after in pairwise(samples)),
        last,
    )


def _gained(start: _Sample, end: _Sample, name: str, **labels: str) -> float:
    # A process that was restarted counts from 0 again.
    return max(0.0, end.total(name, **labels) - start.total(name, **labels))


def _rate(start: _Sample, end: _Sample) -> float:
    seconds = end.at - start.at
    return _gained(start, end, "processed_events_total", stage=FIRST_STAGE) / seconds if seconds > 0 else 0.0


def _latency(start: _Sample, end: _Sample) -> tuple[float, float] | None:
    """Median and 99th percentile of the window; of all time where nothing came in it."""
    after, before = _buckets(end), _buckets(start)
    lately = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    counts = lately if max(lately.values(), default=0.0) > 0 else after
    if max(counts.values(), default=0.0) <= 0:
        return None
    return _quantile(counts, 0.5), _quantile(counts, 0.99)


def _buckets(sample: _Sample) -> dict[float, float]:
    found: dict[float, float] = {}
    for labels, value in sample.values.get("end_to_end_latency_seconds_bucket", {}).items():
        said = dict(labels)
        if said.get("stage") == LORE_STAGE:
            bound = float(said["le"])
            found[bound] = found.get(bound, 0.0) + value
    return found


def _quantile(cumulative: Mapping[float, float], share: float) -> float:
    """The upper bound of the bucket that holds the quantile; of the last one, which has none, its lower bound."""
    bounds = sorted(cumulative)
    wanted = share * cumulative[bounds[-1]]
    place = next(place for place, bound in enumerate(bounds) if cumulative[bound] >= wanted)
    return bounds[place] if bounds[place] != float("inf") or not place else bounds[place - 1]


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/metrics", timeout=_TIMEOUT_SECONDS) as response:
            return str(response.read(MAX_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
