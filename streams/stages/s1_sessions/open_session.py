"""Assemble one session from its events: a set, whatever the order in which they arrive."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import MAX_MESSAGE, Failure, argument_shape, shaped_call_id, shaped_failure
from fleetlore.fingerprint.loops import LoopDetector
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire import events as ev
from fleetlore.wire.trajectory import MAX_TEXT, Ending, Feedback, Step, Trajectory, clip
from models.memory.pattern_state import Subject
from streams.stage.base import DeadLetter
from streams.stage.observations import (
    Observation,
    how_it_ended,
    subjects_of_call,
    subjects_of_failure,
    subjects_of_loop,
    subjects_of_warnings,
)
from streams.stages.s1_sessions.parse import ENDED, MESSAGE, OUTCOME, STARTED, Data, Incoming

# A long session is closed in parts of this many events. An event's part follows from its sequence alone, so the parts
# are the same wherever processing starts again.
PART_EVENTS = 512
# Bounds of stored fields that the sender fills in: length of a role, an id of lore or a version; number of ids.
MAX_WORD = 64
MAX_ADVICE = 64


class SubjectCounts(msgspec.Struct, gc=False):
    """Counts of one subject in the session; mutable, because every call changes two to five of them."""

    subject: Subject
    first: float
    last: float
    calls: int = 0
    failures: int = 0
    reported: bool = False
    ended: int = 0


class OpenSession(msgspec.Struct):
    """One part of one session. (msgspec copies an empty default for every object.)

    Attributes:
        first_offset: of the first record that holds one of its events: no commit may pass it.
        last_time: newest event time, to tell when it has been silent for too long.
        has_new_failure: a call has failed or got into a loop since the last observations, and other agents must know at
            once.
        out_of_order: by sequence, the dead letters of events that arrived before their predecessor.
        persisted_up_to: a stored judgment covers the events before this sequence, see `SessionsStage`.
        _next: the first sequence that has not arrived; calls before it were checked for loops.
        _waiting: calls after it, by sequence: when they ended and with which arguments.
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
    place: str = ""
    user: str = ""
    agent_group: str = ""
    definitions: str = ""
    ending: Ending | None = None
    reward: float | None = None
    feedback: Feedback | None = None
    has_new_failure: bool = False
    steps: dict[int, Step] = {}
    sequences: set[int] = set()
    out_of_order: dict[int, DeadLetter] = {}
    persisted_up_to: int = 0
    _counts: dict[str, SubjectCounts] = {}
    _waiting: dict[int, tuple[float, str]] = {}
    _next: int = 0
    _detector: LoopDetector = msgspec.field(default_factory=LoopDetector)

    def __post_init__(self) -> None:
        self._next = self.part * PART_EVENTS

    @property
    def id(self) -> str:
        """Id of its judgment."""
        return self.session if self.part == 0 else f"{self.session}#{self.part}"

    @property
    def missing_start(self) -> bool:
        """Whether its first event has not arrived.

        After a restart this is the tail of a session that was closed before the commit; it was handed on then, whole.
        """
        return self.part * PART_EVENTS not in self.sequences

    @property
    def complete(self) -> bool:
        """Whether no more events can come: it has ended and none is missing, or the part is full."""
        return len(self.sequences) == PART_EVENTS or (self.ending is not None and self.missing == 0)

    @property
    def missing(self) -> int:
        """Number of events before the last known one that have not arrived."""
        return max(self.sequences) + 1 - self.part * PART_EVENTS - len(self.sequences)

    def add(self, event: Incoming, time: float) -> None:
        """Add an event (cleaned, see `streams.stages.s1_sessions.sanitize`) that is not known yet."""
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
            self.place = (data.place or "")[: ev.MAX_ID_LENGTH]
            self.user = (data.user or "")[:MAX_WORD]
            self.agent_group = (data.agent_group or "")[: ev.MAX_ID_LENGTH]
            self.definitions = (data.definitions or "")[:MAX_WORD]
            self.group = data.group[: ev.MAX_ID_LENGTH] if isinstance(data.group, str) else ""
        elif kind == ENDED:
            self.ending = data.outcome
            self.reward = data.reward
        # An action about to run says nothing that its outcome does not repeat.
        if sequence == self._next:
            self._advance()

    def _take_outcome(self, sequence: int, time: float, data: Data) -> None:
        tool, arguments, result = data.tool or "", data.arguments, data.result
        error_type, message = data.error_type, data.error_message
        if data.guard:
            # Whatever the call returned and bought: one that counted as working would be recommended.
            error_type, message = ev.guarded(data.guard)
        shape = argument_shape(arguments)
        call, subjects = _recognise_call(tool, shape)
        failure: Failure | None = None
        if message or error_type:
            failure, subjects = _recognise_failure(tool, shape, error_type or "", (message or "")[:MAX_MESSAGE])
            self.has_new_failure = True
        advice = _texts(data.advice) if data.advice else ()
        if advice:
            subjects += tuple(subjects_of_warnings(tool, arguments, advice))
        self._count(subjects, time, failed=failure is not None)
        self.steps[sequence] = _step(sequence, data, call, failure, message, advice)
        if len(arguments) > MAX_TEXT or len(result) > MAX_TEXT:
            # The step is cut; two calls that differ after the cut are not equal.
            arguments = f"{arguments[:MAX_TEXT]}\x1f{hash((arguments, result))}"
        if sequence == self._next:
            self._detect_loop(sequence, time, arguments)
        else:
            self._waiting[sequence] = time, arguments

    def _count(self, subjects: tuple[Subject, ...], time: float, *, failed: bool) -> bool:
        """Count one call for its subjects; return whether any of them is new."""
        new, known = False, self._counts
        for subject in subjects:
            counts = known.get(subject.id)
            if counts is None:
                counts = known[subject.id] = SubjectCounts(subject, time, time)
                new = True
            counts.calls += 1
            counts.failures += failed
            counts.reported = False
            if time > counts.last:
                counts.last = time
            elif time < counts.first:
                counts.first = time
        return new

    def _advance(self) -> None:
        """Go on to the next missing event, now that this one has arrived.

        Calls after a gap wait: two equal calls with another one lost between them are no loop, and these counts are
        merged by maximum and never taken back.
        """
        self._next += 1
        while self._next in self.sequences:
            if (call := self._waiting.pop(self._next, None)) is not None:
                self._detect_loop(self._next, *call)
            self._next += 1

    def _detect_loop(self, sequence: int, time: float, arguments: str) -> None:
        """Count a loop as a pattern of its own. It is no failure: failed calls were counted as that."""
        step = self.steps[sequence]
        loop = self._detector.take(arguments, step)
        if loop is not None:
            pattern = loop.pattern
            self.steps[sequence] = replace(step, loop=pattern.exact)
            if self._count(subjects_of_loop(pattern), time, failed=False):
                self.has_new_failure = True

    def take_observations(self) -> list[Observation]:
        """Return the counts that have changed since the last call; all, where it became known how the session ended."""
        self.has_new_failure = False
        ended = how_it_ended("failure", None) if self.guard and self.ending else how_it_ended(self.ending, self.reward)
        session = stable_hash(self.id)
        agent = _agent_hash(self.agent)
        observations = []
        for each in self._counts.values():
            if not each.reported or each.ended != ended:
                each.reported, each.ended = True, ended
                name = self.agent if each.subject.level == "tool" else ""
                observations.append(
                    Observation(
                        each.subject, session, agent, each.calls, each.failures, each.first, each.last, ended, name
                    )
                )
        return observations

    def follows(self, sequence: int) -> bool:
        """Whether the event before `sequence` is known, or there is none."""
        return sequence - 1 in self.sequences or sequence == self.part * PART_EVENTS

    def close(self) -> tuple[Trajectory, list[DeadLetter]]:
        """Make the trajectory, and the dead letters of events after a gap.

        The first event after a gap is left out of the trajectory, unless a later arrival has filled the gap. The
        session's end is kept in any case, for without it the whole session would say nothing.
        """
        left_out = {each for each in self.out_of_order if not self.follows(each) and each in self.steps}
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
            steps=tuple([step for sequence, step in sorted(self.steps.items()) if sequence not in left_out]),
            part=self.part,
            events=len(self.sequences) - len(left_out),
            missing=self.missing,
            feedback=self.feedback,
            group=self.group,
            guard=self.guard,
            place=self.place,
            user=self.user,
            agent_group=self.agent_group,
            definitions=self.definitions,
        )
        return trajectory, [self.out_of_order[sequence] for sequence in sorted(left_out)]


