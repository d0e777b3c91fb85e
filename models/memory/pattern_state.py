"""Merge observations into the state behind a row of the `patterns` topic: a subject and samples of its sessions."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import msgspec
import orjson
from msgspec import Meta
from msgspec.structs import asdict
from msgspec.structs import replace as replace_fields

from fleetlore.wire.lore import NAMED_BACKERS, PATTERN_LEVELS, Figures, Level, Pattern
from fleetlore.wire.stats import HASHES
from fleetlore.wire.trajectory import Count, Hash, Moment
from models.memory.bottom_k import AgentHash, AgentSample, CountSample, FirstSeen, SessionCounts
from models.memory.pattern_parts import Timeline, Wordings, Words

__all__ = ["Observation", "PatternState", "Subject"]

# Sessions kept of a failure pattern. The largest state takes 63 kB; the store's fields take 65,535 bytes.
PATTERN_SESSIONS = 256
# A call's health is a rate over all calls, so it is exact for longer.
_CALL_SESSIONS = 512

HOUR_SECONDS = 3_600.0
DAY_SECONDS = 86_400.0
HOURS, _HOURS_SESSIONS = 24, 384
DAYS, _DAYS_SESSIONS = 14, 448
_LATELY_SECONDS = 120.0
_QUARTER_SECONDS = 15.0  # of a minute
_QUARTERS, _QUARTERS_SESSIONS = 120, 240
# Failures at most this many quarters apart belong to one outage: agents that were told to wait make no calls.
_OUTAGE_GAP, _MOST_OUTAGES = 16, 8
_NO_TIMELINE = Timeline(HOUR_SECONDS, 0, 0)


class Subject(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    id: str
    level: Level
    tool: str
    error_class: str = ""
    template: str = ""
    shape: str = ""
    parent: str | None = None
    call: str | None = None
    transient: bool = False

    @property
    def words(self) -> Words:
        """The fields that may differ within one id: an error with a code has one id in any words."""
        return not self.transient, self.template, self.error_class, self.parent or ""


class Observation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subject with the cumulative counts of one session: a value of the topic `observations`.

    `session`, `agent`: hashes. `first`, `last`: event times. `ended`, `again`: as in `SessionCounts`. `unused`: keeps
    the position of later fields. `arrived`: broker time of its first event, or 0 from earlier releases.
    """

    subject: Subject
    session: Hash
    agent: Hash
    calls: Count
    failures: Count
    first: Moment
    last: Moment
    ended: Annotated[int, Meta(ge=0, le=2)] = 0
    unused: str = ""
    arrived: Moment = 0.0
    again: Count = 0

    def __post_init__(self) -> None:
        if self.failures > self.calls:
            raise ValueError(f"{self.failures} failures of {self.calls} calls")


