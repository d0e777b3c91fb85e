"""Count how calls with a name ended: over all sessions, and by place. Sessions count, and no agent more than a few."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable

from fleetlore.calls.document import Named, Place
from fleetlore.calls.places import Ended, PlaceNames, common

# Sessions of one agent that count for a name: one agent alone cannot declare a table missing for all.
AGENT_SESSIONS = 5
KEPT_NAMED = 50_000
PLACE_NAMES = 4_096
# Of a version.
SAID_RATE = 0.4
SAID_WORDS = 160
# Words that agents' goals have in common, and what they all call everywhere; what one wrote is nobody else's.
WORD_AGENTS = 2

# (tool, kind of failure, names)
Key = tuple[str, str, tuple[str, ...]]
# Sessions by agent, of each name; the one met the longest ago first.
_Agents = OrderedDict[str, Counter[str]]


class NamedFailures:
    """Failures that named something in the call, and how calls with these names ended otherwise."""

    def __init__(self) -> None:
        self._failed: OrderedDict[Key, Counter[str]] = OrderedDict()
        self._held: dict[Key, Counter[str]] = {}
        self._of_name: dict[tuple[str, str], list[Key]] = {}

    def learn(self, agent: str, calls: Iterable[tuple[str, frozenset[str], Key | None]]) -> None:
        """Take in the calls of a session: tool, names in the call, and its failure if it failed for names."""
        held: set[Key] = set()
        failed: set[Key] = set()
        for tool, names, key in calls:
            if key is not None and key not in self._failed:
                self._add(key)
            for name in names:
                held.update(each for each in self._of_name.get((tool, name), ()) if names.issuperset(each[2]))
            if key is not None:
                held.add(key)
                failed.add(key)
        for each in held:
            if each in self._held:
                self._held[each][agent] += 1
        for each in failed:
            if each in self._failed:
                self._failed[each][agent] += 1

    def _add(self, key: Key) -> None:
        self._failed[key], self._held[key] = Counter(), Counter()
        self._of_name.setdefault((key[0], key[2][0]), []).append(key)
        if len(self._failed) > KEPT_NAMED:
            old, _ = self._failed.popitem(last=False)
            del self._held[old]
            self._of_name[old[0], old[2][0]].remove(old)

    def said(self, most: int) -> tuple[Named, ...]:
        """Those that a version holds: that mostly fail, the best backed first."""
        found = [
            Named(tool, kind, names, capped(agents), capped(self._held[tool, kind, names]), len(agents))
            for (tool, kind, names), agents in self._failed.items()
        ]
        often = [each for each in found if each.failed >= SAID_RATE * each.held]
        often.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.kind, each.names))
        return tuple(often[:most])


class PlaceRecords:
    """Names by place: those of calls that worked, those that results showed, and those that a failure named."""

    def __init__(self) -> None:
        self._sessions: Counter[str] = Counter()
        self._worked: defaultdict[str, _Agents] = defaultdict(OrderedDict)
        self._failed: defaultdict[str, _Agents] = defaultdict(OrderedDict)
        self._words: defaultdict[str, _Agents] = defaultdict(OrderedDict)
        # Agents whose calls with a name worked, of whatever place.
        self._users: OrderedDict[str, set[str]] = OrderedDict()

    def names(self, place: str) -> PlaceNames:
        """What is known of a place so far."""
        worked, failed = self._worked[place], self._failed[place]
        return _Names(self._sessions[place], worked, failed)

    def learn(
        self,
        place: str,
        agent: str,
        worked: Iterable[str],
        failed: Iterable[str],
        words: Iterable[str],
        used: Iterable[str],
    ) -> None:
        """Take in a session: names of calls that worked or of their results, names that failures were about, words of
        the goal, and all words of calls that worked.
        """
        self._sessions[place] += 1
        for name in sorted(used):
            self._users.setdefault(name, set()).add(agent)
            self._users.move_to_end(name)
        while len(self._users) > KEPT_NAMED:
            self._users.popitem(last=False)
        for records, names in ((self._worked, worked), (self._failed, failed), (self._words, words)):
            known = records[place]
            for name in sorted(names):
                known.setdefault(name, Counter())[agent] += 1
                known.move_to_end(name)
            while len(known) > PLACE_NAMES:
                known.popitem(last=False)

    def said(self, most: int) -> dict[str, Place]:
        """Those that a version holds: of all places together so many names, the best backed first."""
        found: list[tuple[int, str, str, tuple[int, int]]] = []
        often = self._often()
        for place in self._sessions:
            worked, failed = self._worked[place], self._failed[place]
            for name in {**worked, **failed}:
                counts = capped(worked.get(name)), capped(failed.get(name))
                users = self._users.get(name, ())
                if users or name not in often:
                    # What one agent alone writes everywhere is known, and said last.
                    habit = name in often and len(users) < WORD_AGENTS
                    found.append((-sum(counts), place, name, (1, 0) if habit else counts))
        places = {
            place: Place(sessions, {}, self._said_words(place)) for place, sessions in sorted(self._sessions.items())
        }
        for _, place, name, counts in sorted(found)[:most]:
            places[place].names[name] = counts
        return places

    def _often(self) -> frozenset[str]:
        """Names found at many places: of these one that results alone show is none of a place."""
        return common(Counter(name for worked in self._worked.values() for name in worked), len(self._sessions))

    def _said_words(self, place: str) -> tuple[str, ...]:
        known = self._words[place].items()
        often = sorted((-capped(agents), word) for word, agents in known if len(agents) >= WORD_AGENTS)
        return tuple([word for _, word in often[:SAID_WORDS]])


class _Names(PlaceNames):
    """Names of a place while they are learned: nothing is copied for a call."""

    def __init__(self, sessions: int, worked: _Agents, failed: _Agents) -> None:
        super().__init__(sessions, {})
        self._worked, self._failed = worked, failed

    def ended(self, name: str) -> Ended:
        return Ended(capped(self._worked.get(name)), capped(self._failed.get(name)))


def capped(agents: Counter[str] | None) -> int:
    return 0 if agents is None else sum(min(sessions, AGENT_SESSIONS) for sessions in agents.values())
