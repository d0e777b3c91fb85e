"""Merge what many sessions contribute to one state, and write each state once for many changes.

All contributions to a state lie on one partition, so it has a single writer. A state that changes with nearly every
batch is published and stored together with all others that have changed, every few seconds. The commit waits for that
write, but the next batch does not: states are published and their rows made a slice with each batch, and stored
together, for the store takes many rows at the price of a few. A state that others must know of is published at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from fleetlore.clock import Clock
from fleetlore.wire.topics import tenant_of
from sinks.milvus import row_id
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, Values, yielding
from streams.stage.operators import Forget, Operators, Reconsider

__all__ = ["BoundedCache", "Key", "MergingStage"]

_State = TypeVar("_State")
_Value = TypeVar("_Value")
_Key = TypeVar("_Key", bound=Hashable)
Key = tuple[str, str]  # tenant, id
# How long a batch makes rows while another may wait: all at once takes a third of a second where 1,500 states are busy.
_SLICE_SECONDS = 0.01


class MergingStage(Stage, Generic[_State, _Value]):
    """A stage of states that many sessions contribute to.

    Args:
        collection: of the states' rows.
        values: decodes the contributions, and what asks to forget some or to publish a state again.
        restore: makes a state of its row.
        operators: whose contributions are dropped (erased), or kept and not published (distrusted).

    Attributes:
        write_seconds: how long a change waits for its write at most, while batches come.
        most_waiting: changes that wait at most. A batch of a replay makes more, and then they are written with it.
        most_bytes: of the states in memory, about.
    """

    write_seconds = 5.0
    most_waiting = 4_000
    most_bytes = 256 * 2**20

    def __init__(
        self,
        store: Store,
        clock: Clock,
        collection: str,
        values: Values[_Value | Forget | Reconsider],
        restore: Callable[[dict[str, Any]], _State],
        operators: Operators | None = None,
    ) -> None:
        self._clock = clock
        self._erased, self._distrusted = (operators or Operators()).topics
        self._collection = collection
        self._values = values
        self._states: StateCache[_State] = StateCache(store, collection, restore, self.weigh, self.most_bytes)
        self._changes: WriteBuffer[_State] = WriteBuffer(clock, self.write_seconds, self.most_waiting)

    @abstractmethod
    def id_of(self, value: _Value) -> str:
        """Return the id of the state that a value contributes to."""

    @abstractmethod
    def session_of(self, value: _Value) -> int:
        """Return the hash of the session that a value comes from."""

    @abstractmethod
    def weigh(self, state: _State) -> int:
        """Return how many bytes a state takes up, about."""

    @abstractmethod
    def discard(self, state: _State, sessions: Collection[int]) -> bool:
        """Take sessions out of a state; say whether any was there. It is published at once then, and where no session
        is given.
        """

    @abstractmethod
    def merge(
        self, tenant: str, state: _State | None, values: Sequence[_Value], effects: Effects
    ) -> tuple[_State, bool, bool]:
        """Merge values into their state; return it, whether it has changed, and whether to publish it at once.

        The state is None where there is none yet; there are no values where it is only to forget. Only the counters of
        `effects` may be changed.
        """

    @abstractmethod
    def publish(self, key: Key, state: _State, effects: Effects) -> object:
        """Add what other agents are to know of a state to the outgoing values."""

    @abstractmethod
    def row(self, key: Key, state: _State, effects: Effects) -> dict[str, Any]:
        """Publish a state and return its row."""

    @property
    def holds(self) -> bool:
        return bool(self._changes)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        # Each state is looked up once: most of a batch is about a few of them.
        came: defaultdict[Key, list[_Value]] = defaultdict(list)
        forgets: dict[Key, tuple[int, ...]] = {}
        for record, value in self._values.read(batch, effects):
            tenant = tenant_of(record.topic)
            if isinstance(value, Forget):
                self._erased.add_sessions(tenant, value.sessions)
                forgets[tenant, value.id] = (*forgets.get((tenant, value.id), ()), *value.sessions)
            elif isinstance(value, Reconsider):
                self._distrusted.add(tenant, value.decision)
                forgets.setdefault((tenant, value.id), ())
            else:
                came[tenant, self.id_of(value)].append(value)
        if self._erased.count:
            for (tenant, _), found in came.items():
                found[:] = [value for value in found if not self._erased.has(tenant, self.session_of(value))]
        source = self._states.source
        states = await self._states.load(came.keys() | forgets.keys())
        if self._states.source != source:
            # A backfill has taken the name over. The changes that wait were made to rows of the old collection, and
            # what is being written goes there; the new one has those events already, or gets them handed over.
            self._changes.drop()
        at_once: dict[Key, _State] = {}
        for key in dict.fromkeys((*came, *forgets)):
            # A state that waits or is being written may have left the cache, and is newer than its row.
            known, values = self._changes.newest(key) or states.get(key), came.get(key, [])
            if known is None and not values:
                # Nothing is left of it, and a record of it that came late is to go.
                effects.outgoing.append(Outgoing(key[0], self._collection, key[1], None))
                continue
            # First: what comes behind it may take the place of what is forgotten.
            gone = known is not None and key in forgets and self.discard(known, forgets[key])
            state, changed, urgent = self.merge(key[0], known, values, effects)
            changed, urgent = changed or gone, urgent or gone
            if known is None:
                self._states.remember(*key, state)
            if changed:
                self._changes.waiting[key] = state
            if urgent:
                at_once[key] = state
        overdue = False
        if self._changes.due(batch):
            # Else states that change with every batch would be added faster than they are made, and none be written.
            overdue = bool(self._changes.left)
            self._changes.begin(at_once)
        else:
            for key, state in at_once.items():
                self.publish(key, state, effects)
        await self._write(at_once, effects, whole=overdue or not batch)
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return self._changes.committable(tp, next_offset)

    def forget(self) -> None:
        self._states.forget()
        self._changes.forget()

    async def _write(self, urgent: Container[Key], effects: Effects, *, whole: bool) -> None:
        """Make the rows of a write that was begun, for a slice of time or `whole`, and hand them on once all are made.
        What is urgent and what is more than may wait is made at once.
        """
        changes = self._changes
        if not changes.left:
            return
        whole = whole or len(changes.left) > self.most_waiting
        until = self._clock.monotonic() + _SLICE_SECONDS
        async for key in yielding(list(changes.left)):
            state = changes.left.pop(key, None)
            if state is None:
                return  # a rebalance came
            changes.rows[key] = self.row(key, state, effects)
            if not whole and changes.left and key not in urgent and self._clock.monotonic() >= until:
                return
        effects.rows[self._states.source] = list(changes.rows.values())
        effects.acknowledged = changes.write()


class BoundedCache(Generic[_Key, _State]):
    """An LRU cache within so many bytes. Its values may change: each is weighed again whenever it is put.

    Args:
        weigh: how many bytes a value takes up, about.
        most_bytes: of all of them. Only `trim` heeds it, so that nothing that is in use goes.
    """

    def __init__(self, weigh: Callable[[_State], int], most_bytes: int) -> None:
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._values: OrderedDict[_Key, tuple[_State, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> _State | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def items(self) -> list[tuple[_Key, _State]]:
        """All of them, the one that was put last at the end."""
        return [(key, value) for key, (value, _) in self._values.items()]

    def put(self, key: _Key, value: _State) -> None:
        """Keep a value, as the one that was used last."""
        _, before = self._values.pop(key, (None, 0))
        weight = self._weigh(value)
        self._values[key] = value, weight
        self.bytes += weight - before

    def trim(self) -> None:
        """Let go of those that were not used for longest, until the rest is within the bound."""
        while self.bytes > self._most_bytes:
            _, (_, weight) = self._values.popitem(last=False)
            self.bytes -= weight

    def clear(self) -> None:
        self._values.clear()
        self.bytes = 0


class StateCache(Generic[_State]):
    """The states of one collection, by tenant and id: an LRU cache that asks the store for the ids it misses.

    The store is asked by primary key, once a batch, for new states too. A list of all ids would save the question about
    a new state, but to read it takes minutes at a million rows, and no batch could be processed meanwhile.

    The cache is dropped when partitions move and when the collection's alias moves to another collection.

    Attributes:
        source: the collection that the alias stood for at the last `load`.
    """

    def __init__(
        self,
        store: Store,
        collection: str,
        restore: Callable[[dict[str, Any]], _State],
        weigh: Callable[[_State], int],
        most_bytes: int,
    ) -> None:
        self._store = store
        self._collection = collection
        self._restore = restore
        self._states: BoundedCache[str, _State] = BoundedCache(weigh, most_bytes)
        self.source = ""

    async def load(self, keys: Iterable[Key]) -> dict[Key, _State]:
        """Return the states of (tenant, id) that exist, in the store or in memory.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        rows = {row_id(tenant, id): (tenant, id) for tenant, id in keys}
        source = await self._store.resolve(self._collection)
        if source != self.source:
            self.forget()
            self.source = source
        self._states.trim()
        known = {row: state for row in rows if (state := self._states.get(row)) is not None}
        unknown = [row for row in rows if row not in known]
        if unknown:
            for row, fields in (await self._store.get(self._collection, unknown, "body", "state")).items():
                if fields["state"]:  # else nothing is left of it, but an erased session was in it
                    known[row] = self._restore(fields)
        found: dict[Key, _State] = {}
        for row, key in rows.items():
            if row in known:
                self._states.put(row, known[row])
                found[key] = known[row]
        return found

    def remember(self, tenant: str, id: str, state: _State) -> None:
        """Keep a new state, which the caller is about to write; `load` was asked for it before."""
        self._states.put(row_id(tenant, id), state)

    def forget(self) -> None:
        self._states.clear()


