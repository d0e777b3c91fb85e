"""Replay logged sessions call by call with the advice on each, and measure what that advice is worth."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from fleetlore.advice.advice import Advice
from fleetlore.advice.gate import Tip
from fleetlore.advice.sources import WAYS_OUT
from fleetlore.calls.call import KEYWORDS, text_of
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.fingerprint.names import FailureKind, failure_kind
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.stats import stable_hash
from fleetlore.words import names_of

__all__ = [
    "Call", "CallLog", "Heard", "Told", "advice_rows", "known_errors", "split", "told",
]  # fmt: skip

# Entries of logs that are no calls: the end of a session, a verdict on it, a call that was never made.
PSEUDO: Final = frozenset({"submit", "blocked", "invalid_action", "propose_solution", "your_code_here"})


class Told(NamedTuple):
    named: FailureKind | None  # by a warning
    way_out: str
    text: str
    shown: tuple[Tip, ...] = ()


def told(advice: Advice) -> Told:
    warning = next((tip for tip in advice.tips if tip.chance is not None), None)
    way_out = next((tip for tip in advice.tips if tip.source in WAYS_OUT and tip.chance is None), None)
    return Told(
        named=None if warning is None else FailureKind(warning.kind, warning.rejected),
        way_out="" if way_out is None else way_out.text,
        text=sys.intern(advice.text),
        shown=advice.tips,
    )


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    text: str
    said: str
    failure: Failure | None
    before: str = ""

    @property
    def kind(self) -> FailureKind | None:
        failure = self.failure
        return failure and failure_kind(failure.error_class, failure.template, self.said, text_of(self.text))

    @property
    def passes(self) -> bool:
        """Whether it failed for a transient reason. It is then neither a success nor a failure to warn of."""
        return self.failure is not None and self.failure.transient

    @property
    def pseudo(self) -> str:
        for name in (self.tool, self.text):
            if (plain := plain_text(name)) in PSEUDO:
                return plain
        return ""


class Turn(NamedTuple):
    place: int
    call: Call


@dataclass(frozen=True, slots=True)
class CallLog:
    session: str
    source: str
    agent: str
    task: str
    goal: str
    failed: bool | None
    calls: tuple[Call, ...]

    def turns(self) -> Iterator[Turn]:
        return (Turn(place, call) for place, call in enumerate(self.calls) if not call.pseudo)


@dataclass(frozen=True, slots=True)
class Heard:
    """Advice shown at a session's start, before each call, and after each failed one (by its index)."""

    log: CallLog
    start: Told
    before: tuple[Told, ...]
    after: dict[int, Told]

    @property
    def characters(self) -> int:
        return sum(len(each.text) for each in (self.start, *self.before, *self.after.values()))


def plain_text(text: str) -> str:
    return " ".join(text.split()).rstrip("; ").casefold()


L = TypeVar("L", LoggedSession, CallLog)


def split(sessions: Sequence[L], seed: int, share: float) -> tuple[list[L], list[L]]:
    """Hold out `share` of each source's agents and tasks, drawn by hash. Raises ConfigError: none is left.

    A source with one agent (or task) keeps it. Set-ups of one model (`model/…`) are held out together.
    """
    held: set[tuple[str, str, str]] = set()
    for source in {each.source for each in sessions}:
        own = [each for each in sessions if each.source == source]
        for kind, names in (("agent", {each.agent for each in own}), ("task", {each.task for each in own})):
            drawn = sorted(names, key=lambda name: (stable_hash(f"{seed}/{kind}/{source}/{name}"), name))
            count = max(1, round(share * len(drawn))) if len(drawn) > 1 else 0
            held |= {(kind, source, name) for name in (_models(drawn, count) if kind == "agent" else drawn[:count])}
    train: list[L] = []
    test: list[L] = []
    for each in sessions:
        out = {("agent", each.source, each.agent), ("task", each.source, each.task)} & held
        (test if out else train).append(each)
    if not train or not test:
        raise ConfigError("too few agents and tasks to hold some out: one part would be empty")
    return train, test


def slices_of(train: Sequence[CallLog], test: Sequence[CallLog]) -> list[str]:
    """Return each test session's slice, by what its source's training sessions know.

    A: a known task, a new agent; T: a known agent, a new task; AT: both new; K: both known; S: a new source.
    """
    agents = {(case.source, case.agent) for case in train}
    tasks = {(case.source, case.task) for case in train}
    sources = {source for source, _ in agents}
    found = []
    for case in test:
        new = "A" * ((case.source, case.agent) not in agents) + "T" * ((case.source, case.task) not in tasks)
        found.append(new or "K" if case.source in sources else "S")
    return found


