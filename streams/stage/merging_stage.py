"""Merge many sessions' contributions into states, and write each state once for many changes.

All contributions to a state are on one partition, so each state has a single writer. Changed states are published and
stored every few seconds, and urgent ones at once. The commit waits for that write; later batches do not.
"""

from abc import abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetlore.clock import Clock
from fleetlore.errors import InvalidEvent
from fleetlore.recall.search import row_id
from fleetlore.wire.trajectory import encode
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, Values, dead_letter, yielding
from streams.stage.operators import Adopt, Forget, Operators, Reconsider

__all__ = ["Key", "MergingStage"]

_State = TypeVar("_State")
_Value = TypeVar("_Value")
_Made = TypeVar("_Made")
Key = tuple[str, str]  # tenant, id
# Seconds a batch spends on rows while another may wait. The rows of 1,500 busy states take 0.3 s.
_SLICE_SECONDS = 0.01


class MergingStage(Stage, Generic[_State, _Value]):
    """A stage of states that many sessions contribute to. Its name is that of its collection.

    `values` decodes contributions and requests. `write_seconds`: longest wait of a change, while batches come.
    `most_waiting`: further changes are written at once. `most_bytes`: of the states.
    """

    values: Values[_Value | Forget | Reconsider | Adopt]
    write_seconds = 5.0
    most_waiting = 4_000
    most_bytes = 256 * 2**20

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, operators: Operators | None = None) -> None:
        self._clock, self._metrics = clock, metrics
        self._erased, self._distrusted = (operators or Operators()).topics
        self._states: StateCache[_State] = StateCache(store, self.name, self.restore, self.weigh, self.most_bytes)
        self._changes: WriteBuffer[_State] = WriteBuffer(clock, self.write_seconds, self.most_waiting)
        # The newest record that changed a waiting state, without its bytes.
        self._records: dict[Key, Record] = {}

    @abstractmethod
    def restore(self, row: dict[str, Any]) -> _State:
        """Make a state from its row."""

    @abstractmethod
    def id_of(self, value: _Value) -> str:
        """The id of the value's state."""

    @abstractmethod
    def session_of(self, value: _Value) -> int:
        """The hash of the value's session."""

    @abstractmethod
    def weigh(self, state: _State) -> int:
        """The approximate size of the state in bytes."""

    @abstractmethod
    def discard(self, state: _State, sessions: Collection[int]) -> bool:
        """Remove sessions; return whether any was there. Without `sessions`, only publish the state."""

    @abstractmethod
    def join(self, state: _State, other: _State) -> None:
        """Merge another state of the same id in."""

    @abstractmethod
    def merge(
        self, tenant: str, state: _State | None, values: Sequence[_Value], effects: Effects
    ) -> tuple[_State, bool, bool]:
        """Merge any values into their state. Return it, whether it changed, and whether it is urgent.

        Change only the counters of `effects`.
        """

    @abstractmethod
    def publish(self, key: Key, state: _State, effects: Effects) -> object:
        """Add the public part of a state to the outgoing values."""

    @abstractmethod
    def row(self, key: Key, state: _State, effects: Effects) -> dict[str, Any]:
        """Publish a state and return its row."""

    @property
    def holds(self) -> bool:
        return bool(self._changes)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        came: defaultdict[Key, list[_Value]] = defaultdict(list)
        forgets: dict[Key, tuple[int, ...]] = {}
        adopted: defaultdict[Key, list[Adopt]] = defaultdict(list)
        for record, value in self.values.read(batch, effects):
            tenant = record.tenant
            key = tenant, value.id if isinstance(value, Forget | Reconsider | Adopt) else self.id_of(value)
            self._records[key] = record._replace(value=b"", headers={})
            if isinstance(value, Forget):
                self._erased.add_sessions(tenant, value.sessions)
                forgets[key] = (*forgets.get(key, ()), *value.sessions)
            elif isinstance(value, Reconsider):
                self._distrusted.add(tenant, value.decision)
                forgets.setdefault(key, ())
            elif isinstance(value, Adopt):
                adopted[key].append(value)
            else:
                came[key].append(value)
        if self._erased.count:
            for (tenant, _), found in came.items():
                found[:] = [value for value in found if not self._erased.has(tenant, self.session_of(value))]
        source = self._states.source
        states = await self._states.load(came.keys() | forgets.keys() | adopted.keys())
        if self._states.source != source:
            # A backfill switched the alias. It brings the events of the old collection's waiting changes.
            self._changes.drop()
        at_once: dict[Key, _State] = {}
        for key in dict.fromkeys((*came, *forgets, *adopted)):
            # Waiting states may have left the cache, and are newer than their rows.
            known, values = self._changes.newest(key) or states.get(key), came.get(key, [])
            others = adopted.get(key, ())
            if known is None and (unreadable := self._states.unreadable.get(key)) is not None:
                # A new state would lose what this row counted.
                asked = [*values, *others, *([Forget(key[1], forgets[key])] if forgets.get(key) else [])]
                effects.dead_letters += [dead_letter(self._records[key], unreadable, encode(each)) for each in asked]
                continue
            if known is None and not values and not others:
                effects.outgoing.append(Outgoing(key[0], self.name, key[1], None))
                continue
            # Forget first: later values may replace what is forgotten.
            gone = known is not None and key in forgets and self.discard(known, forgets[key])
            try:
                merged = self._joined(key[0], known, others) if others else known
                state, changed, urgent = self.merge(key[0], merged, values, effects)
            except Exception as error:
                bad = [encode(value) for value in (*values, *others)]
                effects.dead_letters += [dead_letter(self._records[key], error, value) for value in bad]
                continue
            changed, urgent = changed or gone or bool(others), urgent or gone
            if known is None:
                self._states.remember(*key, state)
            if changed:
                self._changes.waiting[key] = state
            if urgent:
                at_once[key] = state
        overdue = False
        if self._changes.due(batch):
            # Without this, states that change in every batch would refill the queue faster than it drains.
            overdue = bool(self._changes.left)
            self._changes.begin(at_once)
        else:
            for key, state in at_once.items():
                self._tried(self.publish, key, state, effects)
        await self._write(at_once, effects, whole=overdue or not batch)
        if effects.acknowledged is not None or len(self._records) > 2 * self.most_waiting:
            unwritten = self._changes.waiting.keys() | self._changes.left.keys()
            self._records = {key: record for key, record in self._records.items() if key in unwritten}
        return effects

    def _tried(
        self, make: Callable[[Key, _State, Effects], _Made], key: Key, state: _State, effects: Effects
    ) -> _Made | None:
        outgoing = len(effects.outgoing)
        try:
            return make(key, state, effects)
        except Exception as error:
            del effects.outgoing[outgoing:]
            effects.dead_letters.append(dead_letter(self._records[key], error, encode(key)))
            return None

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return self._changes.committable(tp, next_offset)

    def _joined(self, tenant: str, known: _State | None, others: Sequence[Adopt]) -> _State:
        """Leave out sessions that this tenant has erased."""
        for each in others:
            other = self.restore({"body": each.body, "state": each.state})
            if erased := self._erased.sessions(tenant):
                self.discard(other, erased)
            if known is None:
                known = other
            else:
                self.join(known, other)
        assert known is not None, "there is at least one other state"
        return known

    async def _write(self, urgent: Container[Key], effects: Effects, *, whole: bool) -> None:
        changes = self._changes
        if not changes.left:
            return
        whole = whole or len(changes.left) > self.most_waiting
        until = self._clock.monotonic() + _SLICE_SECONDS
        async for key in yielding(list(changes.left)):
            if (row := self._tried(self.row, key, changes.left.pop(key), effects)) is not None:
                changes.rows[key] = row
            if not whole and changes.left and key not in urgent and self._clock.monotonic() >= until:
                return
        effects.rows[self._states.source] = list(changes.rows.values())
        effects.acknowledged = changes.write()


