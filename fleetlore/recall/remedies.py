"""Track what a session has met and prepared, and choose the remedies that it still needs.

A remedy answers the cause of an error (`models.distil.recovery`): a call that prepares what a tool needs. One remedy in
one session:

    untried ──the remedy──▶ prepared ──the tool works──▶ working ◀───┐
       │                       │                            │        │
       │ the error             │ the error        the error │        │ the tool works
       ▼                       ▼                            ▼        │
    unresolved ◀───────────────┴────────────────────────────┘ ───────┤
       │ the remedy, and the error again before the tool has worked  │
       ▼                                                             │
    ineffective ─────────────────────────────────────────────────────┘

The remedy is shown while the error is unresolved. It is shown to an untried session too, where it surely helps and a
tenth of the sessions met the error that were not shown the remedy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fleetlore.fingerprint.fingerprint import cause_of_class, tool_id
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem

# Before the first call of a session.
_NEVER = -1
# Before a call that the session has not made yet: this share of the sessions that used the tool and were not shown the
# remedy met the error. Among all sessions the share falls as advice is heeded, until it falls silent and errors return.
_LIKELY = 0.1
# What helped in fewer sessions, or in less than this share of those that tried it, is not shown before an error.
_SURE_SESSIONS = 2
_SURE_SHARE = 0.7
_MAX_PREPARATIONS = 2
# Calls of a tool that are remembered, the newest.
_MAX_REMEMBERED = 64


class PreconditionTracker:
    """The calls of a session, numbered from 1: which worked, and which met an error of which cause. See the module."""

    def __init__(self) -> None:
        self._place = 0
        # By tool: number and arguments.
        self._worked: dict[str, list[tuple[int, object]]] = defaultdict(list)
        # By cause.
        self._errors: dict[str, list[int]] = defaultdict(list)

    def record_call(self, tool: str, arguments: object, cause: str | None) -> None:
        """A call ended. `cause`: id of what made it fail; None where it worked."""
        self._place += 1
        if cause is None:
            made = self._worked[tool]
            made.append((self._place, arguments))
            del made[:-_MAX_REMEMBERED]
        else:
            self._errors[cause].append(self._place)
            del self._errors[cause][:-_MAX_REMEMBERED]

    def needed(self, index: LoreIndex, tool: str) -> list[MemoryItem]:
        """Calls that the session should make before it calls a tool, one a cause; empty where all of it is done."""
        known = [item for item in index.remedies(tool) if item.remedy is not None and item.remedy.get("tool") != tool]
        if not any(item.support >= _SURE_SESSIONS for item in known):
            return []
        health = index.health(tool_id(tool))
        sessions = health.sessions if health is not None else 0
        needed: dict[str | None, MemoryItem] = {}  # of a cause the first, which is the surest
        for item in known:
            if item.cause not in needed and self._is_needed(item, sessions):
                needed[item.cause] = item
                if len(needed) == _MAX_PREPARATIONS:
                    break
        return list(needed.values())

    def _is_needed(self, item: MemoryItem, sessions: float) -> bool:
        errors = self._errors.get(item.cause or "", [])
        worked, applied = self._last_success(item.tool), self._applied(item)
        if errors:
            return errors[-1] > worked and not self._was_ineffective(errors, applied, item.tool)
        if applied or worked > _NEVER or not _is_sure(item):
            return False
        return item.support + item.against >= _LIKELY * (sessions - item.shown)

    def _was_ineffective(self, errors: list[int], applied: list[int], tool: str) -> bool:
        """Whether the error came again after the remedy, with no call of the tool that worked between the two."""
        again = next((place for place in errors if applied and place > applied[-1]), None)
        if again is None or not any(place < applied[-1] for place in errors):
            return False
        return not any(applied[-1] < place < again for place, _ in self._worked.get(tool, ()))

    def _last_success(self, tool: str) -> int:
        return max((place for place, _ in self._worked.get(tool, ())), default=_NEVER)

    def _applied(self, item: MemoryItem) -> list[int]:
        """Places where the remedy was applied."""
        remedy = item.remedy or {}
        left_open = remedy.get("open", ())
        wanted = _fixed(remedy.get("arguments"), left_open)
        return [
            place
            for place, arguments in self._worked.get(remedy.get("tool", ""), ())
            if _fixed(arguments, left_open) == wanted
        ]


def remedied_causes(index: LoreIndex, tool: str) -> frozenset[str]:
    """Causes of a tool's errors (`fleetlore.fingerprint.fingerprint.cause_of_class`) that the fleet has remedies for.

    Of these a session is shown what it still needs; that such calls failed is not news to one that has done it.
    """
    sure = (item for item in index.remedies(tool) if item.support >= _SURE_SESSIONS)
    return frozenset([cause for item in sure if (cause := cause_of_id(index, item.pattern)) is not None])


def cause_of_id(index: LoreIndex, pattern: str | None) -> str | None:
    """The cause of a class-level pattern; None where the index does not have it."""
    row = index.patterns.get(pattern or "")
    return cause_of_class(row.tool, row.error_class, row.template) if row is not None else None


def _is_sure(item: MemoryItem) -> bool:
    return item.support >= _SURE_SESSIONS and item.support >= _SURE_SHARE * (item.support + item.against)


def _fixed(arguments: object, left_open: Iterable[str]) -> object:
    if not isinstance(arguments, Mapping):
        return arguments or None
    return {name: value for name, value in arguments.items() if name not in left_open}
