"""Choose what a session most likely needs next of a place: names, what has what, and the one name near a wrong one."""

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

__all__ = ["nearest", "structure"]

MOST = 12
_MOST_LIKE = 6
# Of one owner.
_MOST_MEMBERS = 16
# Letters from which names that differ in one are alike, and in two.
_LONG_ENOUGH, _LONG = 6, 9
# Of the parts of a name: that the goal has too, and that the call that failed has.
_IN_GOAL, _IN_CALL = 0.75, 0.5
# Word forms are alike in their beginning: `countries` and `country`, `singers` and `singer`.
_STEM = 5
_PARTS = re.compile(r"[^\W_]+")


def card(known: PlaceNames, goal: str, call: str, seen: Collection[str] = ()) -> list[str]:
    """At most 12 names that worked at a place, those nearest to the goal and the call first, ties by name.

    How often a name worked counts as its logarithm, beside the parts that it shares with the goal and the call.

    Args:
        call: the call that failed, as text.
        seen: names that the session knows already.
    """
    ranks = _ranks(known)
    in_goal, in_call = _stems(words_of(goal, GOAL_CHARACTERS)), _stems(words_of(call, CALL_CHARACTERS))
    # Of the names that share nothing, the first in rank are enough.
    names = {name for stem in in_goal | in_call for name in ranks.of_stem.get(stem, ()) if name not in seen}
    names.update(islice((name for name in ranks.best if name not in seen), MOST))

    def worth(name: str) -> float:
        stems = ranks.stems[name]
        shared = _IN_GOAL * len(stems & in_goal) + _IN_CALL * len(stems & in_call)
        return log(1.0 + known.ended(name).worked) + shared / (len(stems) or 1)

    return [_spelled(known, name) for name in sorted(names, key=lambda name: (-worth(name), name))[:MOST]]


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

    return [_spelled(known, name) for name in sorted(found, key=worth)[:_MOST_LIKE]]


def structure(known: PlaceNames, goal: str, call: str = "", most_chars: int = 600) -> list[tuple[str, tuple[str, ...]]]:
    """What has what at a place: the owners nearest to the goal and the call first, and as much as fits.

    An owner is near by the parts that it and its members share with them. Of an owner with many members those that
    share a part come first. One line each, `owner(member, member)`, takes at most `most_chars` together.
    """
    in_goal, in_call = _stems(words_of(goal, GOAL_CHARACTERS)), _stems(words_of(call, CALL_CHARACTERS))

    def near(name: str) -> float:
        stems = _stems((name,))
        return (_IN_GOAL * len(stems & in_goal) + _IN_CALL * len(stems & in_call)) / (len(stems) or 1)

    def worth(owner: str) -> tuple[float, float, str]:
        # Members that every owner has (`id`, `name`) tell little: the best three count.
        of_members = sorted((near(member) for member in known.members[owner]), reverse=True)[:3]
        return -(2.0 * near(owner) + sum(of_members)), -float(known.ended(owner.lower()).worked), owner

    found: list[tuple[str, tuple[str, ...]]] = []
    left = most_chars
    for owner in sorted(known.members, key=worth):
        shown = list[str]()
        room = left - len(owner) - 3
        for member in sorted(known.members[owner], key=lambda each: -near(each)):
            room -= len(member) + 2
            if room < 0 or len(shown) == _MOST_MEMBERS:
                break
            shown.append(member)
        if shown:
            kept = tuple(member for member in dict.fromkeys(known.members[owner]) if member in shown)
            found.append((owner, kept))
            left -= len(owner) + 3 + sum(len(member) + 2 for member in kept)
    return found


def nearest(rejected: str, known: PlaceNames) -> str | None:
    """The one name that works at a place and is spelled nearly like a rejected one; None where none is, or several are.

    Alike are names that differ in case, in `_` or in a plural's ending, and long ones that differ in one letter, or
    from nine letters on in two; the first letter is the same.
    """
    asked = rejected.lower()
    found = {
        name: distance
        for name, ended in known.names.items()
        if name != asked and ended.worked > ended.failed and (distance := _distance(asked, name)) is not None
    }
    least = min(found.values(), default=0)
    best = [name for name, distance in found.items() if distance == least]
    return _spelled(known, best[0]) if len(best) == 1 else None


def around(name: str, known: PlaceNames) -> list[tuple[str, tuple[str, ...]]]:
    """What a name has, or what has it: (owner, members) each, the owner that worked most first."""
    asked = name.lower()
    found = [
        (owner, members)
        for owner, members in known.members.items()
        if owner.lower() == asked or any(member.lower() == asked for member in members)
    ]
    return sorted(found, key=lambda each: (each[0].lower() != asked, -known.ended(each[0].lower()).worked, each[0]))


def _spelled(known: PlaceNames, name: str) -> str:
    """A lower-case name as it is spelled at the place."""
    return known.spelled.get(name, name)


def _distance(one: str, other: str) -> int | None:
    """In how many letters two lower-case names differ, a plural's ending counting as none; None where not near."""
    if one[0] != other[0]:
        return None
    bare, bare_other = one.replace("_", ""), other.replace("_", "")
    if bare == bare_other or _singular(bare) == _singular(bare_other):
        return 0
    shorter = min(len(bare), len(bare_other))
    most = 2 if shorter >= _LONG else 1 if shorter >= _LONG_ENOUGH else 0
    distance = _edits(bare, bare_other, most) if most else 1
    return distance if distance <= most else None


def _singular(name: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("ss", "ss")):
        if name.endswith(ending):
            return name[: -len(ending)] + instead
    return name[:-1] if name.endswith("s") and len(name) > 3 else name


def _edits(one: str, other: str, most: int) -> int:
    """Levenshtein's distance; more than `most` where it is more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, its in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != its)))
        before = now
    return before[-1]


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
