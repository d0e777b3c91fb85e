"""Make rows of the store for tests, as the sinks write them."""

from typing import Any

from fleetlore.recall.search import row_id
from fleetlore.wire.lore import MemoryItem, Pattern


def row_of(tenant: str, lore: MemoryItem | Pattern) -> dict[str, Any]:
    """Make the row of an item or a pattern, without its vectors."""
    row = {"id": row_id(tenant, lore.id), "tenant": tenant, "tool": lore.tool, "body": lore.to_json().decode()}
    if isinstance(lore, MemoryItem):
        return {**row, "kind": lore.kind, "text": lore.text}
    return {**row, "level": lore.level, "text": f"{lore.tool} {lore.error_class} {lore.template}"}