@dataclass(slots=True)
class PatternState:
    """Single writer per id. It follows from the set of observations.

    `subject`: in the words of most agents, so none speaks for all. `timelines`: `hours` and `days` of tools and
    families, where a session counts in the period of its first observation; `quarters` of transient classes and exact
    patterns, where it counts in those of its first and of each last one.
    """

    subject: Subject
    sample: CountSample = field(init=False)
    first_seen: FirstSeen = field(default_factory=FirstSeen, init=False)
    last: float = field(default=0.0, init=False)
    timelines: dict[str, Timeline] = field(default_factory=dict, init=False)
    wordings: Wordings = field(default_factory=Wordings, init=False)
    # The two agents that made a kind of call last, and when: one alone may claim that it works again.
    callers: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        level = self.subject.level
        self.sample = CountSample(_CALL_SESSIONS if level == "call" else PATTERN_SESSIONS)
        if level in ("tool", "family"):
            self.timelines["hours"] = Timeline(HOUR_SECONDS, HOURS, _HOURS_SESSIONS)
            self.timelines["days"] = Timeline(DAY_SECONDS, DAYS, _DAYS_SESSIONS)
        if self.subject.transient:
            self._time_outages()

    def _time_outages(self) -> None:
        if self.subject.level in ("class", "exact"):
            self.timelines.setdefault(
                "quarters", Timeline(_QUARTER_SECONDS, _QUARTERS, _QUARTERS_SESSIONS, AgentSample)
            )

    def add(
        self,
        session: int,
        seen: SessionCounts,
        first: float,
        last: float,
        subject: Subject | None = None,
        arrived: float = 0.0,
    ) -> bool:
        """Merge what one session saw from `first` to `last`. Return whether anything changed."""
        subject = subject or self.subject
        changed = self._describe(subject, seen.agent, session)
        changed |= self.sample.add(session, seen)
        for name, timeline in self.timelines.items():
            if name != "quarters":
                changed |= timeline.add(session, seen, first)
        if subject.transient and "quarters" in self.timelines:
            for time in (first, last):
                if arrived - time <= _OUTAGE_GAP * _QUARTER_SECONDS:  # an agent could invent older outages
                    changed |= self.timelines["quarters"].add(session, seen, time)
        changed |= self._note_caller(seen.agent, last)
        if last > self.last:
            self.last, changed = last, True
        changed |= self.first_seen.note(seen.agent, arrived or first)
        return changed

    def _note_caller(self, agent: int, last: float) -> bool:
        before = self.callers
        if self.subject.level == "call" and last > before.get(agent, 0.0):
            found = sorted({**before, agent: last}.items(), key=lambda each: (-each[1], each[0]))
            self.callers = dict(found[:2])
        return self.callers != before

    def join(self, other: Self) -> None:
        for agent, last in other.callers.items():
            self._note_caller(agent, last)
        if "quarters" in other.timelines:
            self._time_outages()
        self.sample.merge(other.sample)
        for name, timeline in other.timelines.items():
            self.timelines[name].restore(timeline.to_rows(), timeline.k)
        for agent, moment in other.first_seen.items():
            self.first_seen.note(agent, moment)
        for agent, (words, sessions) in other.wordings.items():
            for session in sessions:
                self.wordings.note(agent, session, words)
        if self.wordings:
            self._choose_words()
        self.last = max(self.last, other.last)

    def _describe(self, subject: Subject, agent: int, session: int) -> bool:
        if subject.transient:
            self._time_outages()
        if subject.level not in PATTERN_LEVELS:
            return False  # its words follow from its id
        changed = self.wordings.note(agent, session, subject.words)
        if changed:
            self._choose_words()
        return changed

    def _choose_words(self) -> None:
        if (words := self.wordings.of_most) is None:
            self.subject = replace_fields(self.subject, template="")
            return
        lasting, template, error_class, parent = words
        self.subject = replace_fields(
            self.subject, transient=not lasting, template=template, error_class=error_class, parent=parent or None
        )

    @property
    def samples(self) -> list[CountSample]:
        return [self.sample, *(sample for each in self.timelines.values() for sample in each.samples.values())]

    @property
    def size(self) -> int:
        return len(self.wordings) + sum(len(sample) for sample in self.samples)

    @property
    def sessions(self) -> set[int]:
        return self.wordings.sessions.union(*(sample.kept for sample in self.samples))

    def discard(self, sessions: Collection[int]) -> bool:
        """Remove sessions and what only they said. Return whether any was there."""
        is_worded = self.wordings.discard(sessions)
        if is_worded:
            self._choose_words()
        samples = [self.sample.discard(sessions), *(each.discard(sessions) for each in self.timelines.values())]
        if not is_worded and not any(samples):
            return False
        agents = {seen.agent for sample in self.samples for seen in sample.kept.values()}
        self.first_seen = FirstSeen(each for each in self.first_seen.items() if each[0] in agents)
        self.callers = {agent: last for agent, last in self.callers.items() if agent in agents}
        if not self.sample.kept:
            self.last = 0.0
        return True

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        kept = {session for sample in self.samples for session, seen in sample.kept.items() if seen.agent in agents}
        return kept | self.wordings.sessions_of(agents)

    def without(self, agents: Collection[int]) -> Self:
        gone = self.sessions_of(agents) if agents else ()
        if not gone:
            return self
        left = self.restore("", self.hidden_json())
        left.discard(gone)
        return left

    def to_pattern(self, tenant: str) -> Pattern:
        sample = self.sample
        figures = sample.totals
        hours, days, quarters = (self.timelines.get(name, _NO_TIMELINE) for name in ("hours", "days", "quarters"))
        full: dict[Figures, bool] = {"all": sample.is_full, "hours": hours.is_estimated, "days": days.is_estimated}
        return Pattern(
            **asdict(self.subject),
            tenant=tenant,
            **figures._asdict(),
            first_seen=self.first_seen.moment,
            last_seen=self.last,
            last_but_one=min(self.callers.values()) if len(self.callers) > 1 else 0.0,
            other_words=self.wordings.others(self.subject.words),
            again=tuple(self.sample.resends or ()),
            agents_lately=len({seen.agent for seen in quarters.seen(self.last - _LATELY_SECONDS)}),
            outages=self._outages(),
            hours=hours.periods,
            days=days.periods,
            estimated=tuple(name for name, is_estimated in full.items() if is_estimated),
            balanced=self._balanced,
            seen_by=tuple(sorted({seen.agent for seen in sample.seen})) if figures.agents <= NAMED_BACKERS else (),
        )

    @property
    def _balanced(self) -> tuple[int, ...]:
        if self.subject.level not in ("tool", "call"):
            return ()
        hours = self.timelines.get("hours", _NO_TIMELINE)
        return (hours.newest if hours.samples else self.sample).balanced

    def _outages(self) -> tuple[tuple[int, int, int], ...]:
        runs: list[tuple[dict[int, int], dict[int, int]]] = []  # the first and last quarter of each agent
        for number, sample in sorted(self.timelines.get("quarters", _NO_TIMELINE).samples.items()):
            agents = dict.fromkeys([seen.agent for seen in sample.seen], number)
            if runs and number - max(runs[-1][1].values()) <= _OUTAGE_GAP:
                first, last = runs.pop()
                runs.append((agents | first, last | agents))
            elif agents:
                runs.append((agents, agents))
        found, width = [], int(_QUARTER_SECONDS)
        # Those of several agents first: one alone could fill all places.
        for first, last in sorted(reversed(runs), key=lambda run: len(run[0]) == 1)[:_MOST_OUTAGES]:
            # No agent alone begins or ends an outage that others met. It can still join two of them.
            began = sorted(first.values())[:2][-1]
            ended = max(began, sorted(last.values())[-2:][0])
            found.append((began * width, (ended + 1 - began) * width, len(first)))
        return tuple(sorted(found, reverse=True))

    @classmethod
    def restore(cls, body: str, state: str) -> Self:
        """Without a `body`, the public form is in `state` (`hidden_json`)."""
        kept = _read_kept(state)
        pattern = Pattern.from_json(body.encode() or kept.hidden.encode())
        restored = cls(Subject(*(getattr(pattern, name) for name in Subject.__struct_fields__)))
        restored.sample = CountSample.from_rows(kept.sessions, restored.sample.k)
        restored.first_seen, restored.last = FirstSeen(kept.first), pattern.last_seen
        restored.wordings, restored.callers = Wordings.from_rows(kept.words), dict(kept.callers)
        if kept.quarters is not None:
            restored._time_outages()
        for name, timeline in restored.timelines.items():
            timeline.restore(getattr(kept, name) or (), kept.k.get(name, timeline.room // timeline.kept))
        return restored

    def hidden_json(self) -> str:
        """`state_json` with the subject, for a row without a public form."""
        shown = replace(self.to_pattern(""), hours=(), days=())
        return self.state_json(hidden=shown.to_json().decode())

    def state_json(self, **kept: object) -> str:
        kept["sessions"], kept["first"] = self.sample.to_rows(), sorted(self.first_seen.items())
        kept |= {name: timeline.to_rows() for name, timeline in self.timelines.items()}
        if self.timelines:
            kept["k"] = {name: timeline.k for name, timeline in self.timelines.items()}
        if self.wordings:
            kept["words"] = self.wordings.to_rows()
        if self.callers:
            kept["callers"] = sorted(self.callers.items())
        return orjson.dumps(kept).decode()


_Number = Annotated[int, Meta(ge=-HASHES, lt=HASHES)]


class _Kept(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The form of `state_json`."""

    sessions: list[list[_Number]]
    first: list[tuple[AgentHash, Moment]]
    hours: list[list[_Number]] = []
    days: list[list[_Number]] = []
    quarters: list[list[_Number]] | None = None
    k: dict[str, Annotated[int, Meta(ge=1, le=512)]] = {}
    words: list[tuple[bool, str, str, str, list[tuple[AgentHash, list[Hash]]]]] = []
    callers: Annotated[list[tuple[AgentHash, Moment]], Meta(max_length=2)] = []
    hidden: str = ""


_read_kept = msgspec.json.Decoder(_Kept).decode
