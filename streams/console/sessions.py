"""Keep the newest judged sessions in short form, and explain the hints of one session.

An outcome names hints by their ids alone. A hint's source is found by computing the ids that each would have made.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from sys import getsizeof, intern
from typing import NamedTuple, get_args

from fleetlore.advice.decide import HINT_PREFIX
from fleetlore.advice.sources import PERSON
from fleetlore.calls.context import warning_id
from fleetlore.config import Settings
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.names import kind_of
from fleetlore.kafka.read import records_of
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.principals import session_key
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from fleetlore.words import count
from models.uplift import Trial
from streams.stage.base import readable
from streams.stage.operators import Erased

__all__ = ["HintNames", "explained", "seen_sessions", "trials_of"]

_MOST_SESSIONS = 20_000
# Bytes of all sessions: agents choose the names in them.
_MOST_BYTES = 32 * 2**20
_MAX_GOAL = 200


class SeenSession(NamedTuple):
    """A judged session. `trials`: the first call for each drawn hint. `met`: class ids of its failures. `worked`:
    persons' hints that were shown for calls that worked."""

    id: str
    agent: str
    task: str
    goal: str
    started: float
    ended: float
    label: str
    calls: int
    failed: int
    trials: tuple[Trial, ...] = ()
    key: str = ""
    met: tuple[str, ...] = ()
    worked: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        texts = [each for trial in self.trials for each in (trial.hint, trial.tool)]
        held = sum(map(getsizeof, (self.id, self.agent, self.task, self.goal, *texts)))
        return 600 + 300 * len(self.trials) + 8 * len(self.met) + 90 * len(self.worked) + held

    @property
    def hints(self) -> int:
        return sum(each.shown for each in self.trials)

    def is_erased(self, erased: Erased, tenant: str) -> bool:
        return erased.count > 0 and erased.drops(tenant, self.id.partition("#")[0], self.agent, self.ended)


class Agent(NamedTuple):
    name: str
    sessions: int
    failed_sessions: int
    calls: int
    failed: int
    ended: float


class SeenSessions:
    def __init__(self) -> None:
        self._sessions: dict[str, SeenSession] = {}
        self._bytes = 0
        self._taken = 0
        self._sorted: tuple[tuple[int, int], tuple[SeenSession, ...]] = (-1, -1), ()

    def take(self, value: bytes) -> None:
        self._taken += 1
        for seen in readable(value, lambda part: _seen(Judgment.from_json(part))):
            self._drop(seen.key)
            self._sessions[seen.key] = seen
            self._bytes += seen.size
        while self._sessions and (len(self._sessions) > _MOST_SESSIONS or self._bytes > _MOST_BYTES):
            self._drop(next(iter(self._sessions)))

    def _drop(self, key: str) -> None:
        if (known := self._sessions.pop(key, None)) is not None:
            self._bytes -= known.size

    def newest(self, erasures: int, is_erased: Callable[[SeenSession], bool]) -> tuple[SeenSession, ...]:
        """Return those not erased, the newest first. A new number of `erasures` asks again."""
        state = self._taken, erasures
        if self._sorted[0] != state:
            known = [each for each in self._sessions.values() if not is_erased(each)]
            self._sorted = state, tuple(sorted(known, key=lambda each: (-each.ended, each.id)))
        return self._sorted[1]


def _seen(judged: Judgment) -> SeenSession:
    of = judged.trajectory
    calls = of.calls
    key, success = session_key(of.agent, of.session), {"success": True, "failure": False}.get(judged.verdict.label)
    drawn: dict[str, Trial] = {}
    sources: dict[str, str] = {}
    for step in calls:
        for ids, shown in ((step.advice, True), (step.withheld, False)):
            for id in ids:
                source = sources.get(id, "")
                drawn.setdefault(
                    id, Trial(key, id, step.tool, of.task, shown, step.failed, len(calls), success, source)
                )
        sources |= _sources_after(step)
    id = of.session if not of.part else f"{of.session}#{of.part}"
    failed = sum(step.failed for step in calls)
    about = of.agent, of.task, of.goal[:_MAX_GOAL], of.started, of.ended, judged.verdict.label
    met = tuple([intern(step.pattern) for step in calls if step.pattern is not None])
    worked = tuple([id for step in calls if not step.failed for id in step.advice if id.startswith(HINT_PREFIX)])
    return SeenSession(id, *about, len(calls), failed, tuple(drawn.values()), of.id, met, worked)