@dataclass(eq=False)
class StateCache(Generic[_State]):
    """LRU cache of one collection's states, by tenant and id.

    It asks the store for missing ids once a batch: listing a million rows would take minutes. Only `load` evicts, never
    a state in use. `unreadable`: why rows of the last `load` could not be restored.
    """

    store: Store
    collection: str
    restore: Callable[[dict[str, Any]], _State]
    weigh: Callable[[_State], int]
    most_bytes: int

    def __post_init__(self) -> None:
        # By row, least recently used first: the state and its bytes.
        self._states: OrderedDict[str, tuple[_State, int]] = OrderedDict()
        self._bytes = 0
        self.source = ""
        self.unreadable: dict[Key, InvalidEvent] = {}

    async def load(self, keys: Iterable[Key]) -> dict[Key, _State]:
        """Return the states that exist. Raises StoreUnavailable: none has changed."""
        rows = {row_id(tenant, id): (tenant, id) for tenant, id in keys}
        source = await self.store.resolve(self.collection)
        if source != self.source:
            self._states.clear()
            self._bytes, self.source = 0, source
        while self._bytes > self.most_bytes:
            _, (_, weight) = self._states.popitem(last=False)
            self._bytes -= weight
        known = {row: self._states[row][0] for row in rows if row in self._states}
        unknown = [row for row in rows if row not in known]
        self.unreadable = {}
        if unknown:
            for row, fields in (await self.store.get(self.collection, unknown, "body", "state")).items():
                if not fields["state"]:
                    continue  # an empty row once held an erased session
                try:
                    known[row] = self.restore(fields)
                except MemoryError:
                    raise
                except Exception as error:
                    detail = f"the row of {rows[row][1]} in {self.source} cannot be read: {error!r}"
                    self.unreadable[rows[row]] = InvalidEvent("stored_state", detail)
        found: dict[Key, _State] = {}
        for row, key in rows.items():
            if row in known:
                self._put(row, known[row])
                found[key] = known[row]
        return found

    def remember(self, tenant: str, id: str, state: _State) -> None:
        self._put(row_id(tenant, id), state)

    def _put(self, row: str, state: _State) -> None:
        _, before = self._states.pop(row, (None, 0))
        weight = self.weigh(state)
        self._states[row] = state, weight
        self._bytes += weight - before


