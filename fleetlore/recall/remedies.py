"""What a session has met and prepared so far: which of the fleet's remedies it still needs.

A remedy of an error's cause (`models.distil.remedies`) is news to a session that has met the error and not yet done anything about it, and
before the first such call, where a tenth of the sessions that were not told met it. It is none where the remedy was applied and the
error has not come again, and where it was applied and the very next attempt met the error all the same. After a failure that takes what
was prepared (a host that restarts) it is news again, before the error comes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from fleetlore.fingerprint.fingerprint import cause_of_class, tool_id
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem

NEVER = -1
# Before a call that the session has not made yet: of the sessions that used the tool and were not told, so many met the error. Who was
# told and heeded it does not meet it: among all sessions the share falls until the advice falls silent and the errors come back.
LIKELY = 0.1
# What helped in fewer sessions than this, or in less than this share of those that tried it, is not said before an error.
SURE_SESSIONS = 2
SURE_SHARE = 0.7
MAX_PREPARATIONS = 2
MAX_IN_VAIN = 2
MAX_REMEMBERED = 64
"""Calls of a tool, the newest ones."""


class Prepared:
    """See the module. Places are numbers of calls in the session."""

    def __init__(self) -> None:
        self._place = 0
        self._worked: dict[str, list[tuple[int, object]]] = defaultdict(list)
        self._met: dict[str, list[int]] = defaultdict(list)
        self._kinds: dict[str, int] = {}

    def took_place(self, tool: str, arguments: object, cause: str | None) -> None:
        """A call ended. `cause`: id of what made it fail; None where it worked."""
        self._place += 1
        if cause is None:
            made = self._worked[tool]
            made.append((self._place, arguments))
            del made[:-MAX_REMEMBERED]
        else:
            self._met[cause].append(self._place)
            del self._met[cause][:-MAX_REMEMBERED]

    def met(self, kind: str) -> None:
        """A call failed, be it for a reason that passes. `kind`: of failure (`fleetlore.fingerprint.fingerprint.kind_of`)."""
        self._kinds[kind] = self._place

    def needed(self, items: Iterable[MemoryItem], sessions: float, lost: int = NEVER) -> Iterator[MemoryItem]:
        """Those of a tool's remedies that the session has cause to apply before it calls the tool, one a cause.

        Args:
            items: the surest first.
            sessions: that are known to have used the tool.
            lost: up to which place nothing holds that was prepared.
        """
        seen: set[str | None] = set()
        for item in items:
            if item.cause not in seen and self._is_needed(item, sessions, lost):
                seen.add(item.cause)
                yield item

    def warned_of(self, items: Iterable[MemoryItem], causes: Collection[str | None]) -> Iterator[MemoryItem]:
        """Those of what was tried in vain that the session may do next: against these causes, or because it did so before."""
        for item in items:
            sure = item.support >= max(SURE_SESSIONS, 2 * item.against)
            if sure and (item.cause in causes or self._done(item)):
                yield item

    def open_causes(self, items: Iterable[MemoryItem]) -> set[str | None]:
        """Causes of these items that the session has met since the tool last worked."""
        return {
            item.cause
            for item in items
            if (met := self._met.get(item.cause or "")) and met[-1] > _last(self._worked.get(item.tool, ()))
        }

    def lost(self, index: LoreIndex) -> int:
        """Where the session last met a failure that takes what was prepared, as the fleet has it (`models.distil.resets`)."""
        return max(
            [place for kind, place in self._kinds.items() if any(map(_is_sure, index.recoveries(kind)))], default=NEVER
        )

    def _is_needed(self, item: MemoryItem, sessions: float, lost: int) -> bool:
        # What was before a loss is as if it had not been, but for what was done then: that was of use.
        met = [place for place in self._met.get(item.cause or "", ()) if place > lost]
        worked = _last(self._worked.get(item.tool, ()))
        before = self._done(item)
        done = [place for place in before if place > lost]
        if met:
            return met[-1] > worked and not self._in_vain(met, done, item.tool)
        if done or worked > lost or not _is_sure(item):
            return False
        return bool(before) or item.support + item.against >= LIKELY * (sessions - item.shown)

    def _in_vain(self, met: list[int], done: list[int], tool: str) -> bool:
        """Whether the error came again after the remedy, with no call of the tool that worked between the two."""
        again = next((place for place in met if done and place > done[-1]), None)
        if again is None or not any(place < done[-1] for place in met):
            return False
        return not any(done[-1] < place < again for place, _ in self._worked.get(tool, ()))

    def _done(self, item: MemoryItem) -> list[int]:
        """Places where the remedy was applied."""
        remedy = item.remedy or {}
        left_open = remedy.get("open", ())
        wanted = _fixed(remedy.get("arguments"), left_open)
        return [
            place
            for place, arguments in self._worked.get(remedy.get("tool", ""), ())
            if _fixed(arguments, left_open) == wanted
        ]


def answered(index: LoreIndex, tool: str) -> frozenset[str]:
    """Causes of a tool's errors (`fleetlore.fingerprint.fingerprint.cause_of_class`) that the fleet has remedies for.

    Of these a session is told what it still needs; that such calls have failed is no news to one that has done it.
    """
    sure = (item for item in index.remedies(tool) if item.support >= SURE_SESSIONS)
    return frozenset([cause for item in sure if (cause := cause_of_id(index, item.pattern)) is not None])


def cause_of_id(index: LoreIndex, pattern: str | None) -> str | None:
    """The cause of a class-level pattern; None where the index does not have it."""
    row = index.patterns.get(pattern or "")
    return cause_of_class(row.tool, row.error_class, row.template) if row is not None else None


def remedies_before(index: LoreIndex, tool: str, arguments: object, prepared: Prepared) -> list[MemoryItem]:
    """What the fleet knows to help that bears on a call about to be made: another value of an argument, then preparations, then
    what is in vain. Empty also where all that it knows is done already.
    """
    known = index.remedies(tool)
    if not any(item.support >= SURE_SESSIONS for item in known):
        return []
    changes = [item for item in known if _changes(item, arguments)][:1]
    health = index.health(tool_id(tool))
    others = [item for item in known if item.remedy is not None and item.remedy.get("tool") != tool]
    preparations = list(prepared.needed(others, health.sessions if health is not None else 0, prepared.lost(index)))
    vain = index.in_vain(tool)
    causes = {item.cause for item in preparations} | prepared.open_causes(vain)
    return [*changes, *preparations[:MAX_PREPARATIONS], *islice(prepared.warned_of(vain, causes), MAX_IN_VAIN)]


def _changes(item: MemoryItem, arguments: object) -> bool:
    """Whether the item says of a value of these arguments that another one is to be taken."""
    change = (item.remedy or {}).get("change")
    if not change or not isinstance(arguments, Mapping) or item.support < max(SURE_SESSIONS, 2 * item.against):
        return False
    name, old, _ = change
    return name in arguments and arguments[name] == old and type(arguments[name]) is type(old)


def _is_sure(item: MemoryItem) -> bool:
    return item.support >= SURE_SESSIONS and item.support >= SURE_SHARE * (item.support + item.against)


def _fixed(arguments: object, left_open: Iterable[str]) -> object:
    if not isinstance(arguments, Mapping):
        return arguments or None
    fixed: dict[str, Any] = {name: value for name, value in arguments.items() if name not in left_open}
    return fixed


def _last(made: Iterable[tuple[int, object]]) -> int:
    return max((place for place, _ in made), default=NEVER)
