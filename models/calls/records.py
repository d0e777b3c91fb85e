"""Count how calls with a name ended, over all sessions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from fleetlore.calls.document import Named
from models.calls.evidence import Evidence, Fleet, Who

_KEPT_NAMED = 50_000
# Of a version.
_SAID_RATE = 0.4

# (tool, kind of failure, names)
Key = tuple[str, str, tuple[str, ...]]


class NamedFailures:
    """Failures that named something in the call, and how calls with these names ended otherwise."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._failed: OrderedDict[Key, Evidence] = OrderedDict()
        self._held: dict[Key, Evidence] = {}
        self._of_name: dict[tuple[str, str], list[Key]] = {}

    def learn(self, who: Who, calls: Iterable[tuple[str, frozenset[str], Key | None]]) -> None:
        """Take in the calls of a session: tool, names in the call, and its failure if it failed for names."""
        held: set[Key] = set()
        failed: set[Key] = set()
        for tool, names, key in calls:
            if key is not None and key not in self._failed:
                self._add(key)
            for name in names:
                held.update(each for each in self._of_name.get((tool, name), ()) if names.issuperset(each[2]))
            if key is not None:
                held.add(key)
                failed.add(key)
        for each in held:
            if each in self._held:
                self._held[each].add(who)
        for each in failed:
            if each in self._failed:
                self._failed[each].add(who)

    def _add(self, key: Key) -> None:
        self._failed[key], self._held[key] = Evidence(self._fleet), Evidence(self._fleet)
        self._of_name.setdefault((key[0], key[2][0]), []).append(key)
        if len(self._failed) > _KEPT_NAMED:
            old, _ = self._failed.popitem(last=False)
            del self._held[old]
            self._of_name[old[0], old[2][0]].remove(old)

    def said(self, most: int) -> tuple[Named, ...]:
        """Those that a version holds: that mostly fail and that enough agents met, the best backed first."""
        found = [
            Named(tool, kind, names, failed.sessions, self._held[tool, kind, names].sessions, failed.agents)
            for (tool, kind, names), failed in self._failed.items()
            if failed.is_enough
        ]
        often = [each for each in found if each.failed >= _SAID_RATE * each.held]
        often.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.kind, each.names))
        return tuple(often[:most])
