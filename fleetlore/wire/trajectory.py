"""Define trajectories (closed sessions) and verdicts, which later stages exchange. JSON omits default values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Literal, Self
from zlib import crc32

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from fleetlore.wire.decode import json_reader
from fleetlore.wire.principals import principal_of, session_key

__all__ = [
    "MAX_SCHEMA", "MAX_TEXT", "Count", "Ending", "Feedback", "Hash", "JsonStruct", "Judgment", "LeftOut", "Looped",
    "Moment", "Source", "Step", "Trajectory", "Verdict", "clip", "encode",
]  # fmt: skip

MAX_TEXT = 2000
# Limit of a result that lists a schema (`models.place_names.shows_schema`).
MAX_SCHEMA = 6000

# Bytes of a digest: its row fits a Milvus field (65,535 bytes).
DIGEST_BYTES = 60_000
# Lessons come from kept steps only: 32 of 120 short calls held a quarter of the remedies.
DIGEST_STEPS = 192
LEAST_STEPS = 32
# Counted kinds of left-out calls, and their bytes.
_MOST_LEFT_OUT, _LEFT_OUT_BYTES = 128, 32 * 1024
MAX_LOOPS = 32
# Characters of a result in a digest. Calls and errors keep no fewer.
DIGEST_TEXT = 300
# Calls, and their characters, that `LoopDetector` compares with the next.
_COMPARED_CALLS, _COMPARED_TEXT = 7, 1_001
_CALL_TEXTS = (MAX_TEXT, 1000, 500)
# Bounds of `Trajectory.claim`: tenths of a second (year 2187), and events of a part.
_LAST_TENTH, _MOST_EVENTS = 2**36 - 1, 2**10 - 1
CUT = "…"

# The store's JSON integers are no larger.
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Sequence = Annotated[int, Meta(ge=0, le=2**20)]  # of an event: `fleetlore.wire.events.MAX_SEQUENCE`
Hash = Annotated[int, Meta(ge=0, lt=2**52)]  # `fleetlore.wire.stats.stable_hash`
# Seconds since the Unix epoch, up to the year 9999.
Moment = Annotated[float, Meta(ge=0, lt=253_402_300_800.0)]

Ending = Literal["success", "failure", "unknown", "continued"]
Label = Literal["success", "failure", "abstained"]
Source = Literal["guard", "reward", "feedback", "rules", "llm", "none"]

encode = msgspec.json.Encoder().encode


class JsonStruct(msgspec.Struct, frozen=True):
    def to_json(self) -> bytes:
        return encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        return json_reader(cls)(value)


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}{CUT}"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One tool call that ended, or one message.

    Attributes:
        role: `tool`, or the speaker (`user`, `assistant`, …) of the text in `result`.
        arguments, result: at most `MAX_TEXT` characters; `MAX_SCHEMA` for a listed schema.
        call: id of the kind of call (`fleetlore.fingerprint.fingerprint.call_id`), or "" for a message.
        family, pattern, exact: ids of the failure's three levels (`pattern`: class), or None.
        template: masked error, or "".
        about: sorted lower-case names in the call that the error is about.
        advice, withheld: ids of lore shown before the call, or withheld by the holdout.
        loop: id of the loop (`fleetlore.fingerprint.loops.LoopPattern.exact`) with this call, or None.
        mark: replaces the whole arguments and result in loop detection (`fleetlore.fingerprint.loops.mark_of`).
        time: Unix seconds at the end of a call that later ones are compared with, or 0.
    """

    sequence: Sequence
    role: str
    tool: str = ""
    arguments: str = ""
    result: str = ""
    error_type: str | None = None
    error_message: str | None = None
    duration_seconds: float | None = None
    call: str = ""
    family: str | None = None
    pattern: str | None = None
    exact: str | None = None
    template: str = ""
    about: tuple[str, ...] = ()
    transient: bool = False
    advice: tuple[str, ...] = ()
    adapter: str | None = None
    withheld: tuple[str, ...] = ()
    loop: str | None = None
    mark: str = ""
    time: int = 0

    @property
    def failed(self) -> bool:
        return self.pattern is not None

    @property
    def answer(self) -> str:
        return self.error_message or self.error_type or "" if self.failed else self.result

    @property
    def is_cut(self) -> bool:
        return self.arguments.endswith(CUT)

    def clipped(self, limit: int) -> Step:
        """Cut call and error to `limit` characters, and the result to at most `DIGEST_TEXT`."""
        error, most = self.error_message, min(limit, DIGEST_TEXT)
        if len(self.arguments) <= limit and len(self.result) <= most and (error is None or len(error) <= limit):
            return self
        return replace(
            self,
            arguments=clip(self.arguments, limit),
            result=clip(self.result, most),
            error_message=clip(error, limit) if error else error,
        )


