"""Follow what the page shows: lore, adapters, dead letters, metrics.

The page follows the topics as an agent does and queries the store only for a session, so it does not slow the workers.
"""

import asyncio
import contextlib
import urllib.request
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from fleetlore.adapters.listing import AdapterListing, read_adapters
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.recall.search import quoted, row_id
from fleetlore.redact.redact import PART_OF_ID, spellings
from fleetlore.wire.dead_letter import DeadLetterRecord, read_dead_letter
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.principals import Principals, principal_of
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.judge import SessionState
from streams.console.sessions import SeenSession, SeenSessions
from streams.stage.operators import Erased, put_in_history

__all__ = ["Sources"]

_ADAPTERS_SECONDS = 10.0
_LETTERS_KEPT = 200
_SESSIONS_OF_AN_AGENT, _MOST_PARTS = 100, 100
# Newest records read of each partition of `judgments`.
_JUDGMENTS_READ = 5_000
_HISTORY_KEPT = 20_000
_STORE_SECONDS = 5.0

_TIMEOUT_SECONDS = 2.0
MAX_BYTES = 4 << 20
EVERY_SECONDS = 5.0
KEPT_SECONDS = 900.0
# Window of rates and quantiles: shorter ones jump, longer ones hide the present.
_WINDOW_SECONDS = 60.0

_PREFIX = "fleetlore_"
# The first stage handles every event, the second publishes failures.
FIRST_STAGE, LORE_STAGE = "sessions", "patterns"

_Labels = tuple[tuple[str, str], ...]


class _Sample(NamedTuple):
    at: float
    values: Mapping[str, Mapping[_Labels, float]]

    def total(self, name: str, **labels: str) -> float:
        wanted = labels.items()
        return sum(value for found, value in self.values.get(name, {}).items() if wanted <= dict(found).items())

    def by(self, name: str, label: str, **labels: str) -> Counter[str]:
        counted: Counter[str] = Counter()
        for found, value in self.values.get(name, {}).items():
            if labels.items() <= (given := dict(found)).items():
                counted[given.get(label, "")] += int(value)
        return counted


@dataclass(frozen=True, slots=True)
class Figures:
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
    urls: Sequence[str]
    clock: Clock
    figures: Figures = field(default_factory=Figures)
    _samples: deque[_Sample] = field(default_factory=deque)

    async def run(self) -> None:
        while True:
            texts = await asyncio.gather(*(asyncio.to_thread(_get, url) for url in self.urls))
            self.take([text for text in texts if text is not None])
            await asyncio.sleep(EVERY_SECONDS)

    def take(self, texts: Sequence[str]) -> None:
        if texts:
            now = self.clock.monotonic()
            self._samples.append(_Sample(now, read_metrics(texts)))
            while self._samples[0].at < now - KEPT_SECONDS:
                self._samples.popleft()
        self.figures = _figures_of(list(self._samples), len(texts), len(self.urls))


def read_metrics(texts: Iterable[str]) -> dict[str, dict[_Labels, float]]:
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
    if not samples:
        return Figures(answering, endpoints)
    last = samples[-1]
    start = samples[bisect_left(samples, last.at - _WINDOW_SECONDS, key=lambda each: each.at)]
    rate = _rate(start, last)
    lag = int(last.total("consumer_lag_records"))
    records = _gained(start, last, "received_records_total") / max(last.at - start.at, 1e-9)
    behind = 0.0 if not lag else lag / records if records > 0 else None
    rates = tuple(_rate(before, after) for before, after in pairwise(samples))
    return Figures(answering, endpoints, rate, lag, behind, _latency(start, last), rates, last)


def _gained(start: _Sample, end: _Sample, name: str, **labels: str) -> float:
    # a restarted process counts from 0
    return max(0.0, end.total(name, **labels) - start.total(name, **labels))


def _rate(start: _Sample, end: _Sample) -> float:
    seconds = end.at - start.at
    return _gained(start, end, "processed_events_total", stage=FIRST_STAGE) / seconds if seconds > 0 else 0.0


def _latency(start: _Sample, end: _Sample) -> tuple[float, float] | None:
    after, before = (each.by("end_to_end_latency_seconds_bucket", "le", stage=LORE_STAGE) for each in (end, start))
    lately = Counter({bound: count - before[bound] for bound, count in after.items()})
    counts = {float(bound): count for bound, count in (lately if +lately else after).items()}
    return (_quantile(counts, 0.5), _quantile(counts, 0.99)) if any(counts.values()) else None


def _quantile(cumulative: Mapping[float, int], share: float) -> float:
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    tenant: str
    now: float
    index: LoreIndex
    figures: Figures = field(default_factory=Figures)
    adapters: AdapterListing = field(default_factory=lambda: AdapterListing((), (), ()))
    letters: Sequence[DeadLetterRecord] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    sessions: Sequence[SeenSession] = ()
    loaded: bool = True
    left_out: int = 0
    self_declared: bool = True
    quorum: int = 2
    history: Sequence[Decision] = ()

    @property
    def one_voice(self) -> str:
        """Return the only principal, or ""."""
        names = {principal_of(each.agent) for each in self.sessions}
        is_one = all(each.agents <= 1 for each in self.index.patterns.values() if each.level == "tool")
        return names.pop() if is_one and len(names) == 1 else ""


