"""Process all events again with today's code into new collections, and make these live.

A backfill has its own group and passes values in memory, so live offsets and topics are untouched. The switch loses no
event and gives each row a single writer: (1) The version catches up. (2) The aliases move; live workers follow within
`RESOLVE_SECONDS` and a batch. (3) The first stage processes the events since step 1 again, because they may be in the
old collections only. (4) The compacted topics are updated.
"""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple, Self

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from msgspec.structs import replace

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_until
from fleetlore.wire.events import Event
from fleetlore.wire.lore import Decision, Pattern
from fleetlore.wire.topics import PREFIX, topic
from models.judge import SessionState
from models.memory.item_state import ItemState
from sinks.collections import FIRST_VERSION, is_live, list_versions, make_live, row_counts
from sinks.metrics import Metrics
from sinks.milvus import RESOLVE_SECONDS, MilvusStore
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics
from streams.offline.erase import forget_erased
from streams.offline.operator_word import Owners, decide, read_decisions
from streams.offline.republish import republish
from streams.stage.base import Record, Store
from streams.stage.operators import Operators
from streams.stages.pipeline import Chain, language_model, pipeline, records_of_events

__all__ = ["run_backfill", "switch"]

_BATCH_RECORDS = 256
_DECISIONS_SECONDS = 30.0
_COORDINATOR_SECONDS = 60.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,31}\Z")

_Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    name: str
    events: int
    dead_letters: int
    seconds: float
    event_seconds: float

    def to_dict(self) -> dict[str, Any]:
        seconds = self.seconds or inf
        rates = {"events_per_second": self.events / seconds, "times_real_time": self.event_seconds / seconds}
        return asdict(self) | {name: round(rate, 1) for name, rate in rates.items()}


async def run_backfill(settings: Settings, name: str) -> BackfillReport:
    """Fill collection version `name` up to the end of the events, from its last run's end.

    Raises ConfigError: the version is live. After StoreUnavailable or BrokerUnavailable, run it again to continue.
    """
    async with Backfill(settings, name) as backfill:
        if await backfill.is_live():
            raise ConfigError(f"collection version {name!r} is live; its workers fill it")
        await backfill.begin()
        report = await backfill.fill()
        await backfill.heed()  # a session may have been erased meanwhile
        return report


async def switch(settings: Settings, name: str, *, allow_loss: bool = False) -> None:
    async with Backfill(settings, name) as backfill:
        if name not in await backfill.store.on_client(list_versions):
            raise ConfigError(f"there is no collection version {name!r}; fill it with `fleetlore backfill run {name}`")
        await backfill.begin()
        if not await backfill.is_live():
            await backfill.fill()
            # Closer to the end, fewer events are merged twice.
            await backfill.fill()
            if not allow_loss:
                await backfill.check_loss()
            # A later erasure waits 2 s, then finds this version's rows.
            await backfill.heed()
            await backfill.keep_decisions()  # not earlier: agents still read the live version
        await backfill.store.on_client(lambda client: make_live(client, name))
        await asyncio.sleep(RESOLVE_SECONDS)
        # Include tenants without a worker, whose events may have expired.
        of_all = settings.with_(tenants=backfill.tenants)
        await ensure_topics(of_all)
        await backfill.hand_over()
        await republish(of_all, backfill.store)


