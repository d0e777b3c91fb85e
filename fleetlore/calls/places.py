"""Remember places (a database, a repository, a host, an account): their names, and how calls with these ended."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from heapq import nlargest
from math import log
from typing import NamedTuple

from fleetlore.calls.call import CALL_CHARACTERS, KEYWORDS
from fleetlore.calls.context import GOAL_CHARACTERS, CallContext
from fleetlore.words import names_of, parts_of

__all__ = ["QUERY_WORDS", "Ended", "PlaceNames", "is_covered", "missing", "nearest", "structure", "unknown"]

QUERY_WORDS = KEYWORDS.union(
    """
    add alter auto_increment begin case cast coalesce column columns concat create cross current_date database databases
    delete desc describe drop end except exists explain extract foreign full glob information_schema insert interval
    intersect into key limit natural null nullif offset over partition pragma primary references replace rowid schema
    schemas set show sql sqlite_master sqlite_schema strftime table table_info table_name table_schema tables then
    unique update using values view when
    """.split()  # noqa: SIM905
)
# A recognised place's log-evidence exceeds the next one's by `_SURE`, with this share of all evidence. The goal alone
# then gives most places, rarely a wrong one.
_SURE = 3.0
_SURE_SHARE = 0.5
_COMMON = 1 / 3
_LEAST_WORD = 3
_MOST_MEMBERS, _MOST_OWNERS = 16, 8
# Owners with fewer known members mostly have unknown ones.
_LEAST_MEMBERS = 2
# Lengths from which names that differ in one letter, and two, are alike.
_LONG_ENOUGH, _LONG = 6, 9
_IN_GOAL, _IN_CALL = 0.75, 0.5
# `countries` and `country`.
_STEM = 5
_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*[(.\[])")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*[(\[]")
_FROM = re.compile(r"(?i)\b(?:from|join|into|update)\s+(\w+)")
# Matches `AS total`, `recent AS (`, `o` of `o.price` and of `orders o`.
_OWN = re.compile(r"(?i)\b(\w+)\s+as\s*\(|\bas\s+(\w+)|\b(\w+)\s*\.|\b(?:from|join)\s+\w+\s+(\w+)")


class Ended(NamedTuple):
    """Numbers of sessions in which calls with a name worked, and failed for it."""

    worked: int
    failed: int


_NEVER = Ended(0, 0)


class PlaceNames:
    """Knowledge of one place. `names`: lower-case, with how calls ended. `spelled`: original spelling of other names.
    `words`: of goals there. `members`: of each name, in original spelling.
    """

    def __init__(
        self,
        sessions: int,
        names: Mapping[str, Ended],
        words: Iterable[str] = (),
        members: Mapping[str, tuple[str, ...]] | None = None,
        look_up: str = "",
        look_up_by: str = "",
    ) -> None:
        self.sessions = sessions
        self.names = {name.lower(): ended for name, ended in names.items()}
        self.spelled = {name.lower(): name for name in names if name != name.lower()}
        self.words = frozenset(words)
        self.members = members or {}
        self.look_up, self.look_up_by = look_up, look_up_by

    def ended(self, name: str) -> Ended:
        return self.names.get(name, _NEVER)

    def rejects(self, name: str) -> bool:
        worked, failed = self.ended(name)
        return failed >= worked

    def counts(self, names: Iterable[str]) -> tuple[int, int, int, int]:
        """Count bad, good, mixed and unknown names. One that mostly fails is bad too."""
        ends = [self.ended(name) for name in names]
        bad = sum(failed > 2 * worked for worked, failed in ends)
        good = sum(worked > 0 and not failed for worked, failed in ends)
        both = sum(worked > 0 and failed > 0 for worked, failed in ends)
        return bad, good, both, ends.count(_NEVER)


class Places(dict[str, PlaceNames]):
    def __init__(self, known: Mapping[str, PlaceNames]) -> None:
        super().__init__(known)
        self._of_word: defaultdict[str, set[str]] = defaultdict(set)
        for place, names in known.items():
            for word in (*names.words, *(name for name, ended in names.names.items() if ended.worked)):
                self._of_word[word].add(place)

    def recognise(self, context: CallContext) -> str | None:
        """Return the session's place, or None if it is unsure.

        An error names the place, or the words of the goal and of worked calls decide. A place by words is only read:
        no lesson is kept under it.
        """
        if context.place is not None:
            return context.place
        if not self:
            return None
        said: defaultdict[str, float] = defaultdict(float)
        total = 0.0
        for word in context.goal_words | context.worked:
            if len(word) < _LEAST_WORD:
                continue
            places = self._of_word.get(word, set())
            if len(places) > _COMMON * len(self):
                continue
            weight = log(len(self) / max(1, len(places)))
            total += weight
            for place in places:
                said[place] += weight
        ranked = nlargest(2, said.items(), key=lambda each: (each[1], each[0]))
        if not ranked or ranked[0][1] < _SURE_SHARE * total:
            return None
        (best, first), second = ranked[0], ranked[1][1] if len(ranked) > 1 else 0.0
        return best if first - second >= _SURE else None


def structure(known: PlaceNames, goal: str, call: str = "", most_chars: int = 600) -> list[tuple[str, tuple[str, ...]]]:
    """Owners with members in `most_chars`: those in the call first, then those nearest to the goal."""
    in_goal, in_call = _stems(names_of(goal[:GOAL_CHARACTERS])), _stems(names_of(call[:CALL_CHARACTERS]))

    def near(name: str) -> float:
        stems = _stems_of(name)
        return (_IN_GOAL * len(stems & in_goal) + _IN_CALL * len(stems & in_call)) / (len(stems) or 1)

    named = names_of(call[:CALL_CHARACTERS])

    def worth(owner: str) -> tuple[bool, float, float, str]:
        # Members that every owner has (`id`, `name`) tell little.
        of_members = sorted((near(member) for member in known.members[owner]), reverse=True)[:3]
        worked = known.ended(owner.lower()).worked
        return owner.lower() not in named, -(2.0 * near(owner) + sum(of_members)), -float(worked), owner

    found: list[tuple[str, tuple[str, ...]]] = []
    left = most_chars
    for owner in sorted((owner for owner, of in known.members.items() if len(of) >= _LEAST_MEMBERS), key=worth):
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


@lru_cache(maxsize=64)
def nearest(rejected: str, known: PlaceNames, call: str = "") -> str | None:
    """Return the one working name that is spelled nearly like a rejected one, or None.

    Names are alike if they differ in case, in `_`, in a plural's ending or in one letter (two from nine letters on),
    but not the first. Otherwise it is the only member of an owner in the call with all parts of the rejected name:
    `departure_time` for `departure`.
    """
    asked = rejected.lower()
    first = asked[0]
    found = {
        name: distance
        for name, ended in known.names.items()
        if name[0] == first  # there may be thousands of names
        and name != asked
        and ended.worked > ended.failed
        and (distance := _distance(asked, name)) is not None
    }
    least = min(found.values(), default=0)
    best = [name for name, distance in found.items() if distance == least]
    if best:
        return known.spelled.get(best[0], best[0]) if len(best) == 1 else None
    parts, named = _stems_of(rejected), names_of(call[:CALL_CHARACTERS])
    owners = [owner for owner in known.members if owner.lower() in named][:_MOST_OWNERS]
    holding = {member for owner in owners for member in known.members[owner] if parts <= _stems_of(member)}
    near = holding.pop() if parts and len(holding) == 1 else asked
    return near if near.lower() != asked else None


def unknown(call: str, known: PlaceNames, named: Iterable[str] = ()) -> list[str]:
    """Return names in a call that do not exist at a place with known structure.

    Words in quotes, in capitals or before a bracket are no names, nor are those that the call defines (`orders AS o`)
    or qualifies (`o.total`). `named`: lower-case names in the error. They come first, and may be any word.
    """
    text = _LITERAL.sub(" ", call[:CALL_CHARACTERS])
    own = _own(text)
    there = {name.lower() for owner, members in known.members.items() for name in (owner, *members)}
    spelled = {name.lower(): name for name in _NAME.findall(text) if not name.isupper() and len(name) > 2}
    # Names of other things there, and called functions, are not wrong.
    is_none = own | there | ({name.lower() for name in _CALLED.findall(text)} - spelled.keys())
    first = [name for name in named if known.rejects(name) and name not in is_none]
    rest = [name for name in spelled if name not in there and name not in QUERY_WORDS and known.rejects(name)]
    return [spelled.get(name, name) for name in dict.fromkeys((*first, *rest)) if name not in own]


def missing(call: str, known: PlaceNames, named: Iterable[str]) -> list[str]:
    """Return names in an error that no owner in the call has."""
    words = names_of(call[:CALL_CHARACTERS])
    owners = {owner.lower(): members for owner, members in known.members.items()}
    there = {member.lower() for owner, members in owners.items() if owner in words for member in members}
    return [name for name in named if there and name not in there and name not in owners]


def is_covered(call: str, known: PlaceNames, rejected: Iterable[str]) -> bool:
    """Whether the place has everything a call reads, or some of it is itself rejected."""
    text = _LITERAL.sub(" ", call[:CALL_CHARACTERS])
    asked = {name.lower() for name in _FROM.findall(text)} - _own(text)
    return not asked.isdisjoint(rejected) or asked <= {owner.lower() for owner in known.members}


def _own(text: str) -> set[str]:
    return {name.lower() for found in _OWN.findall(text) for name in found if name}


def _distance(one: str, other: str) -> int | None:
    (bare, singular, letters), (bare_other, singular_other, letters_other) = _bare(one), _bare(other)
    if singular == singular_other or bare == bare_other:
        return 0
    shorter = min(len(bare), len(bare_other))
    most = 2 if shorter >= _LONG else 1 if shorter >= _LONG_ENOUGH else 0
    if not most or len(letters ^ letters_other) > 2 * most:  # one edit changes two letters at most
        return None
    distance = _edits(bare, bare_other, most)
    return distance if distance <= most else None


@lru_cache(maxsize=16_384)
def _bare(name: str) -> tuple[str, str, frozenset[str]]:
    bare = name.replace("_", "")
    return bare, _singular(bare), frozenset(bare)


def _singular(name: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("ss", "ss")):
        if name.endswith(ending):
            return name[: -len(ending)] + instead
    return name[:-1] if name.endswith("s") and len(name) > 3 else name


def _edits(one: str, other: str, most: int) -> int:
    if abs(len(one) - len(other)) > most:
        return most + 1
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, its in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != its)))
        if min(now) > most:  # it only grows
            return most + 1
        before = now
    return before[-1]


def _stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*map(_stems_of, words))


@lru_cache(maxsize=16_384)
def _stems_of(name: str) -> frozenset[str]:
    return frozenset(part[:_STEM].rstrip("s") for part in parts_of(name))
