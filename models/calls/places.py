"""Count names by place: those that work there, those that are rejected, and what has what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from fleetlore.calls.document import Place
from fleetlore.calls.places import Ended, PlaceNames
from models.calls.evidence import Evidence, Fact, Facts, Fleet, Who
from models.calls.look_ups import Form
from models.place_names import Told

__all__ = ["PlaceRecords"]

KEPT = 4_096
_SAID_WORDS = 160
_MOST_MEMBERS = 48


class _Known:
    def __init__(self, fleet: Fleet) -> None:
        self.sessions = 0
        self.worked = Facts[str](fleet, KEPT)
        # Names of calls that worked or of schemas. Names that only lists show may be anybody's.
        self.grounded: set[str] = set()
        self.failed = Facts[str](fleet, KEPT)
        self.words = Facts[str](fleet, KEPT)
        self.members = Facts[tuple[str, str]](fleet, KEPT)
        self.spelled: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def ended(self, name: str) -> Ended:
        worked, failed = self.worked.get(name), self.failed.get(name)
        works = worked is not None and worked.is_enough and name in self.grounded
        return Ended(
            worked.sessions if works and worked is not None else 0,
            failed.sessions if failed is not None and failed.is_enough else 0,
        )

    def spelling(self, name: str) -> str:
        spelled = self.spelled.get(name)
        return min(spelled, key=lambda each: (-spelled[each], each)) if spelled else name


class PlaceRecords:
    def __init__(self, fleet: Fleet) -> None:
        self._places: defaultdict[str, _Known] = defaultdict(lambda: _Known(fleet))

    def names(self, place: str) -> PlaceNames:
        return _Names(self._places[place])

    def learn(self, place: str, who: Who, told: Told, words: Iterable[str]) -> None:
        known = self._places[place]
        known.sessions += 1
        works = {name.lower() for name in told.names}
        known.grounded |= works
        for name in (*told.names, *told.listed):
            known.spelled[name.lower()][name] += 1
        _count(known.worked, works.union(name.lower() for name in told.listed), who)
        _count(known.failed, told.failed, who)
        _count(known.words, words, who)
        _count(known.members, {(owner.lower(), member.lower()) for owner, member in told.members}, who)
        known.grounded &= known.worked.keys()
        if len(known.spelled) > 2 * KEPT:
            known.spelled = defaultdict(Counter, {name: known.spelled[name] for name in known.worked})

    def said(self, most: int, look_ups: Mapping[str, Form]) -> dict[str, Place]:
        """Return those that a version holds, by place, the best backed first.

        `most` bounds the names of all places, and half of it the members. `look_ups`: by place.
        """
        found = [
            (-sum(ended), place, name, ended)
            for place, known in self._places.items()
            for name in {**known.worked, **known.failed}
            if sum(ended := known.ended(name))
        ]
        names: defaultdict[str, dict[str, Ended]] = defaultdict(dict)
        for _, place, name, ended in sorted(found)[:most]:
            names[place][self._places[place].spelling(name)] = ended
        members = self._members(most // 2)
        return {
            place: Place(
                self._places[place].sessions,
                of,
                _said_words(self._places[place].words),
                members.get(place, {}),
                *look_ups.get(place, ("", "")),
            )
            for place, of in sorted(names.items())
        }

    def _members(self, most: int) -> dict[str, dict[str, tuple[str, ...]]]:
        found = [
            (-backed.sessions, place, owner, member)
            for place, known in self._places.items()
            for (owner, member), backed in known.members.items()
            if backed.is_enough and known.ended(owner).worked
        ]
        members: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for _, place, owner, member in sorted(found)[:most]:
            known = self._places[place]
            of = members[place][known.spelling(owner)]
            if len(of) < _MOST_MEMBERS:
                of.append(known.spelling(member))
        return {place: {owner: tuple(of) for owner, of in sorted(known.items())} for place, known in members.items()}


def _count(facts: Facts[Fact], met: Iterable[Fact], who: Who) -> None:
    for fact in sorted(met):  # type: ignore[type-var]  # the order decides what is forgotten first
        facts.count(fact, who)


def _said_words(known: Mapping[str, Evidence]) -> tuple[str, ...]:
    often = sorted((-backed.sessions, word) for word, backed in known.items() if backed.is_enough)
    return tuple([word for _, word in often[:_SAID_WORDS]])


class _Names(PlaceNames):
    def __init__(self, known: _Known) -> None:
        super().__init__(known.sessions, {})
        self.ended = known.ended  # type: ignore[method-assign]
