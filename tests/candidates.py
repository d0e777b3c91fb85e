"""A session's contribution to a memory item, in one line; and the items that sessions teach."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment
from models.distil.distiller import distil
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState


def candidate(session: str = "s", **changes: Any) -> Candidate:
    """To a recovery that the session backs; `changes` are other fields of `Candidate`."""
    made = Candidate(
        item_id="i",
        tenant="default",
        kind="recovery",
        side="success",
        session=session,
        agent="a",
        seen=1.0,
        revision=(1, 0.0),
        title="title",
        description="description",
        content="content",
        when="when",
    )
    return replace(made, **changes)


def items_of(*judged: Judgment, among: Callable[[Candidate], bool] = lambda _: True) -> list[MemoryItem]:
    """The items that these sessions teach together, of the contributions that are `among` those that are meant."""
    states: dict[str, ItemState] = {}
    for each in judged:
        for candidate in filter(among, distil(each)):
            states.setdefault(candidate.item_id, ItemState()).merge(candidate)
    return [item for state in states.values() if (item := state.to_item()) is not None]