class Backfill:
    """A collection version and its source events; an async context manager. `tenants`: all, as a version holds all."""

    def __init__(self, settings: Settings, name: str, others: Iterable[str] = ()) -> None:
        if not _NAME.match(name) or name == FIRST_VERSION:
            raise ConfigError(
                f"{name!r} is not a valid collection version: up to 32 of a-z, 0-9 and '_', and not {FIRST_VERSION!r}"
            )
        self.name = name
        self.tenants = tuple(others)
        self._settings = settings
        metrics = Metrics("backfill")
        self.store = MilvusStore.from_settings(settings, metrics=metrics, version=name)
        self._model = language_model(settings, metrics)
        self._operators = Operators()
        stages = pipeline(self.store, metrics, SystemClock(), settings, self._model, self._operators)
        self._sessions = stages[0]
        self._chain = Chain(stages, self.store)
        self._opened = AsyncExitStack()
        self._group = f"{settings.group}.backfill.{name}"
        self._reader: Any = None
        self._watcher: Any = None
        self._partitions: list[TopicPartition] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            if self._model is not None:
                stack.push_async_callback(self._model.close)
            self._reader = await stack.enter_async_context(observer(self._settings.cluster, self._group))
            self._watcher = await stack.enter_async_context(observer(self._settings.cluster))
            parts = [name.split(".") for name in await self._watcher.topics()]
            stored = [each[1] for each in parts if len(each) == 3 and (each[0], each[2]) == (PREFIX, "events")]
            self.tenants = tuple(sorted({*self.tenants, *stored}))
            await self._operators.read(self._settings.cluster, self.tenants)
            names = [topic(tenant, name) for tenant in self.tenants for name in ("events", "feedback")]
            self._partitions = await partitions_of(self._watcher, *names)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def is_live(self) -> bool:
        return await self.store.on_client(lambda client: is_live(client, self.name))

    async def begin(self) -> None:
        """Create missing collections, and seek the committed offsets or the beginning."""
        created = await self.store.open()
        self._reader.assign(self._partitions)
        try:
            async with asyncio.timeout(_COORDINATOR_SECONDS):  # a fresh broker takes seconds to name a coordinator
                committed = {each: await self._reader.committed(each) for each in self._partitions}
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"{self._settings.cluster} does not say what is committed: {error!r}") from error
        # Commits of an earlier version of this name do not count.
        if created or all(each is None for each in committed.values()):
            committed = dict(await self._watcher.beginning_offsets(self._partitions))
            await self._commit(committed)
        for partition, offset in committed.items():
            # A new partition has no commit and is read from its beginning.
            self._reader.seek(partition, offset or 0)

    async def remaining(self) -> int:
        ends = await end_offsets(self._watcher, self._partitions)
        return sum([ends[each] - await self._reader.position(each) for each in self._partitions])

    async def process(self, events: Iterable[Event]) -> None:
        await self._chain.run(records_of_events(events))
        await self._chain.run([])
        await self._chain.settle()

    async def fill(self, progress: Callable[[int], object] = lambda events: None) -> BackfillReport:
        """Process all events up to the topics' current end. `progress` gets the number of events."""
        clock = SystemClock()
        started, events, dead_letters, oldest, newest = clock.monotonic(), 0, 0, inf, 0.0
        done: _Offsets = {}
        async for batch in self._batches():
            effects = await self._chain.run(batch)
            # The previous batch is acknowledged; this one's rows are still being written.
            await self._commit(done)
            done = await self._committable()
            events += effects.processed
            dead_letters += len(effects.dead_letters)
            progress(events)
            oldest, newest = min(oldest, effects.oldest), max(newest, effects.newest)
        await self._chain.settle()
        await self._commit(done)
        seconds, spanned = round(clock.monotonic() - started, 3), round(max(0.0, newest - oldest), 3)
        return BackfillReport(
            name=self.name, events=events, dead_letters=dead_letters, seconds=seconds, event_seconds=spanned
        )

    async def heed(self) -> None:
        await self._operators.read(self._settings.cluster, self.tenants)
        erased, distrusted = self._operators.topics
        for tenant in self.tenants:
            owners = Owners(self._settings, tenant, self.store, self._chain.deliver, self._chain.settle)
            await forget_erased(owners, erased)
            for decision in distrusted.decided(tenant):
                await owners.publish_again(decision)

    async def keep_decisions(self) -> None:
        async with MilvusStore.from_settings(self._settings) as live:
            if not await live.has_collections():
                return
            for tenant in self.tenants:
                decisions = await read_decisions(self._settings, tenant, _DECISIONS_SECONDS)
                if any(map(_about, decisions)) and (kept := await _kept(decisions, live, self.store, tenant)):
                    await decide(self._settings, tenant, *kept)

    async def check_loss(self) -> None:
        """Raise ConfigError: a collection has fewer than half of the live rows, or the oldest events are lost."""
        new = await self.store.on_client(lambda client: row_counts(client, self.name))
        live = await self.store.on_client(row_counts)
        first = await self._watcher.beginning_offsets(self._partitions)
        if found := losses(new, live, first.values()):
            raise ConfigError(
                f"collection version {self.name!r} would lose lore: {found}; --allow-loss switches anyway"
            )

    async def hand_over(self) -> None:
        async with BatchProducer(self._settings.cluster) as producer:
            async for batch in self._batches():
                for stage, records in self._chain.first_of(batch):
                    await producer.deliver((await stage.process(records)).outgoing)
                await self._commit(await self._committable())

    async def _batches(self) -> AsyncIterator[list[Record]]:
        ends = await end_offsets(self._watcher, self._partitions)
        async for records in read_until(self._reader, ends, most=_BATCH_RECORDS):
            yield [Record.of(each) for each in records]
        if self._sessions.holds:
            yield []

    async def _committable(self) -> _Offsets:
        return {each: self._sessions.committable(each, await self._reader.position(each)) for each in self._partitions}

    async def _commit(self, offsets: _Offsets) -> None:
        if offsets:
            await self._reader.commit(offsets)