_agent_hash = lru_cache(maxsize=16_384)(stable_hash)


def _step(
    sequence: int, data: Data, call: str, failure: Failure | None, message: str | None, advice: tuple[str, ...]
) -> Step:
    duration = data.duration
    # At most 15 arguments by name: for 16 CPython makes a dictionary first, and a step takes 0.9 µs instead of 0.2.
    step = Step(
        sequence=sequence,
        role="tool",
        tool=data.tool or "",
        arguments=clip(data.arguments, MAX_TEXT),
        result=clip(data.result, MAX_TEXT),
        error_type=failure.error_class if failure else None,
        error_message=clip(message, MAX_TEXT) if message else None,
        duration_seconds=float(duration) if isinstance(duration, int | float) else None,
        call=call,
        family=failure.family if failure else None,
        pattern=failure.class_ if failure else None,
        exact=failure.exact if failure else None,
        transient=failure is not None and failure.transient,
        advice=advice,
    )
    if isinstance(data.adapter, str):
        step = replace(step, adapter=data.adapter[:MAX_WORD])
    if data.withheld:
        step = replace(step, withheld=_texts(data.withheld))
    return step


@lru_cache(maxsize=16_384)
def _recognise_call(tool: str, shape: str) -> tuple[str, tuple[Subject, ...]]:
    """Return the call's id and its subjects. Cached: a fleet makes few kinds of calls, and many of each."""
    call = shaped_call_id(tool, shape)
    return call, subjects_of_call(tool, call, shape)


@lru_cache(maxsize=16_384)
def _recognise_failure(tool: str, shape: str, error_type: str, message: str) -> tuple[Failure, tuple[Subject, ...]]:
    """Return the failure and all subjects of a call that failed."""
    failure = shaped_failure(tool, shape, error_type, message)
    call, subjects = _recognise_call(tool, shape)
    return failure, subjects + subjects_of_failure(failure, call)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([each[:MAX_WORD] for each in value if isinstance(each, str)][:MAX_ADVICE])