def agents_of(sessions: Iterable[SeenSession]) -> list[Agent]:
    found: dict[str, Agent] = {}
    for each in sessions:
        known = found.get(each.agent, Agent(each.agent, 0, 0, 0, 0, 0.0))
        failed_sessions = known.failed_sessions + (each.label == "failure")
        calls, failed = known.calls + each.calls, known.failed + each.failed
        ended = max(known.ended, each.ended)
        found[each.agent] = Agent(each.agent, known.sessions + 1, failed_sessions, calls, failed, ended)
    return [found[name] for name in sorted(found)]


def trials_of(sessions: Iterable[SeenSession]) -> list[Trial]:
    return [trial for each in sessions for trial in each.trials]


async def seen_sessions(settings: Settings, tenant: str) -> tuple[SeenSession, ...]:
    """Without erased ones. Raises BrokerUnavailable."""
    erased, seen = Erased(), SeenSessions()
    await erased.read(settings.cluster, [tenant])
    async for record in records_of(settings.cluster, topic(tenant, "judgments")):
        seen.take(record.value or b"")
    return seen.newest(erased.count, lambda each: each.is_erased(erased, tenant))


_BY_PLACE = {"place:card": "card", "place:names": "known here"}
# Sources whose hints are about a failure, by which they are known.
_OF_CLASS = ("renamed", "forbidden", "proposed", "sent again")
# Some sources' hints hold names of the call or the place, which are not kept.
_WORDS = {
    "card": "What the place has",
    "known here": "Names that the place has",
    "foreseen": "The call will likely fail",
    "renamed": "A name of the place instead of one that it does not have",
    "forbidden": "Names of the call that do not exist",
    "proposed": "A name that the error itself proposes",
    "sent again": "The same call fails again",
    "looked up": "How to look up what there is",
    "": "A hint that is not known any more",
}


class _Explained(NamedTuple):
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
        self._index, self.entry = index, index.entry
        self.written = index.hints.decisions

    def source(self, id: str, tool: str) -> str:
        if id in self.written:
            return PERSON
        entry = self.entry(id)
        if entry is not None:
            return entry.kind if isinstance(entry, MemoryItem) else "pattern"
        if id in (warning_id(tool, state) for state in get_args(State)):
            return "foreseen"
        return _BY_PLACE.get(id) or self._of_classes.get(id, "")

    def words(self, id: str, source: str) -> str:
        entry, decided = self.entry(id), self.written.get(id)
        if isinstance(entry, MemoryItem):
            return entry.title
        if decided is not None and decided.hint is not None:
            return decided.hint.text
        return _WORDS.get(source, source) if entry is None else entry.template or entry.error_class or entry.level

    @cached_property
    def _of_classes(self) -> dict[str, str]:
        classes = [each.id for each in self._index.patterns.values() if each.level == "class"]
        return {pattern_id(source, id): source for source in _OF_CLASS for id in classes}


def _sources_after(step: Step) -> dict[str, str]:
    if not step.failed or step.pattern is None:
        return {}
    found = {pattern_id(source, step.pattern): source for source in _OF_CLASS}
    return found | {pattern_id("look-up", step.tool, kind_of(step).kind): "looked up"}


def explained(session: Trajectory, names: HintNames) -> Iterator[_Explained]:
    calls = session.calls
    # By hint id: its source, and the names in the failure before it.
    met: dict[str, tuple[str, str]] = {}
    for number, step in enumerate(calls):
        kind = kind_of(step) if step.failed else None
        about = f": {', '.join(kind.names)}" if kind is not None and kind.names else ""
        for ids, withheld in ((step.advice, False), (step.withheld, True)):
            for id in ids:
                entry, source = names.entry(id), names.source(id, step.tool)
                source, words = met.get(id, (source, about if source == "foreseen" else ""))
                text, evidence, sessions, path = names.words(id, source) + words, "", tuple[str, ...](), ""
                if isinstance(entry, MemoryItem):
                    sessions, path = entry.sessions, f"/items/{id}"
                    evidence = f"{count(entry.agents, 'agent')} in {count(entry.support, 'session')}"
                elif (decided := names.written.get(id)) is not None and decided.hint is not None:
                    evidence = f"written by {decided.hint.author}"
                    if decided.hint.written > session.ended:
                        evidence += " since; `fleetlore decisions --history` has the words of then"
                elif entry is not None:
                    path = f"/patterns/{id}"
                    evidence = f"{count(entry.agents, 'agent')} in {count(entry.sessions, 'session')}"
                made = [f"{each.tool} {'failed' if each.failed else 'worked'}" for each in calls[number : number + 2]]
                then = ", then ".join(made)
                yield _Explained(step.sequence, step.tool, id, withheld, source, text, evidence, sessions, path, then)
        met |= {id: (source, about) for id, source in _sources_after(step).items()}