def _models(agents: Sequence[str], most: int) -> list[str]:
    setups: dict[str, list[str]] = {}
    for agent in agents:
        setups.setdefault(agent.partition("/")[0], []).append(agent)
    if len(setups) < 2:
        return list(agents[:most])
    held: list[str] = []
    for own in setups.values():
        if len(held) + len(own) <= most:
            held += own
    return held or min(setups.values(), key=len) if most else []


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class _WayOut(NamedTuple):
    """Advice after a failure, and those words of the way out that the session had not seen and could not guess.

    A way out is the next call of the same tool that worked. The advice holds it if it holds all these words.
    """

    told: str
    new: frozenset[str]


def ways_out(heard: Heard) -> Iterator[_WayOut]:
    log, taken = heard.log, set[int]()
    seen = names_of(log.goal)
    turns = list(log.turns())
    for number, turn in enumerate(turns):
        call = turn.call
        seen |= names_of(f"{call.before}\n{call.text}\n{call.said}")
        if call.failure is not None and not call.passes:
            later = (each for each in turns[number + 1 :] if each.call.tool == call.tool and each.call.failure is None)
            found = next(later, None)
            if found is not None and found.place not in taken:
                taken.add(found.place)
                new = names_of(found.call.text) - seen - KEYWORDS
                if new:
                    # Advice shown before the call is not shown again after it.
                    said = heard.after[turn.place].way_out or heard.before[turn.place].way_out
                    yield _WayOut(said, frozenset(new))


def hit_rate(cases: Sequence[_WayOut]) -> float | None:
    return mean([each.new <= names_of(each.told) for each in cases if each.told])


def advice_rows(train: Sequence[CallLog], heard: Sequence[Heard]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, list[Heard]]] = defaultdict(lambda: defaultdict(list))
    for each, slice_ in zip(heard, slices_of(train, [each.log for each in heard]), strict=True):
        found[each.log.source][slice_].append(each)
    return {
        source: {slice_: _advice_row(slices[slice_]) for slice_ in sorted(slices)}
        for source, slices in sorted(found.items())
    }


def _advice_row(heard: Sequence[Heard]) -> dict[str, Any]:
    """Figures of the advice over some calls. An undefined figure is None.

    fail_warned, fail_unwarned: P(fails) of calls with and without a warning. way_out_said: share of the ways out with
    advice. way_out: share of these whose advice holds the way out. chars: characters shown.
    """
    calls = [(turn, each.before[turn.place]) for each in heard for turn in each.log.turns() if not turn.call.passes]
    failed = [turn.call.failure is not None for turn, _ in calls]
    warned = [told.named is not None for _, told in calls]
    pairs = list(zip(failed, warned, strict=True))
    outs = [out for each in heard for out in ways_out(each)]
    return {
        "calls": len(calls),
        "failed": mean(failed),
        "warned": mean(warned),
        "fail_warned": mean([failure for failure, warning in pairs if warning]),
        "fail_unwarned": mean([failure for failure, warning in pairs if not warning]),
        "way_out_said": mean([bool(out.told) for out in outs]),
        "way_out": hit_rate(outs),
        "chars_call": mean([len(told.text) for _, told in calls]),
        "chars_session": mean([each.characters for each in heard]),
    }


def known_errors(train: Sequence[CallLog], test: Sequence[CallLog]) -> dict[str, dict[str, float | None]]:
    agents: dict[str, set[str]] = defaultdict(set)
    for log in train:
        for failure in _failures(log):
            for id in (failure.family, failure.class_, failure.exact):
                agents[id].add(log.agent)

    def known(logs: Sequence[CallLog], id_of: Callable[[Failure], str]) -> float | None:
        return mean([bool(agents[id_of(failure)] - {log.agent}) for log in logs for failure in _failures(log)])

    levels = {"family": "family", "class": "class_", "exact": "exact"}
    return {
        source: {level: known(logs, attrgetter(name)) for level, name in levels.items()}
        for source in sorted({log.source for log in test})
        if (logs := [log for log in test if log.source == source])
    }


def _failures(log: CallLog) -> list[Failure]:
    return [call.failure for call in log.calls if call.failure is not None]
