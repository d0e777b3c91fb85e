"""Measure what is told after a failure against how sessions went on.

A way out is the next call of the same tool that worked. It counts where it has words that the session had not seen:
those an agent could not guess. What is told holds it if it holds all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleetlore.calls.context import KEYWORDS
from models.backtest.heard import Heard

_WORD = re.compile(r"[a-z_][a-z_0-9]+")


def words(text: str) -> set[str]:
    """Words and names, lower case; of a dotted name its parts."""
    return set(_WORD.findall(text.lower()))


def mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return sum(values) / len(values) if values else None


class WayOut(NamedTuple):
    """What was told after a failure, and the words of the way out that the session had not seen."""

    told: str
    new: frozenset[str]

    def held_by(self, text: str) -> bool:
        return self.new <= words(text)


def ways_out(heard: Heard) -> Iterator[WayOut]:
    """The session's ways out with words not seen before, each after the first failure that led to it."""
    log, taken = heard.log, set[int]()
    seen = words(log.goal)
    turns = list(log.turns())
    for number, turn in enumerate(turns):
        call = turn.call
        seen |= words(f"{call.before}\n{call.text}\n{call.said}")
        if call.failure is not None and not call.passes:
            later = (each for each in turns[number + 1 :] if each.call.tool == call.tool and each.call.failure is None)
            found = next(later, None)
            if found is not None and found.place not in taken:
                taken.add(found.place)
                new = words(found.call.text) - seen - KEYWORDS
                if new:
                    # What was told before the call is not told again after it.
                    said = heard.after[turn.place].way_out or heard.before[turn.place].way_out
                    yield WayOut(said, frozenset(new))


def hit_rate(cases: Sequence[WayOut]) -> float | None:
    """Share of what was told that holds the way out."""
    return mean([each.held_by(each.told) for each in cases if each.told])