class _Named(NamedTuple):
    """The identity of an item, a tool or a loop in each version. `pattern`: id of an item's failures, or ""."""

    words: tuple[object, ...]
    pattern: str = ""
    title: str = ""


async def _kept(decisions: Sequence[Decision], old: Store, new: Store, tenant: str) -> list[Decision]:
    """Return the decisions on ids that the new version lacks, for its ids of the same calls and changes."""
    known, again = await _named(old, tenant), await _named(new, tenant)
    about = {id for each in decisions for id in _about(each)}
    calls = await _renamed(old, new, tenant, {known[id].pattern if id in known else id for id in about} - {""})

    def renamed(id: str) -> list[str]:
        if id not in known or id in again:
            return calls[id]
        words, pattern, title = known[id]
        patterns = calls[pattern] if pattern else [""]
        ids = [each for each, it in again.items() if it.words == words and it.pattern in patterns]
        return sorted([each for each in ids if again[each].title == title] or ids)

    found, newest = list[Decision](), {each.key: each.time for each in decisions}
    for each in decisions:
        ids = [renamed(id) for id in _about(each)]
        if each.hint is not None:
            replaces, after = [(*of, id)[0] for of, id in zip(ids, _about(each), strict=True)]
            made = [replace(each, hint=replace(each.hint, replaces=replaces, after=after))]
        else:
            made = [replace(each, id=id) for of in ids for id in of]
        found += [kept for kept in made if kept != each and kept.time >= newest.get(kept.key, 0.0)]
    return found


def _about(decided: Decision) -> tuple[str, ...]:
    if decided.hint is not None:
        return decided.hint.replaces, decided.hint.after
    return (decided.id,) if decided.kind in ("item", "pattern") else ()


async def _named(store: Store, tenant: str) -> dict[str, _Named]:
    found: dict[str, _Named] = {}
    async for row in store.rows("items", tenant, "state"):
        with suppress(ValueError):  # an empty row, or another release's
            for each in ItemState.from_json(row["state"].encode()).candidates:
                words = each.kind, each.tool, each.task, each.was, each.now, "" if each.pattern else each.title
                if each.title:  # a contradiction has none
                    found[each.item_id] = _Named(words, each.pattern or "", each.title)
    async for row in store.rows("patterns", tenant, "body"):
        with suppress(ValueError):
            pattern = Pattern.from_json(row["body"])
            if pattern.level == "tool" or pattern.is_loop:  # no call has their ids
                found[pattern.id] = _Named((pattern.level, pattern.tool, pattern.template, pattern.shape))
    return found


async def _renamed(old: Store, new: Store, tenant: str, wanted: Collection[str]) -> defaultdict[str, list[str]]:
    places = {place: ids async for place, ids in _ids_of_calls(old, tenant) if any(map(wanted.__contains__, ids))}
    votes = Counter[tuple[str, str]]()
    async for place, ids in _ids_of_calls(new, tenant):
        votes.update(zip(places.get(place, ()), ids, strict=False))
    found = defaultdict[str, list[str]](list)
    for (was, now), _ in votes.most_common():
        if was in wanted and now and (was, was) not in votes:
            found[was].append(now)
    return found


async def _ids_of_calls(store: Store, tenant: str) -> AsyncIterator[tuple[tuple[str, int], tuple[str, ...]]]:
    async for row in store.rows("judgments", tenant, "state"):
        with suppress(ValueError):  # another release's
            if (made := SessionState.from_json(row["state"]).trajectory) is not None:
                for step in made.steps:
                    ids = step.family, step.pattern, step.exact, step.call
                    yield (made.id, step.sequence), tuple([id or "" for id in ids])


def losses(new: Mapping[str, int], live: Mapping[str, int], first_offsets: Iterable[int]) -> str:
    found = [f"it has {new[each]:,} {each}, the live one {live[each]:,}" for each in live if 2 * new[each] < live[each]]
    if any(first_offsets):
        found.append("the oldest events are no longer on the broker")
    return "; ".join(found)
