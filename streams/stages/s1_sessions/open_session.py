"""Assemble one session from its events: a set, whatever the order in which they arrive."""

from math import inf
from typing import Self

import msgspec
from msgspec.structs import astuple, replace

from fleetlore.errors import InvalidEvent
from fleetlore.fingerprint.fingerprint import Failure, argument_shape
from fleetlore.fingerprint.frames import excerpt
from fleetlore.fingerprint.loops import LoopDetector, LoopPattern, key_of, mark_of
from fleetlore.wire import events as ev
from fleetlore.wire.decode import ENDED, MESSAGE, OUTCOME, STARTED, Data, Incoming
from fleetlore.wire.principals import principal_of, session_key
from fleetlore.wire.stats import cached_hash, stable_hash
from fleetlore.wire.trajectory import MAX_LOOPS, MAX_TEXT, Ending, LeftOut, Looped, Step, Trajectory, encode
from models.memory.pattern_state import Observation, Subject
from streams.stage.base import DeadLetter, Effects, Outgoing
from streams.stages.s1_sessions.parse import Arrival
from streams.stages.s1_sessions.steps import (
    MAX_WORD,
    SubjectCounts,
    gaps_of,
    how_it_ended,
    recognise_call,
    recognise_failure,
    step_of,
    subjects_of_loop,
    subjects_of_step,
    text_bytes,
)

__all__ = ["PART_EVENTS"]

# A long session is closed in parts of this many events, which sequences alone determine.
PART_EVENTS = 512
# Upper bounds in bytes: of an event without its texts, and of a session without its events.
_EVENT_BYTES = 900
_SESSION_BYTES = 2_500
# Each way out hands on the whole session so far.
_MOST_WAYS_OUT = 8
# Failed calls compared with later ones.
_MOST_UNCHANGED = 7
_KEPT = ("goal", "task", "guard", "place", "user", "reward", "left_out")


def _after_end() -> InvalidEvent:
    return InvalidEvent("after_end", "its session had ended before it")


