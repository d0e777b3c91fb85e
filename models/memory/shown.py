"""Count the sessions that were shown a memory item.

An error that advice prevents is met by fewer sessions, so how common it is is counted among those that were not shown
the remedy (`fleetlore.recall.remedies`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import Final, NamedTuple

import msgspec

from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory, encode
from models.memory.bottom_k import LatestSample
from models.memory.candidate import is_item

__all__ = ["Shown", "shown_items"]

SHOWN_SESSIONS: Final = 192


class Shown(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="shown"):
    """A session was shown an item. `agent`: the principal's name."""

    item_id: str
    tenant: str
    session: str
    agent: str

    def to_json(self) -> bytes:
        return encode(self)


class ShownTo(NamedTuple):
    """A session of `ShownSample`. `agent`: hash of its name; negative where an erased session was."""

    agent: int


def shown_items(trajectory: Trajectory) -> list[Shown]:
    """One for each learned item that the session was shown, sorted by id."""
    found = {id for step in trajectory.steps for id in step.advice if is_item(id)}
    return [
        Shown(item_id=id, tenant=trajectory.tenant, session=trajectory.session, agent=principal_of(trajectory.agent))
        for id in sorted(found)
    ]


class ShownSample(LatestSample[ShownTo]):
    """A bounded sample of the sessions that were shown an item."""

    __slots__ = ()

    def __init__(self, kept: Iterable[tuple[int, ShownTo]] = ()) -> None:
        super().__init__(SHOWN_SESSIONS, ShownTo, kept)

    @property
    def sessions(self) -> int:
        """How many there are; an estimate above `SHOWN_SESSIONS`."""
        scales = self.scales
        return round(fsum([scales[each.agent] for each in self.kept.values() if each.agent >= 0]))