class WriteBuffer(Generic[_State]):
    """Changes that are written together. Commits stop before the first unacknowledged one.

    `waiting`: states by tenant and id. `left`: those of the started write without a row; `rows`: their finished rows.
    """

    def __init__(self, clock: Clock, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._written = clock.monotonic()
        # First offsets by partition: of waiting changes, and of each running write with its states.
        self._first: dict[TopicPartition, int] = {}
        self._begun: tuple[dict[Key, _State], dict[TopicPartition, int]] = {}, {}
        self.left: dict[Key, _State] = {}
        self.rows: dict[Key, dict[str, Any]] = {}
        self._under_way: list[tuple[dict[Key, _State], dict[TopicPartition, int]]] = []
        self.waiting: dict[Key, _State] = {}

    def __bool__(self) -> bool:
        return bool(self.waiting or self.left or self._under_way)

    def newest(self, key: Key) -> _State | None:
        return next((states[key] for states in (self.waiting, *self._written_states()) if key in states), None)

    def drop(self) -> None:
        for states in (self.waiting, *self._written_states()):
            states.clear()
        self._first |= self._begun[1]  # these offsets are earlier
        self.left, self.rows, self._begun = {}, {}, ({}, {})

    def due(self, batch: Sequence[Record]) -> bool:
        if not self.waiting:
            self._first.clear()
            return False
        for record in batch:
            self._first.setdefault(record.tp, record.offset)
        late = self._clock.monotonic() - self._written >= self._seconds
        return late or not batch or len(self.waiting) > self._most

    def begin(self, urgent: Container[Key] = ()) -> None:
        states, first = self._begun
        self._begun = states | self.waiting, self._first | first  # keeps the earlier of two offsets
        now = {key: state for key, state in self.waiting.items() if key in urgent}
        self.left = {**now, **self.left, **self.waiting}
        self.waiting, self._first = {}, {}
        self._written = self._clock.monotonic()

    def write(self) -> Callable[[], None]:
        """Hand over the rows, which hold back the commit until the returned function is called."""
        write, self._begun = self._begun, ({}, {})
        self._under_way.append(write)
        self.left, self.rows = {}, {}

        def acknowledged() -> None:
            self._under_way = [each for each in self._under_way if each is not write]

        return acknowledged

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        first = (self._first, *(offsets for _, offsets in (self._begun, *self._under_way)))
        return min(next_offset, *(offsets.get(tp, next_offset) for offsets in first))

    def _written_states(self) -> list[dict[Key, _State]]:
        return [states for states, _ in (self._begun, *reversed(self._under_way))]
