"""Remember places (a database, a repository, a host, an account) by their names, and how calls with them ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import nlargest
from math import log
from typing import NamedTuple

from fleetlore.calls.context import KEYWORDS, CallContext

# How one asks, wherever one is.
QUERY_WORDS = KEYWORDS.union(
    """
    add alter auto_increment begin case cast coalesce column columns concat create cross current_date database databases
    delete desc describe drop end except exists explain extract foreign full glob information_schema insert interval
    intersect into key limit natural null nullif offset over partition pragma primary references replace rowid schema
    schemas set show sql sqlite_master sqlite_schema strftime table table_info table_name table_schema tables then
    unique update using values view when
    """.split()  # noqa: SIM905
)
# A place is recognised where what speaks for it is so many natural logarithms above the next one, and at least this
# share of what was said at all: sure enough that the goal alone tells most places, and hardly ever a wrong one.
_SURE = 3.0
_SURE_SHARE = 0.5
# A word of more than this share of the places is a word of none.
_COMMON = 1 / 3
_LEAST_WORD = 3


class Ended(NamedTuple):
    """How calls with a name ended at a place: sessions in which one worked, and in which one failed for the name."""

    worked: int
    failed: int


_NEVER = Ended(0, 0)


class PlaceNames:
    """What is known of one place.

    Attributes:
        sessions: how many were there.
        names: lower-case names, with how calls with them ended; `spelled`: those that are not written so, as they are.
        words: of the goals that agents had there.
        members: by name as it is spelled, what it has.
        look_up, look_up_by: the call by which sessions found names there, and its tool; empty where none is known.
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
        """How calls with a name ended here."""
        return self.names.get(name, _NEVER)

    def rejects(self, name: str) -> bool:
        """Whether a name mostly fails here, or was never met."""
        worked, failed = self.ended(name)
        return failed >= worked

    def counts(self, names: Iterable[str]) -> tuple[int, int, int, int]:
        """How many of the names are bad, good, both and unknown here. One that mostly fails counts as bad too."""
        bad = good = both = unknown = 0
        for name in names:
            worked, failed = self.ended(name)
            if worked and failed:
                both += 1
                bad += failed > 2 * worked
            elif failed:
                bad += 1
            elif worked:
                good += 1
            else:
                unknown += 1
        return bad, good, both, unknown


class Places(dict[str, PlaceNames]):
    """Places by name."""

    def __init__(self, known: Mapping[str, PlaceNames]) -> None:
        super().__init__(known)
        self._of_word: defaultdict[str, set[str]] = defaultdict(set)
        for place, names in known.items():
            for word in (*names.words, *(name for name, ended in names.names.items() if ended.worked)):
                self._of_word[word].add(place)

    def recognise(self, context: CallContext) -> str | None:
        """The place that a session is at: that an error told, or else by the words of its goal and of its calls that
        worked; None if not sure.

        What is recognised by words is for reading only: what a session teaches is kept under the place that it states
        or that an error told.
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
