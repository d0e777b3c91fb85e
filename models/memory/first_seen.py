"""Keep when a second principal met something, because one principal alone may date its events back.

A function of the set of sightings: of each principal the earliest counts, and of all principals the two earliest.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FirstSeen"]


class FirstSeen(dict[int, float]):
    """The two agents (hashes of their principals) that met something first, each with the event time."""

    @classmethod
    def among(cls, sightings: Iterable[tuple[int, float]]) -> FirstSeen:
        found = cls()
        for agent, moment in sightings:
            found.note(agent, moment)
        return found

    def note(self, agent: int, moment: float) -> bool:
        """Merge a sighting in; say whether anything changed."""
        if moment >= self.get(agent, float("inf")):
            return False
        before = dict(self)
        self[agent] = moment
        if len(self) > 2:
            del self[max(self, key=lambda each: (self[each], each))]
        return self != before

    @property
    def moment(self) -> float:
        """When the second one met it; the first one while it is alone, and 0 without any."""
        return max(self.values(), default=0.0)
