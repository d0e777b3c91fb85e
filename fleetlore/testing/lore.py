"""Memory items for tests of whatever shows or ranks them, in one line."""

from __future__ import annotations

from typing import Any

from fleetlore.wire.lore import MemoryItem


def memory_item(id: str, **fields: Any) -> MemoryItem:
    """A recovery that one session backs, called by its id; `fields` are those of `MemoryItem`."""
    values: dict[str, Any] = {"tenant": "default", "kind": "recovery", "title": id, "support": 1}
    texts = {"description": "description", "content": "content", "when": "when"}
    return MemoryItem(id=id, **(values | texts | fields))
