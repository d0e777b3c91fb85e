"""One open session: what is known of it so far, as a set of events and not as a sequence of arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from fleetlore import events as ev
from fleetlore.errors import InvalidEvent
from fleetlore.events import Event
from fleetlore.patterns import Failure, argument_shape, failure_of, shaped_call_id
from fleetlore.redaction import redact
from fleetlore.sample import Seen, stable_hash
from fleetlore.trajectory import MAX_TEXT, Ending, Step, Trajectory
from streams.observation import Observation, Subject, subjects_of_call, subjects_of_failure
from streams.stage import DeadLetter

# A long session is closed in parts of this many events. Which part an event belongs to follows from its sequence alone,
# so the parts are the same wherever processing starts again.
PART_EVENTS = 512
# Of what a sender fills in and the store keeps: a role, an id of lore, a version; and how many of them.
MAX_WORD = 64
MAX_ADVICE = 16


@dataclass(slots=True)
class Figures:
    """What the session has seen of one subject; changed in place, because every call changes two to five of them."""

    subject: Subject
    first: float
    last: float
    calls: int = 0
    failures: int = 0


@dataclass(slots=True)
class OpenSession:
    """One part of one session.

    Attributes:
        first_offset: of the first record that holds one of its events: no commit may pass it.
        last_time: newest event time, to tell when it has been silent for too long.
        suspects: dead letters to be, by sequence: events that came before the one they should have followed.
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
    ending: Ending | None = None
    reward: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    sequences: set[int] = field(default_factory=set)
    suspects: dict[int, DeadLetter] = field(default_factory=dict)
    _figures: dict[str, Figures] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    @property
    def headless(self) -> bool:
        """Its first event has not been seen.

        After a restart this is the tail of a session that was closed before the commit; it was handed on then, whole.
        """
        return self.part * PART_EVENTS not in self.sequences

    @property
    def complete(self) -> bool:
        """Nothing more can come: it said that it ended and no event is missing, or the part is full."""
        if len(self.sequences) == PART_EVENTS:
            return True
        return self.ending is not None

    def add(self, event: Event) -> bool:
        """Take an event in; False if it was known already.

        Raises:
            InvalidEvent: `bad_field`; the session is as it was.
        """
        if event.sequence in self.sequences:
            return False
        data = event.data
        match event.kind:
            case "outcome":
                self._take_outcome(event)
            case "message":
                text = redact(str(data.get(ev.CONTENT, "")))[:MAX_TEXT]
                role = (data.get(ev.ROLE) or "assistant")[:MAX_WORD]
                self.steps[event.sequence] = Step(sequence=event.sequence, role=role, result=text)
            case "session.started":
                self.goal = redact(data.get(ev.GOAL) or "")[:MAX_TEXT]
                self.task = (data.get(ev.TASK) or "")[: ev.MAX_ID_LENGTH]
            case "session.ended":
                self.ending = data.get(ev.OUTCOME, "unknown")
                reward = data.get(ev.REWARD)
                self.reward = None if reward is None else float(reward)
            case _:
                pass  # an action about to run says nothing that its outcome does not repeat
        self.sequences.add(event.sequence)
        self.first_time = min(self.first_time, event.time)
        self.last_time = max(self.last_time, event.time)
        return True

    def _take_outcome(self, event: Event) -> None:
        data = event.data
        tool = data[ev.TOOL]
        # Agents of ours have redacted already; a foreign client may not have, and nothing is stored unseen.
        arguments = redact(_text_of(data, ev.ARGUMENTS))
        result = redact(_text_of(data, ev.RESULT))[:MAX_TEXT]
        error_type, message = data.get(ev.ERROR_TYPE), data.get(ev.ERROR_MESSAGE)
        call, subjects = _recognise_call(tool, argument_shape(arguments))
        failure: Failure | None = None
        if error_type or message:
            message = redact(message or "")
            failure = failure_of(tool, arguments, error_type, message)
            subjects += subjects_of_failure(failure, call)
        for subject in subjects:
            self._observe(subject, failure is not None, event.time)
        duration, adapter = data.get(ev.DURATION), data.get(ev.ADAPTER)
        self.steps[event.sequence] = Step(
            sequence=event.sequence,
            role="tool",
            tool=tool,
            arguments=arguments[:MAX_TEXT],
            result=result,
            error_type=failure.error_class if failure else None,
            error_message=message[:MAX_TEXT] if failure and message else None,
            duration_seconds=float(duration) if isinstance(duration, int | float) else None,
            call=call,
            family=failure.family if failure else None,
            pattern=failure.class_ if failure else None,
            exact=failure.exact if failure else None,
            transient=failure is not None and failure.transient,
            advice=_texts(data.get(ev.ADVICE)),
            adapter=adapter[:MAX_WORD] if isinstance(adapter, str) else None,
        )

    def _observe(self, subject: Subject, failed: bool, time: float) -> None:
        figures = self._figures.get(subject.id)
        if figures is None:
            figures = self._figures[subject.id] = Figures(subject, time, time)
        figures.calls += 1
        figures.failures += failed
        if time > figures.last:
            figures.last = time
        elif time < figures.first:
            figures.first = time
        self._changed.add(subject.id)

    def take_observations(self) -> list[Observation]:
        """What has changed since the last call."""
        if not self._changed:
            return []
        session = stable_hash(self.session if self.part == 0 else f"{self.session}#{self.part}")
        agent = stable_hash(self.agent)
        changed = [self._figures[id] for id in self._changed]
        self._changed.clear()
        return [
            Observation(each.subject, session, Seen(agent, each.calls, each.failures, each.first, each.last))
            for each in changed
        ]

    def follows(self, sequence: int) -> bool:
        """The event before `sequence` is known, or there is none."""
        return sequence == self.part * PART_EVENTS or sequence - 1 in self.sequences

    def close(self) -> tuple[Trajectory, list[DeadLetter]]:
        """The session as a trajectory, and the events that jumped over a gap.

        An event behind a gap is left out of the trajectory, unless a later arrival filled the gap; the events after it are
        in. The session's end is kept in any case, for without it the whole session would say nothing.
        """
        jumped = {sequence for sequence in self.suspects if not self.follows(sequence) and sequence in self.steps}
        last = max(self.sequences)
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
            steps=tuple(step for sequence, step in sorted(self.steps.items()) if sequence not in jumped),
            part=self.part,
            events=len(self.sequences) - len(jumped),
            missing=last + 1 - self.part * PART_EVENTS - len(self.sequences),
        )
        return trajectory, [self.suspects[sequence] for sequence in sorted(jumped)]


@lru_cache(maxsize=16_384)
def _recognise_call(tool: str, shape: str) -> tuple[str, tuple[Subject, ...]]:
    """The call's id and its subjects. Cached: a fleet makes few kinds of calls, and many of each."""
    call = shaped_call_id(tool, shape)
    return call, subjects_of_call(tool, call, shape)


def _text_of(data: Mapping[str, Any], field: str) -> str:
    """A field of the data as text: text as it is, all else as JSON with sorted keys."""
    value = data.get(field)
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        # The decoder takes deeper nesting than any encoder gives out again.
        raise InvalidEvent("bad_field", f"{field}: {error}") from None


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([each[:MAX_WORD] for each in value if isinstance(each, str)][:MAX_ADVICE])
