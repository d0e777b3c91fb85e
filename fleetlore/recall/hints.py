"""Index the hints of persons, and the memory items that they correct."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from fleetlore.stats import stable_hash
from fleetlore.wire.lore import Decision, Hint
from fleetlore.wire.principals import principal_of

__all__ = ["Hints", "Written", "when_of"]


class Written(NamedTuple):
    hint: Hint
    decided: Decision


def when_of(hint: Hint) -> str:
    """Describe for a person when agents are shown a hint."""
    said = ["at the start"] if hint.start else []
    said += [f"before a call with {', '.join(hint.before)}"] if hint.before else []
    said += [f"after {hint.after}"] if hint.after else []
    scope = {"tool": hint.tool, "place": hint.place, "task": hint.task}
    return "; ".join([" or ".join(said), *(f"{name} {value}" for name, value in scope.items() if value)])


class Hints:
    """The newest decision about each hint.

    Args:
        distrusted: hashes of principals. Call `sort` after a change.

    Attributes:
        decisions: by the hint's id, also for revoked ones.
        standing: hints of trusted authors, without revoked ones, by id.
        replaced: ids of the memory items that they correct.
    """

    def __init__(self, distrusted: Collection[int]) -> None:
        self._distrusted = distrusted
        self.decisions: dict[str, Decision] = {}
        self.standing: dict[str, Written] = {}
        self.replaced: frozenset[str] = frozenset()
        self._by_tool: dict[str, list[Written]] = {}

    def put(self, decided: Decision) -> None:
        self.decisions[decided.id] = decided
        self.sort()

    def sort(self) -> None:
        standing, by_tool = dict[str, Written](), dict[str, list[Written]]()
        for each in sorted(self.decisions.values(), key=lambda each: (-each.time, each.id)):
            hint = each.hint
            if hint is not None and not each.on and stable_hash(principal_of(hint.author)) not in self._distrusted:
                standing[each.id] = written = Written(hint, each)
                by_tool.setdefault(hint.tool, []).append(written)
        self.standing, self._by_tool = standing, by_tool
        self.replaced = frozenset(each.hint.replaces for each in standing.values() if each.hint.replaces)

    def of_tools(self, tools: Collection[str]) -> Iterator[Written]:
        """Yield hints about these tools, the newest of each first, then those about any tool."""
        for tool in (*dict.fromkeys(tools), ""):
            yield from self._by_tool.get(tool, ())
