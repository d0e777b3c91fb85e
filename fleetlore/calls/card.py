"""Choose the names of a place that a session most likely needs next."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import islice
from math import log
from typing import NamedTuple

from fleetlore.calls.context import CALL_CHARACTERS, GOAL_CHARACTERS, words_of
from fleetlore.calls.places import PlaceNames

MOST = 12
# Of these, words that work at every place (`show tables`): by them a session finds what the card does not name.
MOST_EVERYWHERE = 4
MOST_LIKE = 6
# Of the parts of a name: that the goal has too, and that the call that failed has.
_IN_GOAL, _IN_CALL = 0.75, 0.5
# Word forms are alike in their beginning: `countries` and `country`, `singers` and `singer`.
_STEM = 5
_PARTS = re.compile(r"[^\W_]+")


def card(known: PlaceNames, goal: str, call: str, seen: Collection[str] = ()) -> list[str]:
    """At most 12 names that worked at a place, those nearest to the goal and the call first, ties by name.

    How often a name worked counts as its logarithm, beside the parts that it shares with the goal and the call. Last
    come a few that work everywhere, most of all here.

    Args:
        call: the call that failed, as text.
        seen: names that the session knows already.
    """
    ranks = _ranks(known)
    in_goal, in_call = _stems(words_of(goal, GOAL_CHARACTERS)), _stems(words_of(call, CALL_CHARACTERS))
    # Of the names that share nothing, the first in rank are enough.
    names = {name for stem in in_goal | in_call for name in ranks.of_stem.get(stem, ()) if name not in seen}
    names.update(islice((name for name in ranks.best if name not in seen), MOST + MOST_EVERYWHERE))

    def worth(name: str) -> float:
        stems = ranks.stems[name]
        shared = _IN_GOAL * len(stems & in_goal) + _IN_CALL * len(stems & in_call)
        return log(1.0 + known.ended(name).worked) + shared / (len(stems) or 1)

    general = [name for name in ranks.best if name in known.everywhere and name not in seen][:MOST_EVERYWHERE]
    ranked = sorted(names.difference(general), key=lambda name: (-worth(name), name))
    return ranked[: MOST - len(general)] + general


def like(known: PlaceNames, rejected: Iterable[str], seen: Collection[str] = ()) -> list[str]:
    """At most 6 other names that work at a place and share a part with a rejected one: those that share most first.

    Args:
        seen: names that the session knows already.
    """
    rejected = frozenset(rejected)
    ranks, stems = _ranks(known), _stems(rejected)
    found = {name for stem in stems for name in ranks.of_stem.get(stem, ()) if name not in seen} - rejected

    def worth(name: str) -> tuple[float, int, str]:
        of_name = ranks.stems[name]
        return -len(of_name & stems) / len(of_name | stems), -known.ended(name).worked, name

    return sorted(found, key=worth)[:MOST_LIKE]


class _Ranks(NamedTuple):
    """Names that work at a place: those that worked most first, the stems of each, and the names of each stem."""

    best: list[str]
    stems: dict[str, frozenset[str]]
    of_stem: dict[str, list[str]]


@lru_cache(maxsize=64)
def _ranks(known: PlaceNames) -> _Ranks:
    """Once for each place of a version, which is never written to."""
    working = [name for name, ended in known.names.items() if ended.worked >= max(1, ended.failed)]
    working.sort(key=lambda name: (-known.names[name].worked, name))
    stems = {name: _stems((name,)) for name in working}
    of_stem: defaultdict[str, list[str]] = defaultdict(list)
    for name in working:
        for stem in stems[name]:
            of_stem[stem].append(name)
    return _Ranks(working, stems, dict(of_stem))


def _stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset(part[:_STEM].rstrip("s") for word in words for part in _PARTS.findall(word))
