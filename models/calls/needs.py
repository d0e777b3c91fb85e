"""Learn from the arguments of calls: what tools need of the objects named in them, and which values others replaced.

A fact about a thing (`status` is `pending`) or an earlier call with it is a need if calls of several agents with it
mostly failed, and calls without it surely failed less often.

For a value that a quorum replaced after it had failed, the principals whose calls worked with it are counted. Earlier
calls do not count: the tool may have changed since. One principal counts once a side, so it cannot decide for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from fleetlore.advice.changes import parts_of
from fleetlore.calls.context import KnownObjects, Mark
from fleetlore.calls.document import Need, OldValue, old_value_key
from fleetlore.fingerprint.fingerprint import object_of
from fleetlore.stats import wilson
from fleetlore.wire.trajectory import Step, Trajectory
from models.calls.evidence import Endings, Evidence, Fleet, Who

__all__ = ["NeedRecords", "OldValues"]

# Lower bound of the share of sessions in which calls failed so.
_LEAST_RATE = 0.5
KEPT = 4_096
# A field with more values describes the thing, and not its kind.
_MAX_VALUES = 12
_MOST = 256


class NeedRecords:
    """How calls with each value ended, by tool, argument and field."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tools: dict[str, Endings] = {}
        self._known: OrderedDict[tuple[str, str, str], dict[str, Endings]] = OrderedDict()

    def learn(self, session: Trajectory, kinds: Iterable[tuple[str, tuple[str, ...]] | None]) -> None:
        objects = KnownObjects()
        met: set[tuple[str, Mark | None, bool]] = set()
        for step, kind in zip(session.calls, kinds, strict=True):
            if not step.transient:
                for mark in (None, *objects.marks(step.arguments)):
                    if (step.tool, mark, step.failed) not in met:
                        met.add((step.tool, mark, step.failed))
                        self._add(Who.of(session), step.tool, mark, kind[0] if kind is not None else None)
            if not step.failed:
                objects.record(step.tool, step.arguments, step.result)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    def _add(self, who: Who, tool: str, mark: Mark | None, kind: str | None) -> None:
        if mark is None:
            ended = self._tools.setdefault(tool, Endings(self._fleet))
        else:
            key = tool, mark.argument, mark.field
            known = self._known.setdefault(key, {})
            self._known.move_to_end(key)
            if mark.value not in known and len(known) > _MAX_VALUES:
                return
            ended = known.setdefault(mark.value, Endings(self._fleet))
        ended.add(who, kind)

    def said(self) -> tuple[Need, ...]:
        found = [
            need for key, known in self._known.items() if len(known) <= _MAX_VALUES for need in self._of(key, known)
        ]
        found.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.argument, each.field, each.value))
        return tuple(found[:_MOST])

    def _of(self, key: tuple[str, str, str], known: dict[str, Endings]) -> Iterator[Need]:
        tool, argument, name = key
        all_failed, all_held = self._tools[tool].counts
        for value, ended in known.items():
            failed, held = ended.counts
            least = wilson(failed, held)[0]
            others = max(0, all_failed - failed), max(0, all_held - held)
            if not ended.failed.is_enough or least < _LEAST_RATE or wilson(*others)[1] >= least:
                continue
            yield Need(tool, argument, name, value, ended.kind, failed, held, ended.failed.agents)


# Old values kept while learning, and those in a version.
_KEPT_OLD, _MOST_OLD = 20_000, 1_024
# A call that differs in more parts is no second attempt.
_MAX_REPLACED = 6


class OldValues:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # By its key: principals that replaced it, and those whose calls worked with it since then.
        self._known: OrderedDict[int, tuple[Evidence, Evidence]] = OrderedDict()

    def learn(self, who: Who, calls: Sequence[Step]) -> None:
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
        while len(self._known) > _KEPT_OLD:
            self._known.popitem(last=False)

    def version(self) -> tuple[OldValue, ...]:
        found = [
            OldValue(key, by.agents, since.agents)
            for key, (by, since) in self._known.items()
            if by.agents >= self._fleet.quorum
        ]
        return tuple(sorted(found, key=lambda each: (-each.replaced, each.key))[:_MOST_OLD])


def _keys(call: Step) -> frozenset[int]:
    found = parts_of(object_of(call.arguments))
    return frozenset([old_value_key(call.tool, part) for part, is_argument in found if is_argument])
