"""One open session: what is known of it so far, as a set of events and not as a sequence of arrivals."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import Failure, argument_shape, shaped_call_id, shaped_failure
from fleetlore.fingerprint.loops import Loop, LoopDetector
from fleetlore.stats.bottom_k import stable_hash
from fleetlore.wire import events as ev
from fleetlore.wire.trajectory import MAX_TEXT, Ending, Feedback, Step, Trajectory
from streams.stage.base import DeadLetter
from streams.stage.observations import (
    Observation,
    Subject,
    how_it_ended,
    subjects_of_call,
    subjects_of_failure,
    subjects_of_loop,
    subjects_of_warnings,
)
from streams.stages.s1_sessions.parse import ENDED, MESSAGE, OUTCOME, STARTED, Data, Incoming

# A long session is closed in parts of this many events. Which part an event belongs to follows from its sequence alone,
# so the parts are the same wherever processing starts again.
PART_EVENTS = 512
# Of what a sender fills in and the store keeps: a role, an id of lore, a version; and how many of them.
MAX_WORD = 64
MAX_ADVICE = 64


class SubjectCounts(msgspec.Struct, gc=False):
    """What the session has seen of one subject; changed in place, because every call changes two to five of them."""

    subject: Subject
    first: float
    last: float
    calls: int = 0
    failures: int = 0
    told: bool = False
    ended: int = 0


class OpenSession(msgspec.Struct):
    """One part of one session. (msgspec copies an empty default for every object.)

    Attributes:
        first_offset: of the first record that holds one of its events: no commit may pass it.
        last_time: newest event time, to tell when it has been silent for too long.
        news: a call has failed or got into a loop since the last observations, which other agents should hear of at once.
        suspects: dead letters to be, by sequence: events that came before the one they should have followed.
        behind: events before this sequence lie behind a judgment already, see `streams.stages.s1_sessions.resent`.
        _next: the first event that has not come: up to there calls were looked at for loops.
        _waiting: calls behind it, by sequence: when they ended and with which arguments.
    """

    tenant: str
    session: str
    agent: str
    part: int
    first_offset: int
    first_time: float
    last_time: float
    goal: str = ""
    task: str = ""
    group: str = ""
    guard: str = ""
    ending: Ending | None = None
    reward: float | None = None
    feedback: Feedback | None = None
    news: bool = False
    steps: dict[int, Step] = {}
    sequences: set[int] = set()
    suspects: dict[int, DeadLetter] = {}
    behind: int = 0
    _figures: dict[str, SubjectCounts] = {}
    _waiting: dict[int, tuple[float, str]] = {}
    _next: int = 0
    _detector: LoopDetector = msgspec.field(default_factory=LoopDetector)

    def __post_init__(self) -> None:
        self._next = self.part * PART_EVENTS

    @property
    def id(self) -> str:
        """Of its judgment."""
        return self.session if self.part == 0 else f"{self.session}#{self.part}"

    @property
    def headless(self) -> bool:
        """Its first event has not been seen.

        After a restart this is the tail of a session that was closed before the commit; it was handed on then, whole.
        """
        return self.part * PART_EVENTS not in self.sequences

    @property
    def complete(self) -> bool:
        """Nothing more can come: it said that it ended and no event is missing, or the part is full."""
        return len(self.sequences) == PART_EVENTS or (self.ending is not None and self.missing == 0)

    @property
    def missing(self) -> int:
        """Events up to the last known one that have not come."""
        return max(self.sequences) + 1 - self.part * PART_EVENTS - len(self.sequences)

    def add(self, event: Incoming, time: float) -> None:
        """Take in an event (cleaned, see `streams.stages.s1_sessions.sanitize`) that is not known yet."""
        sequence, kind, data = event.sequence, event.type, event.data
        self.sequences.add(sequence)
        if time < self.first_time:
            self.first_time = time
        if time > self.last_time:
            self.last_time = time
        if data.guard and kind in (OUTCOME, ENDED):
            rule = data.guard[: ev.MAX_RULE]
            self.guard = min(self.guard or rule, rule)
        if kind == OUTCOME:
            self._take_outcome(sequence, time, data)
        elif kind == MESSAGE:
            text, role = data.content or "", data.role or "assistant"
            self.steps[sequence] = Step(sequence=sequence, role=role[:MAX_WORD], result=text[:MAX_TEXT])
        elif kind == STARTED:
            self.goal = (data.goal or "")[:MAX_TEXT]
            self.task = (data.task or "")[: ev.MAX_ID_LENGTH]
            self.group = data.group[: ev.MAX_ID_LENGTH] if isinstance(data.group, str) else ""
        elif kind == ENDED:
            self.ending = data.outcome
            self.reward = data.reward
        # An action about to run says nothing that its outcome does not repeat.
        if sequence == self._next:
            self._look_on()

    def _take_outcome(self, sequence: int, time: float, data: Data) -> None:
        tool, arguments, message = data.tool or "", data.arguments, data.error_message
        shape = argument_shape(arguments)
        call, subjects = _recognise_call(tool, shape)
        error_type = data.error_type
        if data.guard:
            # Whatever it returned and bought: a call that counted as working would be recommended.
            error_type, message = ev.guarded(data.guard)
        failure: Failure | None = None
        if message or error_type:
            failure, subjects = _recognise_failure(tool, shape, error_type or "", message or "")
            self.news = True
        advice = _texts(data.advice) if data.advice else ()
        if advice:
            subjects += tuple(subjects_of_warnings(tool, arguments, advice))
        failed = failure is not None
        figures = self._figures
        for subject in subjects:
            seen = figures.get(subject.id)
            if seen is None:
                seen = figures[subject.id] = SubjectCounts(subject, time, time)
            seen.calls += 1
            seen.failures += failed
            seen.told = False
            if time > seen.last:
                seen.last = time
            elif time < seen.first:
                seen.first = time
        duration, adapter, withheld = data.duration, data.adapter, data.withheld
        # No more than 15 arguments by name: of 16 CPython makes a dictionary first, and a step takes 0.9 µs instead of 0.2.
        step = Step(
            sequence=sequence,
            role="tool",
            tool=tool,
            arguments=arguments[:MAX_TEXT],
            result=data.result[:MAX_TEXT],
            error_type=failure.error_class if failure else None,
            error_message=message[:MAX_TEXT] if message else None,
            duration_seconds=float(duration) if isinstance(duration, int | float) else None,
            call=call,
            family=failure.family if failure else None,
            pattern=failure.class_ if failure else None,
            exact=failure.exact if failure else None,
            transient=failure is not None and failure.transient,
            advice=advice,
        )
        if isinstance(adapter, str):
            step = replace(step, adapter=adapter[:MAX_WORD])
        if withheld:
            step = replace(step, withheld=_texts(withheld))
        self.steps[sequence] = step
        # Two that differ where the step is cut are not the same.
        if len(arguments) > MAX_TEXT or len(data.result) > MAX_TEXT:
            arguments = f"{arguments[:MAX_TEXT]}\x1f{hash((arguments, data.result))}"
        if sequence == self._next:
            self._look(sequence, time, arguments)
        else:
            self._waiting[sequence] = time, arguments

    def _look_on(self) -> None:
        """The event that was missing is there: go on to the next one that is.

        What lies behind a gap waits: two equal calls with another one lost between them are no loop, and what is counted
        here is merged by maximum and never taken back.
        """
        self._next += 1
        while self._next in self.sequences:
            if (call := self._waiting.pop(self._next, None)) is not None:
                self._look(self._next, *call)
            self._next += 1

    def _look(self, sequence: int, time: float, arguments: str) -> None:
        loop = self._detector.take(arguments, self.steps[sequence])
        if loop is not None:
            self._take_loop(sequence, time, loop)

    def _take_loop(self, sequence: int, time: float, loop: Loop) -> None:
        """Nothing of it is a failure: what failed was counted as that."""
        pattern = loop.pattern
        self.steps[sequence] = replace(self.steps[sequence], loop=pattern.exact)
        for subject in subjects_of_loop(pattern):
            seen = self._figures.get(subject.id)
            if seen is None:
                seen = self._figures[subject.id] = SubjectCounts(subject, time, time)
                self.news = True
            seen.calls += 1
            seen.told = False
            seen.first, seen.last = min(seen.first, time), max(seen.last, time)

    def take_observations(self) -> list[Observation]:
        """What has changed since the last call: more was seen of a subject, or it became known how the session ended."""
        self.news = False
        ended = how_it_ended("failure", None) if self.guard and self.ending else how_it_ended(self.ending, self.reward)
        session = stable_hash(self.id)
        agent = _agent_hash(self.agent)
        observations = []
        for each in self._figures.values():
            if not each.told or each.ended != ended:
                each.told, each.ended = True, ended
                name = self.agent if each.subject.level == "tool" else ""
                observations.append(
                    Observation(
                        each.subject, session, agent, each.calls, each.failures, each.first, each.last, ended, name
                    )
                )
        return observations

    def follows(self, sequence: int) -> bool:
        """The event before `sequence` is known, or there is none."""
        return sequence - 1 in self.sequences or sequence == self.part * PART_EVENTS

    def close(self) -> tuple[Trajectory, list[DeadLetter]]:
        """The session as a trajectory, and the events that jumped over a gap.

        An event behind a gap is left out of the trajectory, unless a later arrival filled the gap; the events after it are
        in. The session's end is kept in any case, for without it the whole session would say nothing.
        """
        jumped = {sequence for sequence in self.suspects if not self.follows(sequence) and sequence in self.steps}
        trajectory = Trajectory(
            tenant=self.tenant,
            session=self.session,
            agent=self.agent,
            task=self.task,
            goal=self.goal,
            started=self.first_time,
            ended=self.last_time,
            ending=self.ending or "continued",
            reward=self.reward,
            steps=tuple([step for sequence, step in sorted(self.steps.items()) if sequence not in jumped]),
            part=self.part,
            events=len(self.sequences) - len(jumped),
            missing=self.missing,
            feedback=self.feedback,
            group=self.group,
            guard=self.guard,
        )
        return trajectory, [self.suspects[sequence] for sequence in sorted(jumped)]


_agent_hash = lru_cache(maxsize=16_384)(stable_hash)


@lru_cache(maxsize=16_384)
def _recognise_call(tool: str, shape: str) -> tuple[str, tuple[Subject, ...]]:
    """The call's id and its subjects. Cached: a fleet makes few kinds of calls, and many of each."""
    call = shaped_call_id(tool, shape)
    return call, subjects_of_call(tool, call, shape)


@lru_cache(maxsize=16_384)
def _recognise_failure(tool: str, shape: str, error_type: str, message: str) -> tuple[Failure, tuple[Subject, ...]]:
    """The failure and all subjects of a call that failed."""
    failure = shaped_failure(tool, shape, error_type, message)
    call, subjects = _recognise_call(tool, shape)
    return failure, subjects + subjects_of_failure(failure, call)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([each[:MAX_WORD] for each in value if isinstance(each, str)][:MAX_ADVICE])
