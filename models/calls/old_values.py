"""Count the principals whose calls worked with a value that others replaced after it had failed.

Calls that worked before a quorum had replaced the value do not count: the tool may have changed since. Each principal
counts once a side, so one principal alone can neither contradict the replacement for others nor keep it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from fleetlore.advice.changes import parts_of
from fleetlore.calls.document import OldValue, old_value_key
from fleetlore.fingerprint.fingerprint import object_of
from fleetlore.wire.trajectory import Step
from models.calls.evidence import Evidence, Fleet, Who

__all__ = ["OldValues"]

# Old values kept while learning, and those in a version.
_KEPT, _MOST = 20_000, 1_024
# A call that differs in more parts is no second attempt.
_MAX_REPLACED = 6


class OldValues:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # By its key: principals that replaced it, and those whose calls worked with it since then.
        self._known: OrderedDict[int, tuple[Evidence, Evidence]] = OrderedDict()

    def learn(self, who: Who, calls: Sequence[Step]) -> None:
        """Take in the calls of a session, in order and without those that failed for a passing reason."""
        failed: dict[str, frozenset[int]] = {}
        replaced: set[int] = set()
        worked: set[int] = set()
        for call in calls:
            if call.failed:
                failed[call.tool] = _keys(call)
                continue
            made = _keys(call)
            gone = failed.pop(call.tool, frozenset()) - made
            replaced |= gone if len(gone) <= _MAX_REPLACED else frozenset()
            worked |= made
        for key in sorted(replaced):
            by, _ = self._known.setdefault(key, (Evidence(self._fleet), Evidence(self._fleet)))
            by.add(who)
            self._known.move_to_end(key)
        for key in (worked - replaced) & self._known.keys():
            by, since = self._known[key]
            if by.agents >= self._fleet.quorum:
                since.add(who)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def version(self) -> tuple[OldValue, ...]:
        """Values that a quorum replaced, those of most principals first."""
        found = [
            OldValue(key, by.agents, since.agents)
            for key, (by, since) in self._known.items()
            if by.agents >= self._fleet.quorum
        ]
        return tuple(sorted(found, key=lambda each: (-each.replaced, each.key))[:_MOST])


def _keys(call: Step) -> frozenset[int]:
    """Names and values of the arguments. A word of a text means something else in another text."""
    found = parts_of(object_of(call.arguments))
    return frozenset([old_value_key(call.tool, part) for part, is_argument in found if is_argument])