class WriteBuffer(Generic[_State]):
    """Changes that are written together; no commit passes the first record whose change is not acknowledged.

    The cost of a busy state then depends on the time and not on how often it changes.

    Args:
        seconds, most: see `MergingStage`.

    Attributes:
        waiting: by tenant and id.
        left: of a write that was begun, the states whose rows are not made yet; `rows`: those that are.
    """

    def __init__(self, clock: Clock, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._written = clock.monotonic()
        # The first offset of each partition whose change waits; and of each write under way, beside its states.
        self._first: dict[TopicPartition, int] = {}
        self._begun: tuple[dict[Key, _State], dict[TopicPartition, int]] = {}, {}
        self.left: dict[Key, _State] = {}
        self.rows: dict[Key, dict[str, Any]] = {}
        self._under_way: list[tuple[dict[Key, _State], dict[TopicPartition, int]]] = []
        self.waiting: dict[Key, _State] = {}

    def __bool__(self) -> bool:
        """Whether a change waits or is being written."""
        return bool(self.waiting or self.left or self._under_way)

    def newest(self, key: Key) -> _State | None:
        """Return the state that waits or is being written: it is newer than the store's."""
        return next((states[key] for states in (self.waiting, *self._written_states()) if key in states), None)

    def drop(self) -> None:
        """Drop all states but not their offsets: the collection is another one now."""
        for states in (self.waiting, *self._written_states()):
            states.clear()
        self._first |= self._begun[1]  # which are the earlier ones
        self.left, self.rows, self._begun = {}, {}, ({}, {})

    def due(self, batch: Sequence[Record]) -> bool:
        """Whether to write all that waits, the changes of this batch included. Ask once for every batch."""
        if not self.waiting:
            self._first.clear()  # the batch changed nothing
            return False
        for record in batch:
            self._first.setdefault(record.tp, record.offset)
        late = self._clock.monotonic() - self._written >= self._seconds
        return late or not batch or len(self.waiting) > self._most

    def begin(self, urgent: Container[Key] = ()) -> None:
        """Let all that waits be written, what is urgent first."""
        states, first = self._begun
        self._begun = states | self.waiting, self._first | first  # of two offsets the earlier one
        now = {key: state for key, state in self.waiting.items() if key in urgent}
        self.left = {**now, **self.left, **self.waiting}
        self.waiting, self._first = {}, {}
        self._written = self._clock.monotonic()

    def write(self) -> Callable[[], None]:
        """All rows are made. They hold the commit back until the returned function is called."""
        write, self._begun = self._begun, ({}, {})
        self._under_way.append(write)
        self.left, self.rows = {}, {}

        def acknowledged() -> None:
            self._under_way = [each for each in self._under_way if each is not write]

        return acknowledged

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """See `Stage.committable`."""
        first = (self._first, *(offsets for _, offsets in (self._begun, *self._under_way)))
        return min(next_offset, *(offsets.get(tp, next_offset) for offsets in first))

    def forget(self) -> None:
        """See `Stage.forget`."""
        self.waiting.clear()
        self._first.clear()
        self.left, self.rows, self._begun = {}, {}, ({}, {})
        self._under_way.clear()

    def _written_states(self) -> list[dict[Key, _State]]:
        return [states for states, _ in (self._begun, *reversed(self._under_way))]
