"""Explain the hints of a session: what each one is, its evidence, and what the agent did after it.

An outcome names hints by their ids alone, so a forgotten hint has no text. Its source is found by computing the ids
that each source would have made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, get_args

from fleetlore.advice.sources import PERSON
from fleetlore.calls.context import warning_id
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.trajectory import Step, Trajectory
from fleetlore.words import count

__all__ = ["Explained", "HintNames", "explained"]

_BY_PLACE = {"place:card": "card", "place:names": "known here"}
# Some sources' hints hold names of the call or the place, which are not kept.
_WORDS = {
    "card": "What the place has",
    "known here": "Names that the place has",
    "foreseen": "The call will likely fail",
    "renamed": "A name of the place instead of one that it does not have",
    "forbidden": "Names of the call that do not exist",
    "": "A hint that is not known any more",
}


class Explained(NamedTuple):
    """A hint at a call.

    Attributes:
        call: the number of its event.
        path: its page in the console, or "".
        then: what the agent did next.
    """

    call: int
    tool: str
    id: str
    withheld: bool
    source: str
    text: str
    evidence: str
    sessions: tuple[str, ...]
    path: str
    then: str


class HintNames:
    def __init__(self, index: LoreIndex) -> None:
        self._index = index
        self.written = index.hints.decisions

    def source(self, id: str, tool: str) -> str:
        """Return the kind of an item, `pattern`, `person`, or the source of another hint; "" if it is unknown."""
        if id in self.written:
            return PERSON
        entry = self.entry(id)
        if entry is not None:
            return entry.kind if isinstance(entry, MemoryItem) else "pattern"
        if id in (warning_id(tool, state) for state in get_args(State)):
            return "foreseen"
        return _BY_PLACE.get(id) or self._of_classes.get(id, "")

    def entry(self, id: str) -> MemoryItem | Pattern | None:
        return self._index.items.get(id) or self._index.patterns.get(id)

    @cached_property
    def _of_classes(self) -> dict[str, str]:
        classes = [each.id for each in self._index.patterns.values() if each.level == "class"]
        return {pattern_id(source, id): source for source in ("renamed", "forbidden") for id in classes}


def explained(session: Trajectory, names: HintNames) -> Iterator[Explained]:
    calls = session.calls
    for number, step in enumerate(calls):
        for ids, withheld in ((step.advice, False), (step.withheld, True)):
            for id in ids:
                entry, source = names.entry(id), names.source(id, step.tool)
                text, evidence, sessions, path = _WORDS.get(source, source), "", tuple[str, ...](), ""
                if isinstance(entry, MemoryItem):
                    text, sessions, path = entry.title, entry.sessions, f"/items/{id}"
                    evidence = f"{count(entry.agents, 'agent')} in {count(entry.support, 'session')}"
                elif (decided := names.written.get(id)) is not None and decided.hint is not None:
                    text, evidence = decided.hint.text, f"written by {decided.hint.author}"
                elif entry is not None:
                    text, path = entry.template or entry.error_class or entry.level, f"/patterns/{id}"
                    evidence = f"{count(entry.agents, 'agent')} in {count(entry.sessions, 'session')}"
                then = _then(calls[number : number + 2])
                yield Explained(step.sequence, step.tool, id, withheld, source, text, evidence, sessions, path, then)


def _then(calls: Iterable[Step]) -> str:
    made = [f"{each.tool} {'failed' if each.failed else 'worked'}" for each in calls]
    return ", then ".join(made)
