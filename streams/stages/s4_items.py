"""Merge candidates into memory items and count their trials (stage 4). New items and withdrawals go out at once."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetlore.clock import Clock
from fleetlore.recall.search import row_id
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.stats import cached_hash
from models.memory.candidate import Candidate, is_junk, is_unconfirmed
from models.memory.item_state import ItemState
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Store, Values
from streams.stage.merging_stage import Key, MergingStage
from streams.stage.operators import Adopt, Forget, Operators, Reconsider

__all__ = ["ItemsStage"]

# Seconds after an assignment in which records may be read twice: a former owner commits every few seconds.
READ_AGAIN_SECONDS = 60.0
# Upper bounds in bytes: of a state, an example, and a session that contributed.
STATE_BYTES, EXAMPLE_BYTES, SESSION_BYTES = 2_500, 8_000, 640


@dataclass(slots=True)
class _Item:
    state: ItemState
    public: bool = False
    published: bool = False


class ItemsStage(MergingStage[_Item, Candidate]):
    name = "items"
    reads = "candidates"
    values = Values(Candidate, Forget | Reconsider | Adopt)
    linger_seconds = 0.2
    write_seconds = 10.0

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        operators: Operators | None = None,
        review_of: Callable[[str], str] = lambda tenant: "off",
    ) -> None:
        super().__init__(store, clock, metrics, operators)
        self._began = clock.monotonic()
        self._review_of = review_of

    def restore(self, row: dict[str, Any]) -> _Item:
        return _Item(ItemState.from_json(row["state"].encode()), public=bool(row["body"]) or self._reads_again)

    def id_of(self, value: Candidate) -> str:
        return value.item_id

    def session_of(self, value: Candidate) -> int:
        return cached_hash(value.session)

    def weigh(self, state: _Item) -> int:
        examples = len(state.state.open) + sum(map(len, state.state.examples.values()))
        return STATE_BYTES + EXAMPLE_BYTES * examples + SESSION_BYTES * state.state.size

    def discard(self, state: _Item, sessions: Collection[int]) -> bool:
        was_item = state.state.is_item
        if sessions and not state.state.discard(sessions):
            return False
        # Agents may have what is requested to be published again.
        state.public |= was_item or not sessions
        state.published = False
        return True

    def join(self, state: _Item, other: _Item) -> None:
        state.public |= state.state.is_item
        state.state.join(other.state)
        state.published = False

    def merge(
        self, tenant: str, state: _Item | None, values: Sequence[Candidate], effects: Effects
    ) -> tuple[_Item, bool, bool]:
        item = state or _Item(ItemState(), public=self._reads_again)
        distrusted = self._distrusted.agents(tenant)
        was_item = item.state.without(distrusted).is_item
        changed = any([item.state.merge(value, distrusted) for value in values])
        if changed:
            item.public |= was_item
            item.published = False
        return item, changed, item.state.without(distrusted).is_item != was_item

    def publish(self, key: Key, state: _Item, effects: Effects) -> MemoryItem | None:
        item = self._worth_recalling(state.state.without(self._distrusted.agents(key[0])))
        if state.published:
            return item
        state.published = True
        if item is not None:
            effects.outgoing.append(Outgoing(key[0], "items", key[1], item.to_json()))
            self._metrics.items.labels(item.kind).inc()
        elif state.public:
            effects.outgoing.append(Outgoing(key[0], "items", key[1], None))
        state.public = item is not None
        return item

    def row(self, key: Key, state: _Item, effects: Effects) -> dict[str, Any]:
        item = self.publish(key, state, effects)
        row: dict[str, Any] = {
            "id": row_id(*key),
            "tenant": key[0],
            "state": state.state.to_json().decode(),
            "body": "" if item is None else item.to_json().decode(),
            "text": "",
        }
        if item is not None:
            row |= {"kind": item.kind, "tool": item.tool, "pattern": item.pattern, "task": item.task, "text": item.text}
        return row

    @property
    def _reads_again(self) -> bool:
        """Whether a former owner may have published a form that no row holds."""
        return self._clock.monotonic() - self._began < READ_AGAIN_SECONDS

    def _worth_recalling(self, state: ItemState) -> MemoryItem | None:
        item = state.to_item()
        if item is None:
            return None
        reason = is_junk(item) or ("unconfirmed" if is_unconfirmed(item) else None)
        if reason is not None:
            self._metrics.junk_items.labels(reason).inc()
            return None
        review = self._review_of(item.tenant)
        return replace(item, proposed=review == "all" or (review == "risky" and item.danger))