class LeftOut(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Number of left-out calls of one kind."""

    calls: Count
    tool: str
    call: str
    error_type: str | None = None
    family: str | None = None
    pattern: str | None = None
    exact: str | None = None
    transient: bool = False

    @property
    def step(self) -> Step:
        known = asdict(self)
        del known["calls"]
        return Step(sequence=0, role="tool", **known)


class Looped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Number of calls in loops of one pattern (`fleetlore.fingerprint.loops.LoopPattern`)."""

    calls: int
    tool: str
    template: str
    family: str
    class_: str
    exact: str
    call: str | None


class Feedback(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="feedback"):
    """A later correction of how a session ended. The newest one counts.

    Attributes:
        session: a claim names the sender's own session, other feedback every session with this id.
        by: the agent or person who gave it.
        claimed: sent among the agents' events. Other feedback counts first.
    """

    session: str
    label: Literal["success", "failure"]
    time: Moment
    by: str
    claimed: bool = False

    def newest(self, other: Feedback | None) -> Feedback:
        return self if other is None or self._rank >= other._rank else other

    @property
    def _rank(self) -> tuple[bool, float, str, bool]:
        # At equal times the failure counts: a false success does more harm.
        return not self.claimed, self.time, self.by, self.label == "failure"


class Trajectory(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="trajectory"):
    """One session, or one part of a long one.

    Attributes:
        started, ended: first and latest event time, in Unix seconds.
        arrived: when the broker got its newest event; 0 from earlier releases.
        ending: by itself or its environment, or `continued` if closed without an end.
        events, missing: number that it was made from, and that never arrived.
        gaps: ranges [from, to) of missing sequences before the last event.
        place, user: where it acts, and the user's hash, as it states, or "".
        guard: the first broken rule by name, as the environment reports, or "".
        left_out: calls of the most frequent kinds that a digest's steps lack.
        loops: the `MAX_LOOPS` with the most calls, including left-out ones.
        is_open: it goes on. Only its ways past failures are learned yet.
    """

    tenant: str
    session: str
    agent: str
    task: str
    goal: str
    started: Moment
    ended: Moment
    ending: Ending
    reward: float | None = None
    steps: tuple[Step, ...] = ()
    part: Sequence = 0
    events: Annotated[int, Meta(ge=0, le=_MOST_EVENTS)] = 0
    missing: Sequence = 0
    gaps: tuple[tuple[Sequence, Sequence], ...] = ()
    feedback: Feedback | None = None
    guard: str = ""
    place: str = ""
    user: str = ""
    left_out: tuple[LeftOut, ...] = ()
    loops: tuple[Looped, ...] = ()
    is_open: bool = False
    arrived: Moment = 0.0

    def __post_init__(self) -> None:
        # A reopened session expands gaps: a few bytes could fill the memory.
        if self.gaps and sum(max(0, end - start) for start, end in self.gaps) > _MOST_EVENTS:
            raise ValueError("its gaps are longer than a part of a session")

    @property
    def id(self) -> str:
        """Key of the session's part and its judgment."""
        return session_key(self.agent, self.session, self.part)

    @property
    def came(self) -> float:
        """When it became known, by the broker's time: senders choose the times of events."""
        return self.arrived or self.ended

    @property
    def claim(self) -> int:
        """Rank among a principal's sessions of one id: the first to begin ranks highest.

        36 bits of tenths of a second, 6 of the agent's hash. In `revision` it is still an exact JSON number.
        """
        began = min(max(int(self.started * 10), 0), _LAST_TENTH)
        return (_LAST_TENTH - began) << 6 | crc32(self.agent.encode()) & 63

    @property
    def revision(self) -> tuple[int, float]:
        """(claim and event count in one, time of the correction or 0). The greatest counts."""
        return self.claim << 10 | min(self.events, _MOST_EVENTS), self.feedback.time if self.feedback else 0.0

    @property
    def correction(self) -> Feedback | None:
        """Another principal's feedback, which outranks the environment's reward."""
        given = self.feedback
        own = given is None or given.claimed or principal_of(given.by) == principal_of(self.agent)
        return None if own else given

    @property
    def calls(self) -> tuple[Step, ...]:
        return tuple([step for step in self.steps if step.role == "tool"])

    def to_bounded_json(self, most_bytes: int) -> bytes:
        """Cut steps and their texts shorter as needed."""
        encoded, text, short = self.to_json(), MAX_TEXT, self
        while len(encoded) > most_bytes and text > 1:
            text //= 2
            steps = tuple([step.clipped(text) for step in self.steps])
            short = replace(self, goal=clip(self.goal, text), steps=steps)
            encoded = short.to_json()
        return encoded

    def digest(self) -> Trajectory:
        return self.digested()[0]

    def digested(self) -> tuple[Trajectory, bytes]:
        """Return the session with cut texts and its first and last steps only, and its JSON."""
        steps, text = DIGEST_STEPS, self._call_text()
        # In bytes: a character has up to six in JSON, and the store always refuses larger rows.
        while (size := len(encoded := (short := self._clipped(steps, text)).to_json())) > DIGEST_BYTES and steps > 1:
            if steps > LEAST_STEPS:
                steps = max(LEAST_STEPS, min(steps * DIGEST_BYTES // size, steps - 1))
            else:
                steps, text = steps // 2, text // 2
        return short, encoded

    def _call_text(self) -> int:
        if len(self.steps) * (DIGEST_TEXT + 2 * MAX_TEXT) <= DIGEST_BYTES // 2:
            return MAX_TEXT
        results = sum([min(len(step.result), DIGEST_TEXT) for step in self.steps])
        texts = [len(text) for step in self.steps for text in (step.arguments, step.error_message) if text]
        for limit in _CALL_TEXTS:
            if results + sum([min(length, limit) for length in texts]) <= DIGEST_BYTES // 2:
                return limit
        return DIGEST_TEXT

    def _clipped(self, most: int, text: int) -> Trajectory:
        steps, left_out = self.steps, self.left_out
        if len(steps) > most:
            first, last = most // 4, len(steps) - (most - most // 4)
            middle, tail = steps[first:last], steps[last:]
            calls = [each for each in steps if each.role == "tool"][-_COMPARED_CALLS:]
            goes_on = self.ending == "continued" and most >= LEAST_STEPS
            kept = [each for each in middle if goes_on and each in calls]
            left_out = _counted(left_out, [each for each in middle if each not in kept])
            steps = (*steps[:first], *kept, *tail)
        compared = max(text, _COMPARED_TEXT) if text >= DIGEST_TEXT else text
        short = tuple([step.clipped(compared if step.mark else text) for step in steps])
        return replace(self, goal=clip(self.goal, 2 * min(text, DIGEST_TEXT)), steps=short, left_out=left_out)


def _counted(known: Iterable[LeftOut], steps: Iterable[Step]) -> tuple[LeftOut, ...]:
    calls = Counter({replace(each, calls=0): each.calls for each in known})
    for step in steps:
        if step.role == "tool":
            kind = step.error_type, step.family, step.pattern, step.exact, step.transient
            calls[LeftOut(0, step.tool, step.call, *kind)] += 1
    most = sorted(calls.items(), key=lambda each: (-each[1], each[0].call, each[0].exact or ""))[:_MOST_LEFT_OUT]
    sizes = accumulate(len(encode(kind)) for kind, _ in most)
    return tuple(
        [replace(kind, calls=count) for (kind, count), size in zip(most, sizes, strict=True) if size <= _LEFT_OUT_BYTES]
    )


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether a session succeeded, by which source.

    Attributes:
        probability: of success, 0..1; 0.5 if the judge abstained.
        by: the person who gave feedback.
    """

    label: Label
    probability: float
    source: Source
    version: str
    by: str = ""


class Judgment(JsonStruct, frozen=True, kw_only=True, gc=False):
    trajectory: Trajectory
    verdict: Verdict