class OpenSession(msgspec.Struct):
    """One part of one session. (msgspec copies empty defaults.)

    `first_offset`: of its first record; no commit may pass it. `arrived`: broker time of its newest event: its sender
    cannot choose that. `has_new_failure`: a call failed or looped since the last observations, which is urgent.
    `has_way_out`: a call got past a failure since the last hand-on. `sequences`: event time by sequence, or None if
    only the store knows the event. `ended_at`: later events never belong to the trajectory, in any order of arrival.
    `out_of_order`: dead letters of events before their predecessor, in case the end lies between. `left_out`: calls
    known by counts alone. `persisted_up_to`: a stored judgment covers the events before. `_failed_tools`: whether a
    call of each has worked since, without a result. `_ways_out`: `_MOST_WAYS_OUT` once closed. `_next`: the first
    missing sequence; calls before it were checked for loops. `_unchanged`: calls that failed since one worked.
    `_waiting`: calls after `_next`.
    """

    tenant: str
    session: str
    agent: str
    part: int
    first_offset: int
    last_time: float = 0.0
    arrived: float = 0.0
    goal: str = ""
    task: str = ""
    guard: str = ""
    place: str = ""
    user: str = ""
    ending: Ending | None = None
    reward: float | None = None
    has_new_failure: bool = False
    has_way_out: bool = False
    steps: dict[int, Step] = {}
    sequences: dict[int, float | None] = {}
    ended_at: int | None = None
    size: int = _SESSION_BYTES
    out_of_order: dict[int, DeadLetter] = {}
    persisted_up_to: int = 0
    left_out: tuple[LeftOut, ...] = ()
    loops: dict[LoopPattern, int] = {}
    _counts: dict[str, SubjectCounts] = {}
    _failed_tools: dict[str, bool] = {}
    _ways_out: int = 0
    _unchanged: dict[tuple[str, str], tuple[Step, int]] = {}
    _waiting: dict[int, tuple[int, str]] = {}
    _hashes: tuple[int, int] = (0, 0)  # session, principal
    _next: int = 0
    _detector: LoopDetector = msgspec.field(default_factory=LoopDetector)

    def __post_init__(self) -> None:
        self._next = self.first
        self._hashes = stable_hash(self.id), cached_hash(principal_of(self.agent))

    @property
    def id(self) -> str:
        return session_key(self.agent, self.session, self.part)

    @property
    def first(self) -> int:
        return self.part * PART_EVENTS

    @property
    def complete(self) -> bool:
        return len(self.sequences) == PART_EVENTS or (self.ended_at is not None and self.missing == 0)

    @property
    def missing(self) -> int:
        last = max(self.sequences) if self.ended_at is None else self.ended_at
        return last + 1 - self.first - sum(map(last.__ge__, self.sequences))

    def accept(self, arrival: Arrival) -> bool:
        """Add an event, and return whether it is new. Raises InvalidEvent."""
        event, record = arrival
        sequence, time = event.sequence, event.time.timestamp()
        if sequence in self.sequences and self._is_another(sequence, time):
            raise InvalidEvent("reused_session", f"session {self.session!r} has another event {sequence}")
        if sequence in self.sequences or sequence < self.persisted_up_to:
            return False
        if self.ended_at is not None and sequence > self.ended_at:
            raise _after_end()
        if record.time < inf:  # no broker stamped the record
            self.arrived = max(self.arrived, record.time)
        self.add(event, time)
        if sequence - 1 not in self.sequences and sequence != self.first:
            self.out_of_order[sequence] = arrival.letter(_after_end())
            self.size += len(record.value or b"")
        return True

    def _is_another(self, sequence: int, time: float) -> bool:
        known = self.sequences[sequence]
        if known is not None:
            return time != known
        return not (self.sequences[self.first] or 0.0) <= time <= self.last_time

    def add(self, event: Incoming, time: float) -> None:
        sequence, kind, data = event.sequence, event.type, event.data
        self.sequences[sequence] = time
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
        elif kind == ENDED and (self.ended_at is None or sequence < self.ended_at):
            self.ended_at = sequence
            self.ending = data.outcome
            self.reward = data.reward
        # An action about to run holds only what its outcome repeats.
        self.size += _EVENT_BYTES + (text_bytes(step) if (step := self.steps.get(sequence)) is not None else 0)
        if sequence == self._next:
            # Calls after a gap wait: counts never fall, and a lost call may break a loop.
            self._next += 1
            while self._next in self.sequences:
                if (call := self._waiting.pop(self._next, None)) is not None:
                    self._compare(self._next, *call)
                self._next += 1

    def _take_outcome(self, sequence: int, time: float, data: Data) -> None:
        tool, arguments, result = data.tool or "", data.arguments, data.result
        error_type, message = data.error_type, data.error_message
        if data.guard:
            # A call that broke a rule failed, whatever it returned: otherwise it would be recommended.
            error_type, message = ev.guarded(data.guard)
        shape = argument_shape(arguments)
        call, subjects = recognise_call(tool, shape)
        failure: Failure | None = None
        if message or error_type:
            failure, subjects = recognise_failure(tool, shape, error_type or "", excerpt(message or ""))
            self.has_new_failure = True
        self._count(subjects, time, failed=failure is not None)
        self._look_for_way_out(tool, failure, shown=bool(result))
        self.steps[sequence] = step_of(sequence, data, call, failure, message)
        if len(arguments) > MAX_TEXT or len(result) > MAX_TEXT:
            # Calls that differ after the cut are not equal. Workers must agree on the hash.
            whole = stable_hash(f"{arguments}\x1f{result}")
            arguments = f"{arguments[:MAX_TEXT]}\x1f{whole:013x}"
        if sequence == self._next:
            self._compare(sequence, int(time), arguments)
        else:
            self._waiting[sequence] = int(time), arguments

    def _look_for_way_out(self, tool: str, failure: Failure | None, *, shown: bool) -> None:
        """A call without a result has worked once another follows."""
        if not self._failed_tools and failure is None:
            return
        past = [each for each, worked in self._failed_tools.items() if worked]
        if failure is not None and not failure.transient:
            self._failed_tools[tool] = False
        elif failure is None and tool in self._failed_tools:
            self._failed_tools[tool] = True
            past += [tool] if shown and tool not in past else []
        for each in past:
            if self._failed_tools.get(each):
                del self._failed_tools[each]
        self.has_way_out |= bool(past)

    def _count(self, subjects: tuple[Subject, ...], time: float, *, failed: bool, calls: int = 1) -> bool:
        new, known = False, self._counts
        for subject in subjects:
            counts = known.get(subject.id)
            if counts is None:
                counts = known[subject.id] = SubjectCounts(subject, time, time, self.arrived)
                new = True
            counts.add(subject, time, calls, failed * calls)
        return new

    def _compare(self, sequence: int, time: int, arguments: str) -> None:
        step = self.steps[sequence]
        if (loop := self._detector.take(arguments, step)) is not None:
            # A loop is a separate pattern: its failures are counted already.
            pattern = loop.pattern
            step = self.steps[sequence] = replace(step, loop=pattern.exact)
            self.loops[pattern] = self.loops.get(pattern, 0) + 1
            if self._count(subjects_of_loop(pattern), time, failed=False):
                self.has_new_failure = True
        before = self._remember(step, time, arguments)
        if before is None:
            return
        failed, failed_at = before
        again = 1 if step.failed else 2 + max(0, time - failed_at)
        for id in (failed.family, failed.pattern):
            if id is not None and (counts := self._counts.get(id)) is not None and again > counts.again:
                counts.again, counts.reported = again, False

    def _remember(self, step: Step, time: int, arguments: str) -> tuple[Step, int] | None:
        call = step.tool, key_of(arguments, step.mark)
        before = self._unchanged.pop(call, None)
        if not step.failed:
            self._unchanged.clear()
            return before
        self._unchanged[call] = step, time
        if len(self._unchanged) > _MOST_UNCHANGED:
            del self._unchanged[next(iter(self._unchanged))]
        return before

    def put_observations(self, effects: Effects) -> None:
        for seen in self.take_observations():
            effects.outgoing.append(Outgoing(self.tenant, "observations", seen.subject.id, encode(seen)))

    def take_observations(self) -> list[Observation]:
        self.has_new_failure = False
        ended = how_it_ended("failure", None) if self.guard and self.ending else how_it_ended(self.ending, self.reward)
        observations = []
        for each in self._counts.values():
            if not each.reported or each.ended != ended:
                each.reported, each.ended = True, ended
                observations.append(each.observation(*self._hashes, ended))
        return observations

    def drop_judged(self, known: Trajectory) -> bool:
        """Drop what a stored judgment covers. Return False if the session may become a separate one.

        A stored session that ended but misses events covers none: any event may be a missing one.
        """
        if known.is_open:
            return False  # the log has more of an open session
        if known.missing == 0 and max(self.sequences) < self.first + known.events:
            upto = self.first + known.events
        elif known.ending == "continued":
            return False
        else:
            upto = self.first
        self.persisted_up_to = upto
        self.out_of_order = {each: letter for each, letter in self.out_of_order.items() if each >= upto}
        return True

    def close(self) -> tuple[Trajectory, list[DeadLetter]]:
        """Return the trajectory, and dead letters of events after its end."""
        self.has_way_out, self._ways_out = False, _MOST_WAYS_OUT
        last = max(self.sequences) if self.ended_at is None else self.ended_at
        return self._trajectory(last), [
            self.out_of_order.pop(each) for each in sorted(self.out_of_order) if each > last
        ]

    def way_out(self) -> Trajectory | None:
        if not self.has_way_out or self.missing:
            return None
        self.has_way_out = False
        if self._ways_out >= _MOST_WAYS_OUT:
            return None
        self._ways_out += 1
        return replace(self._trajectory(max(self.sequences)), is_open=True)

    def _trajectory(self, last: int) -> Trajectory:
        known = {each: time for each, time in self.sequences.items() if each <= last}
        gaps = gaps_of(self.first, last, known) if len(known) <= last - self.first else ()
        steps, loops = self.steps, tuple[Looped, ...]()
        if self.ended_at is None or self.missing:
            steps, loops = self._compared()
        return Trajectory(
            **{name: getattr(self, name) for name in ("tenant", "session", "agent", "part", "arrived", *_KEPT)},
            started=self.sequences[self.first] or 0.0,
            ended=self.last_time if last == max(self.sequences) else max(time or 0.0 for time in known.values()),
            ending=self.ending or "continued",
            steps=tuple([step for each, step in sorted(steps.items()) if each in known]),
            events=len(known),
            missing=self.missing,
            gaps=gaps,
            loops=loops,
        )

    def _compared(self) -> tuple[dict[int, Step], tuple[Looped, ...]]:
        steps = dict(self.steps)
        times = {step.sequence: time for step, time in self._unchanged.values()}
        for each, time in (times | {each: time for each, (time, _) in self._waiting.items()}).items():
            steps[each] = replace(steps[each], time=time)
        waiting = [(steps[each], arguments) for each, (_, arguments) in self._waiting.items()]
        for step, arguments in (*waiting, *self._detector.compared()):
            if not step.mark and (mark := mark_of(arguments, step.result)):
                steps[step.sequence] = replace(steps[step.sequence], mark=mark)
        most = sorted(self.loops.items(), key=lambda each: (-each[1], each[0].exact))[:MAX_LOOPS]
        return steps, tuple([Looped(calls, *pattern) for pattern, calls in most])

    @classmethod
    def restored(cls, known: Trajectory, first_offset: int) -> Self:
        """Restore a stored judgment's session, so that it can go on.

        Cut texts stay cut, and left-out calls are a number. Calls to compare have marks in place of texts.
        """
        session = cls(known.tenant, known.session, known.agent, known.part, first_offset, known.ended, known.came)
        session._ways_out = _MOST_WAYS_OUT
        for name in _KEPT:
            setattr(session, name, getattr(known, name))
        gaps = {each for start, end in known.gaps for each in range(start, end)}
        last = session.first + known.events + len(gaps)
        session.sequences = {each: None for each in range(session.first, last) if each not in gaps}
        session.sequences[session.first] = known.started
        if known.ending != "continued":
            session.ending, session.ended_at = known.ending, last - 1
        for step in known.steps:
            session.steps[step.sequence] = step
            session.size += _EVENT_BYTES + text_bytes(step)
            if step.role == "tool":
                session._count(subjects_of_step(step), known.ended, failed=step.failed)
        for kind in known.left_out:
            session._count(subjects_of_step(kind.step), known.ended, failed=kind.step.failed, calls=kind.calls)
        for loop in known.loops:
            calls, *pattern = astuple(loop)
            session.loops[LoopPattern(*pattern)] = calls
            session._count(subjects_of_loop(LoopPattern(*pattern)), known.ended, failed=False, calls=calls)
        for counts in session._counts.values():
            # Times that change nothing when merged with the right ones.
            counts.last, counts.reported = known.started, True
        while session._next in session.sequences:
            session._next += 1
        for step in known.steps:
            if step.role == "tool" and step.sequence < session._next:
                session._detector.take(step.arguments, step)
                session._remember(step, step.time, step.arguments)
            elif step.role == "tool":
                session._waiting[step.sequence] = step.time or int(known.ended), step.arguments
        return session
