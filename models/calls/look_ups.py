"""Count names by place, and learn by which calls sessions look up those that they lack after a failed call.

A look-up is a call that worked, right after a failure or as the first of its session. Its result listed a schema, or
held unseen names that a later call used. A word belongs to the call, not the session, if enough look-ups hold it whose
sessions had mostly not been shown it: `SHOW` and `FROM` do, a table does not.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from fleetlore.calls.call import CALL_CHARACTERS, KEYWORDS, EndedCall
from fleetlore.calls.context import RESULT_CHARACTERS
from fleetlore.calls.document import LookUp, Place
from fleetlore.calls.places import Ended, PlaceNames
from fleetlore.fingerprint.fingerprint import is_free_text, object_of
from fleetlore.wire.stats import wilson
from models.calls.evidence import Evidence, Fact, Facts, Fleet, Who, in_turns
from models.place_names import Told, shows_schema

__all__ = ["LookUps", "PlaceRecords", "failures_met"]

KEPT = 4_000
# Words in this share of a tool's look-ups, by enough agents, are the call's own.
_SHARED = 0.05
# Share of the sessions with this failure that surely made the look-up next.
_LEAST_RATE = 0.1
_MAX_TEXT = 80
_MOST = 200
_NAME, _VALUE = "<name>", "<value>"
_MOST_SLOTS = 2
_TOKEN = re.compile(r"('[^'\n]*'|\"[^\"\n]*\"|\b\d[\w.]*)|[^\W\d][\w.]*")
_NAMED = re.compile(r"[^\W\d]\w+|\b\d{5,}\b")
_ARGUMENTS = re.compile(r"\([\w.-]+(?:, [\w.-]+)*\)")
_REPEATED = re.compile(r"(<(?:name|value)>)(?:[\s,.]*\1)+")
# A call inside of another: `step_3[SHOW TABLES]`.
_WRAPPED = re.compile(r"<name>\s?(?:\[([^\[\]]*)\]|\(([^()]*)\))")


Form = tuple[str, str]


class _Met(NamedTuple):
    tool: str
    kind: str
    who: Who
    by: str
    text: str
    is_look_up: bool
    place: str = ""
    shown: frozenset[str] = frozenset()


def failures_met(goal: str, calls: Sequence[EndedCall], who: Who, place: str = "") -> Iterator[_Met]:
    """Yield a session's first failure of each kind with the call that worked next, and its first call if that worked.

    Free text whose error names none of its words is left out: it lacks no names.
    """
    told, of_goal = set[tuple[str, str]](), _names(goal, CALL_CHARACTERS)
    if calls and calls[0].kind is None:
        text = _said(calls[0])
        is_look_up, shown = _is_look_up(calls, 0, of_goal), _words(text) & of_goal
        yield _Met(calls[0].tool, "", who, calls[0].tool, text, is_look_up, place, shown)
    before, reached = set(of_goal), 0
    given = before - KEYWORDS
    for number, call in enumerate(calls):
        kind = call.kind
        if kind is None:
            given |= _names(call.step.result, RESULT_CHARACTERS) - KEYWORDS
            continue
        is_met = call.step.transient or (call.tool, kind.kind) in told
        if not is_met and (kind.names or not is_free_text(call.shape)):
            found = next((at for at in range(number + 1, len(calls)) if calls[at].kind is None), None)
            if found is not None:
                told.add((call.tool, kind.kind))
                before.update(*map(_all_names, calls[reached:found]))
                reached = found
                # The same tool with other values is another guess.
                is_new = calls[found].tool != call.tool or is_free_text(call.shape)
                is_look_up = is_new and _is_look_up(calls, found, before)
                text = _said(calls[found])
                shown = _words(text) & given.union(kind.names)
                yield _Met(call.tool, kind.kind, who, calls[found].tool, text, is_look_up, place, shown)
        given |= set(kind.names)


def _said(call: EndedCall) -> str:
    arguments = object_of(call.json)
    if is_free_text(call.shape):
        only = list((arguments or {}).values())
        # The name of an only argument is no part of the look-up.
        text = only[0] if len(only) == 1 and isinstance(only[0], str) else call.text
        return "" if _ARGUMENTS.fullmatch(text) else text  # it would pass for names of arguments, which are not masked
    return "" if arguments is None else f"({', '.join(arguments)})"


def _names(text: str, characters: int) -> frozenset[str]:
    return frozenset([name.lower() for name in _NAMED.findall(text[:characters])])


@lru_cache(maxsize=512)  # each failure is followed by the calls of its session
def _called(text: str) -> frozenset[str]:
    return _names(text, CALL_CHARACTERS)


def _words(text: str) -> frozenset[str]:
    return frozenset([token[0].lower() for token in _TOKEN.finditer(text)])


def _all_names(call: EndedCall) -> frozenset[str]:
    said = call.step.result if call.kind is None else call.step.error_message or ""
    return _called(call.text) | _names(said, RESULT_CHARACTERS)


def _is_look_up(calls: Sequence[EndedCall], place: int, seen: Set[str]) -> bool:
    result = calls[place].step.result
    if shows_schema(result):
        return True
    shown = _names(result, RESULT_CHARACTERS) - seen - KEYWORDS
    later = (each for each in calls[place + 1 :] if shown)
    return any(not shown.isdisjoint(_called(each.text)) for each in later)


class LookUps:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._met: list[_Met] = []

    def learn(self, met: Iterator[_Met]) -> None:
        self._met.extend(met)
        if len(self._met) > KEPT:
            newest = in_turns(reversed(range(len(self._met))), lambda place: self._met[place].who.agent)
            self._met = [self._met[place] for place in sorted(newest[: KEPT - KEPT // 8])]

    def said(self) -> tuple[LookUp, ...]:
        own = self.own_words()
        met: defaultdict[tuple[str, str], list[_Met]] = defaultdict(list)
        for each in self._met:
            if each.kind:
                met[each.tool, each.kind].append(each)
        found = [best for kind, some in sorted(met.items()) if (best := self._best(*kind, some, own)) is not None]
        found.sort(key=lambda each: (-each.used, each.tool, each.kind))
        return tuple(found[:_MOST])

    def own_words(self) -> defaultdict[str, frozenset[str]]:
        """By tool, words that belong to its look-ups and not to one session."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        shown: defaultdict[str, Counter[str]] = defaultdict(Counter)
        agents: defaultdict[tuple[str, str], Evidence] = defaultdict(lambda: Evidence(self._fleet))
        of_tool: Counter[str] = Counter()
        for each in self._met:
            if each.is_look_up:
                of_tool[each.by] += 1
                shown[each.by].update(each.shown)
                for word in _words(each.text):
                    counts[each.by][word] += 1
                    agents[each.by, word].add(each.who)
        own: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for tool, words in counts.items():
            least = _SHARED * of_tool[tool]
            often = [word for word, count in words.items() if count >= least and 2 * shown[tool][word] <= count]
            own[tool] = frozenset(word for word in often if agents[tool, word].is_enough)
        return own

    def at_places(self) -> dict[str, Form]:
        own = self.own_words()
        made: defaultdict[str, Counter[Form]] = defaultdict(Counter)
        agents: defaultdict[tuple[str, Form], Evidence] = defaultdict(lambda: Evidence(self._fleet))
        for each in self._met:
            text = form(each.text, own[each.by]) if each.place and each.is_look_up else ""
            if text and len(text) <= _MAX_TEXT:
                made[each.place][text, each.by] += 1
                agents[each.place, (text, each.by)].add(each.who)
        return {
            place: min(backed, key=lambda each: (-some[each], each))
            for place, some in sorted(made.items())
            if (backed := [each for each in some if agents[place, each].is_enough])
        }

    def _best(self, tool: str, kind: str, met: Sequence[_Met], own: Mapping[str, frozenset[str]]) -> LookUp | None:
        made: defaultdict[tuple[str, ...], list[_Met]] = defaultdict(list)
        for each in met:
            words = key(each.text, own.get(each.by, frozenset()))
            if words:
                made[each.by, *words].append(each)
        look_ups = {each: some for each, some in made.items() if 2 * sum(one.is_look_up for one in some) >= len(some)}
        if not look_ups:
            return None
        (by, *_), best = min(look_ups.items(), key=lambda each: (-len(each[1]), each[0]))
        texts: defaultdict[str, Evidence] = defaultdict(lambda: Evidence(self._fleet))
        for each in best:
            texts[form(each.text, own[by])].add(each.who)
        backed = [text for text, of in texts.items() if of.is_enough and 0 < len(text) <= _MAX_TEXT]
        if not backed or wilson(len(best), len(met))[0] < _LEAST_RATE:
            return None
        text = min(backed, key=lambda each: (-texts[each].agents, -texts[each].sessions, each))
        return LookUp(tool, kind, by, text, len(best), len(met), texts[text].agents)