class Sources:
    """Follows all sources while its context is open, across outages. `metrics`: URLs of the metrics endpoints."""

    def __init__(self, settings: Settings, tenant: str, metrics: Sequence[str]) -> None:
        self._settings = settings
        self._tenant = tenant
        self._clock = SystemClock()
        wait_ms, most_bytes = settings.fetch_wait_ms, settings.replica_mb * 1e6
        self._replica = LoreReplica(
            settings.cluster, tenant, fetch_wait_ms=wait_ms, clock=self._clock, most_bytes=most_bytes
        )
        self._scraper = Scraper(metrics, self._clock)
        self._adapters = AdapterListing((), (), ())
        self._letters: deque[DeadLetterRecord] = deque(maxlen=_LETTERS_KEPT)
        self._dead_letters = self._follower("dead-letters", self._take_letters, newest=_LETTERS_KEPT)
        self._decisions: dict[str, Decision] = {}
        self._decided = self._follower(DECISIONS, self._take_decisions)
        self._history: dict[str, Decision] = {}
        self._recorded = self._follower(HISTORY, self._take_history, newest=_HISTORY_KEPT)
        self._sessions = SeenSessions()
        self._judgments = self._follower("judgments", self._take_judgments, newest=_JUDGMENTS_READ)
        self._erased = Erased()
        self._store: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    def _follower(self, name: str, take: Callable[[Fetched], Awaitable[None]], newest: int | None = None) -> Follower:
        cluster, wait_ms = self._settings.cluster, self._settings.fetch_wait_ms
        topics = [topic(self._tenant, name)]
        return Follower(cluster, topics, take, what=name, fetch_wait_ms=wait_ms, newest=newest, clock=self._clock)

    async def __aenter__(self) -> Self:
        settings = self._settings
        await self._replica.start()
        erasures = self._erased.follow(settings.cluster, [self._tenant], self._clock, settings.fetch_wait_ms)
        followers = (self._dead_letters, self._decided, self._judgments, self._recorded)
        running = (self._scraper.run(), *(each.run() for each in followers), erasures, self._watch_adapters())
        self._tasks = [asyncio.create_task(each) for each in running]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self._replica.close(), return_exceptions=True)
        if self._store is not None:
            await self._store.close()

    def snapshot(self) -> Snapshot:
        replica, now = self._replica, self._clock.now()
        replica.index.end_corrections(now)
        sessions = self._sessions.newest(self._erased.count, lambda each: each.is_erased(self._erased, self._tenant))
        decisions, history = dict(self._decisions), tuple(reversed(self._history.values()))
        is_declared = Principals.of(self._settings.principal_key) is None
        return Snapshot(
            self._tenant, now, replica.index, self._scraper.figures, self._adapters, tuple(self._letters), decisions,
            sessions, replica.loaded, replica.left_out, is_declared, self._settings.quorum, history,
        )  # fmt: skip

    async def sessions_named(self, id: str) -> list[tuple[Trajectory, SessionState]]:
        """Return the session of that key, else of that id (which may look like a key), else its parts, newest first."""
        names, here = sorted(spellings(id)), f"tenant == {quoted(self._tenant)} and agent != ''"
        parts = " or ".join(f"(session > {quoted(each + '.')} and session < {quoted(each + '/')})" for each in names)
        asked = {f"id == {quoted(row_id(self._tenant, id))}": 1}
        asked |= {f"{here} and session in [{', '.join(map(quoted, names))}]": 1, f"{here} and ({parts})": _MOST_PARTS}
        for clause, most in asked.items():
            states = [SessionState.from_json(row["state"]) for row in await self._rows(clause, ("state",), most)]
            found = [(each.trajectory, each) for each in states if each.trajectory is not None]
            if found := [each for each in found if most == 1 or PART_OF_ID.sub("", each[0].session) in names]:
                return sorted(found, key=lambda each: -each[0].ended)
        return []

    async def sessions_of(self, agent: str) -> list[dict[str, Any]]:
        clause = f"tenant == {quoted(self._tenant)} and agent == {quoted(agent)}"
        rows = await self._rows(clause, ("id", "session", "task", "label"), _SESSIONS_OF_AN_AGENT)
        return sorted(({**row, "key": row["id"].partition("/")[2]} for row in rows), key=itemgetter("key"))

    async def _rows(self, clause: str, fields: Sequence[str], most: int) -> list[dict[str, Any]]:
        def ask(client: Any) -> list[dict[str, Any]]:
            return list(client.query("judgments", filter=clause, output_fields=list(fields), limit=most))

        if self._store is None:
            from sinks.milvus import MilvusStore  # here: few people look at a session

            uri, token = self._settings.milvus, self._settings.milvus_token
            self._store = MilvusStore(uri, token, None, timeout_seconds=_STORE_SECONDS)
        return list(await self._store.on_client(ask))

    async def _take_letters(self, fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            letter = read_dead_letter(record)
            if isinstance(letter, DeadLetterRecord):
                self._letters.append(replace(letter, key=None, value=b"", headers=()))

    async def _take_judgments(self, fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            self._sessions.take(record.value or b"")

    async def _take_decisions(self, fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            with contextlib.suppress(ValueError):  # another release's format
                taken = Decision.from_json(record.value or b"")
                self._decisions[taken.key] = taken
            if record.value is None:
                self._decisions.pop((record.key or b"").decode("utf-8", "replace"), None)

    async def _take_history(self, fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            put_in_history(self._history, record.value or b"")
        # An erasure writes old decisions again, so the newest ones are not those that came last.
        newest = sorted(self._history.items(), key=lambda each: each[1].time)[-_HISTORY_KEPT:]
        self._history = dict(newest)

    async def _watch_adapters(self) -> None:
        while True:
            with contextlib.suppress(BrokerUnavailable):
                self._adapters = await read_adapters(self._settings.cluster, self._tenant)
            await asyncio.sleep(_ADAPTERS_SECONDS)
