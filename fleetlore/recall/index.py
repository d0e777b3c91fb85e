"""Index a tenant's lore in memory by what an agent asks before a call. No network, no clock, no locks.

Everything is ranked already: a change costs the writer, not the reader.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from heapq import nlargest
from math import inf
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from fleetlore.wire.lore import Decision, Hint, MemoryItem, Pattern
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import cached_hash, newcombe

__all__ = ["LoreIndex", "Written", "is_recalled", "when_of", "worth_showing"]


_PATTERN_ID = re.compile(r"\A[0-9a-f]{32}\Z")


class Written(NamedTuple):
    hint: Hint
    decided: Decision


def when_of(hint: Hint, patterns: Mapping[str, Pattern] = {}) -> str:
    """Say when agents are shown a hint. The words of `patterns` are for operators alone."""
    met = patterns.get(hint.after)
    after = met.template or met.error_class if met is not None else _PATTERN_ID.sub("this failure", hint.after)
    said = ["at the start"] if hint.start else []
    said += [f"before a call with {', '.join(hint.before)}"] if hint.before else []
    said += [f"after {after}"] if after else []
    scope = {"tool": hint.tool, "place": hint.place, "task": hint.task}
    return "; ".join([" or ".join(said), *(f"{name} {value}" for name, value in scope.items() if value)])


class Hints:
    """The newest decision about each hint.

    Args:
        distrusted: hashes of principals. Call `sort` after a change of these or of `decisions`.

    Attributes:
        decisions: by the hint's id, also for revoked ones.
        standing: hints of trusted authors, without revoked ones, by id.
        replaced: the hint by id of the memory item that it corrects, until it ends.
        next_end: when the next correction ends, in Unix seconds.
    """

    def __init__(self, distrusted: Collection[int]) -> None:
        self._distrusted = distrusted
        self.decisions: dict[str, Decision] = {}
        self.standing: dict[str, Written] = {}
        self.replaced: dict[str, str] = {}
        self.next_end = inf
        self._now = 0.0
        self._by_tool: dict[str, list[Written]] = {}

    def sort(self, now: float = 0.0) -> None:
        self._now = max(self._now, now)
        standing, by_tool = dict[str, Written](), dict[str, list[Written]]()
        for each in sorted(self.decisions.values(), key=lambda each: (-each.time, each.id)):
            hint = each.hint
            if hint is not None and not each.on and cached_hash(principal_of(hint.author)) not in self._distrusted:
                standing[each.id] = written = Written(hint, each)
                by_tool.setdefault(hint.tool, []).append(written)
        self.standing, self._by_tool = standing, by_tool
        # A hint that expires ends when it is decided.
        lasting = [
            (hint, decided)
            for hint, decided in standing.values()
            if hint.replaces and not 0 < hint.until <= max(self._now, decided.time)
        ]
        self.replaced = {hint.replaces: decided.id for hint, decided in lasting}
        self.next_end = min((hint.until or inf for hint, _ in lasting), default=inf)

    def of_tools(self, tools: Collection[str]) -> Iterator[Written]:
        """Yield hints about these tools, newest of each first, then those about any tool."""
        for tool in (*dict.fromkeys(tools), ""):
            yield from self._by_tool.get(tool, ())


_Entry = TypeVar("_Entry", bound=Pattern | MemoryItem)
_Derived = TypeVar("_Derived")

# More than shown: an agent's own are omitted.
KEPT = 8
MAX_DERIVED = 4096
# Ended sessions; see `worth_showing`.
_TRIED_SESSIONS = 8
_SURE = 1.28


class _Ranked(Generic[_Entry]):
    __slots__ = ("best", "entries", "rank")

    def __init__(self, rank: Callable[[_Entry], Any]) -> None:
        self.rank = rank
        self.entries: dict[str, _Entry] = {}
        self.best: tuple[_Entry, ...] = ()

    def put(self, entry: _Entry) -> None:
        old = self.entries.get(entry.id)
        self.entries[entry.id] = entry
        if old is not None and self.rank(entry) < self.rank(old):
            self._rerank()  # a better one may not be at hand
        else:
            near = [*(each for each in self.best if each.id != entry.id), entry]
            near.sort(key=self.rank, reverse=True)  # three times cheaper than a heap for so few
            self.best = tuple(near[:KEPT])

    def drop(self, id: str) -> None:
        if self.entries.pop(id, None) is not None:
            self._rerank()

    def _rerank(self) -> None:
        self.best = tuple(nlargest(KEPT, self.entries.values(), self.rank))


def _by_standing(item: MemoryItem) -> tuple[float, int, int, str]:
    return item.standing(), item.support, item.agents, item.id


_Role = Literal[
    "failures of call", "transient of call", "transient of tool", "recoveries", "recoveries of tool", "changes",
    "strategies",
]  # fmt: skip
_Key = tuple[_Role, str]
_RANKS: dict[_Role, Callable[[Any], Any]] = {
    **dict.fromkeys(("failures of call", "transient of call"), attrgetter("failures", "last_seen", "id")),
    "transient of tool": attrgetter("last_seen", "id"),
}


def is_recalled(item: MemoryItem) -> bool:
    """Whether agents read the item. Earlier releases published recoveries without a change."""
    return item.kind != "recovery" or item.was != item.now


def _place(item: MemoryItem) -> tuple[object, ...]:
    return item.kind, item.pattern, item.tool, item.task, is_recalled(item)


def worth_showing(pattern: Pattern, tool: Pattern | None = None) -> bool:
    """Whether to warn an agent of the pattern before such a call. `tool`: the tool's health row.

    Few sessions prove nothing. From `_TRIED_SESSIONS` on its sessions must fail significantly more often than the
    tool's others (Newcombe's 80 % interval): a harmless pattern is not shown.
    """
    if pattern.transient:
        return False
    ended, failed = pattern.sessions_ended, pattern.sessions_failed
    if ended < _TRIED_SESSIONS:
        return True
    others = tool.sessions_ended - ended if tool is not None else 0
    if tool is None or others < _TRIED_SESSIONS:
        return failed > 0  # there are no others to compare with
    others_failed = min(max(tool.sessions_failed - failed, 0), others)
    return newcombe((ended, failed), (others, others_failed), _SURE)[0] > 0


class LoreIndex:
    def __init__(self) -> None:
        self.patterns: dict[str, Pattern] = {}
        self.items: dict[str, MemoryItem] = {}
        self._revoked: set[str] = set()
        self._distrusted: set[int] = set()
        self.approved: dict[str, str] = {}  # by item, the words that a person approved; a revocation keeps them
        self.hints = Hints(self._distrusted)
        self._hidden: dict[str, Pattern | MemoryItem] = {}
        self._derived: dict[tuple[object, ...], tuple[int, Any]] = {}
        self._changes: defaultdict[str, int] = defaultdict(int)
        self._groups: dict[_Key, _Ranked[Any]] = {}

    def failures_of_call(self, call: str) -> tuple[Pattern, ...]:
        """Return lasting exact patterns, the most frequent first."""
        return self._best("failures of call", call)

    def transient_of_call(self, call: str) -> tuple[Pattern, ...]:
        return self._best("transient of call", call)

    def transient_of_tool(self, tool: str) -> tuple[Pattern, ...]:
        return self._best("transient of tool", tool)

    def recoveries(self, key: str) -> tuple[MemoryItem, ...]:
        """Return what helped against a class-level pattern, a loop, or a kind of failing call."""
        return self._best("recoveries", key)

    def changes(self, tool: str, part: str) -> tuple[MemoryItem, ...]:
        """Return what worked in place of `name=value` or a word."""
        return self._best("changes", f"{tool}\x1f{part}")

    def recoveries_of_tool(self, tool: str) -> tuple[MemoryItem, ...]:
        return self._best("recoveries of tool", tool)

    def strategies(self, id: str) -> tuple[MemoryItem, ...]:
        return self._best("strategies", id)

    def derived(self, work: Callable[..., _Derived], about: str, *key: str) -> _Derived:
        """Do `work(self, about, *key)` once and remember it until the lore changes: two thirds of an advice.

        `about`: a tool, if the work reads only patterns of this tool. Other tools' patterns then change nothing, but
        any memory item does.
        """
        known, change = (work, about, *key), self._changes.get(about, 0)
        remembered = self._derived.get(known)
        if remembered is not None and remembered[0] == change:
            result: _Derived = remembered[1]
            return result
        if len(self._derived) >= MAX_DERIVED:
            self._derived.clear()
        result = work(self, about, *key)
        self._derived[known] = change, result
        return result

    def put_pattern(self, pattern: Pattern) -> None:
        if self._hide(pattern):
            return
        self._changes[pattern.tool] += 1
        self.patterns[pattern.id] = pattern
        for group in self._groups_of(pattern):
            group.put(pattern)

    def put_item(self, item: MemoryItem) -> None:
        if self._hide(item):
            return
        self._derived.clear()
        old = self.items.get(item.id)
        if old is not None and _place(old) != _place(item):
            self.forget(item.id)
        self.items[item.id] = item
        for group in self._groups_of(item):
            group.put(item)

    def forget(self, id: str) -> None:
        self._hidden.pop(id, None)
        pattern, item = self.patterns.pop(id, None), self.items.pop(id, None)
        if pattern is not None:
            self._changes[pattern.tool] += 1
        if item is not None:
            self._derived.clear()
        for entry in (pattern, item):
            for group in self._groups_of(entry) if entry is not None else ():
                group.drop(id)

    def revoke(self, id: str, wording: str = "", *, on: bool = True) -> None:
        """Hide all versions of a pattern or an item, or show them again. `wording`: approved words, or ""."""
        (self._revoked.add if on else self._revoked.discard)(id)
        self.approved[id] = wording
        self._weigh_again(id)

    def put_hint(self, *decided: Decision) -> None:
        self.hints.decisions |= {each.id: each for each in decided}
        self._sort_hints()

    def forget_hints(self, *ids: str) -> None:
        for id in ids or tuple(self.hints.decisions):
            self.hints.decisions.pop(id, None)
        self._sort_hints()

    def end_corrections(self, now: float) -> None:
        """Show the items again whose correction ended by `now`."""
        if now >= self.hints.next_end:
            self._sort_hints(now)

    def vouched(self, item: MemoryItem) -> bool | None:
        """Return True if a person approved these words, False if one still must."""
        if (approved := self.approved.get(item.id)) and approved == item.wording:
            return True
        return False if item.proposed else None

    def entry(self, id: str) -> MemoryItem | Pattern | None:
        """Return an item or a pattern, also one that agents are not shown."""
        return self.items.get(id) or self.patterns.get(id) or self._hidden.get(id)

    @property
    def known_items(self) -> dict[str, MemoryItem]:
        """Return the items by id, also those that agents are not shown."""
        return self.items | {id: each for id, each in self._hidden.items() if isinstance(each, MemoryItem)}

    def distrust(self, agent: int) -> None:
        """Hide the words of an agent (hash of its name), and patterns of distrusted agents alone."""
        self._distrusted.add(agent)
        self._sort_hints()
        known: list[Pattern | MemoryItem] = [*self.patterns.values(), *self.items.values()]
        for entry in known:
            self._hide(entry)

    def undo_distrust(self, agent: int) -> None:
        self._distrusted.discard(agent)
        self._sort_hints()
        self._weigh_again(*self._hidden)

    def hides(self, entry: Pattern | MemoryItem) -> bool:
        """Whether an entry is hidden from agents. An item goes with the agent that worded it: workers publish it again
        in others' words.
        """
        if entry.id in self._revoked or entry.id in self.hints.replaced:
            return True
        if isinstance(entry, MemoryItem):
            return not self._distrusted.isdisjoint(entry.said_by)
        return bool(entry.seen_by) and self._distrusted.issuperset(entry.seen_by)

    def retain(self, ids: Container[str] = ()) -> None:
        for id in (*self.patterns, *self.items, *self._hidden):
            if id not in ids:
                self.forget(id)

    def _hide(self, entry: Pattern | MemoryItem) -> bool:
        if not self.hides(entry):
            self._hidden.pop(entry.id, None)
            return False
        self.forget(entry.id)
        self._hidden[entry.id] = entry
        return True

    def _sort_hints(self, now: float = 0.0) -> None:
        before = self.hints.replaced
        self.hints.sort(now)
        self._weigh_again(*(before.keys() ^ self.hints.replaced))

    def _weigh_again(self, *ids: str) -> None:
        for entry in map(self.entry, ids):
            if isinstance(entry, MemoryItem):
                self.put_item(entry)
            elif entry is not None:
                self.put_pattern(entry)

    def _groups_of(self, entry: Pattern | MemoryItem) -> list[_Ranked[Any]]:
        keys = _keys_of_pattern(entry) if isinstance(entry, Pattern) else _keys_of_item(entry)
        return [
            self._groups.get(key) or self._groups.setdefault(key, _Ranked(_RANKS.get(key[0], _by_standing)))
            for key in keys
        ]

    def _best(self, role: _Role, key: str) -> tuple[Any, ...]:
        group = self._groups.get((role, key))
        return group.best if group is not None else ()


def _keys_of_pattern(pattern: Pattern) -> list[_Key]:
    # A newer version of a pattern is in the same groups: all follow from the id.
    if pattern.level == "exact" and pattern.call is not None:
        if pattern.is_loop:
            return []  # each watchdog detects its own loops; others' predict nothing
        return [("transient of call" if pattern.transient else "failures of call", pattern.call)]
    return [("transient of tool", pattern.tool)] if pattern.level == "class" and pattern.transient else []


def _keys_of_item(item: MemoryItem) -> list[_Key]:
    if not is_recalled(item):
        return []
    if item.kind == "recovery":
        keys: list[_Key] = [("recoveries of tool", item.tool)]
        keys += [("recoveries", item.pattern)] if item.pattern else []
        keys += [("changes", f"{item.tool}\x1f{item.was[0]}")] if item.was and item.now else []
        return keys
    return [("strategies", item.id)]