def key(text: str, own: frozenset[str]) -> tuple[str, ...]:
    words = (token[0].lower() for token in _TOKEN.finditer(text))
    return tuple(dict.fromkeys(word for word in words if word in own))


def form(text: str, own: frozenset[str]) -> str:
    """Return the whole call with slots for what is not its own, or "" with too many or if a function's name is one."""
    if _ARGUMENTS.fullmatch(text):
        return text

    def slotted(token: re.Match[str]) -> str:
        return token[0] if token[0].lower() in own else _VALUE if token[1] else _NAME

    whole = _REPEATED.sub(r"\1", _TOKEN.sub(slotted, " ".join(text.split())))
    if (wrapped := _WRAPPED.fullmatch(whole)) is not None:
        whole = (wrapped[1] or wrapped[2] or "").strip()
    slots = whole.count(_NAME) + whole.count(_VALUE)
    return whole if slots <= _MOST_SLOTS and f"{_NAME}(" not in whole and key(text, own) else ""


KEPT_NAMES = 4_096
_SAID_WORDS = 160
_MOST_MEMBERS = 48


class _Known:
    def __init__(self, fleet: Fleet) -> None:
        self.sessions = 0
        self.worked = Facts[str](fleet, KEPT_NAMES)
        # Names of calls that worked or of schemas. Names that only lists show may be anybody's.
        self.grounded: set[str] = set()
        self.failed = Facts[str](fleet, KEPT_NAMES)
        self.words = Facts[str](fleet, KEPT_NAMES)
        self.members = Facts[tuple[str, str]](fleet, KEPT_NAMES)
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
        if len(known.spelled) > 2 * KEPT_NAMES:
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
        places = {}
        for place, of in sorted(names.items()):
            known, look_up = self._places[place], look_ups.get(place, ("", ""))
            often = sorted((-backed.sessions, word) for word, backed in known.words.items() if backed.is_enough)
            words = tuple([word for _, word in often[:_SAID_WORDS]])
            places[place] = Place(known.sessions, of, words, members.get(place, {}), *look_up)
        return places

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


class _Names(PlaceNames):
    def __init__(self, known: _Known) -> None:
        super().__init__(known.sessions, {})
        self.ended = known.ended  # type: ignore[method-assign]
