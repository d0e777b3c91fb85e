"""Define trajectories (closed sessions in short) and verdicts: the records that the stages after the first hand on.

They are msgspec structs: one pass decodes the JSON, checks its types and makes the objects. Separate steps would cost
five times as much. Fields with their default are left out of the JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Literal, Self
from zlib import crc32

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fleetlore.wire.decode import json_reader
from fleetlore.wire.principals import session_key

__all__ = [
    "MAX_SCHEMA", "MAX_TEXT", "Count", "Ending", "Feedback", "Hash", "JsonStruct", "Judgment", "LeftOut", "Looped",
    "Moment", "Source", "Step", "Trajectory", "Verdict", "clip", "encode",
]  # fmt: skip

MAX_TEXT = 2000
# Characters kept of a result that lists a schema (`models.place_names.shows_schema`). Databases of 24 tables take half.
MAX_SCHEMA = 6000

# Bytes of a digest. It fits a Milvus field (65,535 bytes) with room for the other parts of the row.
DIGEST_BYTES = 60_000
# Steps of a digest. Lessons come from kept steps only: in sessions of 120 short calls, 32 steps held a quarter of the
# remedies. Fewer steps fit if their texts are long.
DIGEST_STEPS = 192
LEAST_STEPS = 32
# Kinds of calls counted of those that are left out, and their bytes: a tool's name may have 1 kB, all else about 200 B.
_MOST_LEFT_OUT, _LEFT_OUT_BYTES = 128, 32 * 1024
# Loops counted of a session: up to 1 kB each.
MAX_LOOPS = 32
# Characters of a result in a digest. Calls and errors are kept whole if the session fits, since calls are compared.
# Otherwise they keep at least as many characters.
DIGEST_TEXT = 300
# `LoopDetector` compares the next call with so many calls, and so many characters of their words.
_COMPARED_CALLS, _COMPARED_TEXT = 7, 1_001
_CALL_TEXTS = (MAX_TEXT, 1000, 500)
# The last tenth of a second that `Trajectory.claim` tells apart, in the year 2187; and more events than a part has.
_LAST_TENTH, _MOST_EVENTS = 2**36 - 1, 2**10 - 1
# At the end of a text that was cut.
CUT = "…"

# Numbers on the log. Larger ones would break the arithmetic of a later reader, or not fit a JSON integer in the store.
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Sequence = Annotated[int, Meta(ge=0, le=2**20)]  # of an event: `fleetlore.wire.events.MAX_SEQUENCE`
Hash = Annotated[int, Meta(ge=0, lt=2**52)]  # `fleetlore.stats.hashing.stable_hash`
# Seconds since the Unix epoch, up to the year 9999.
Moment = Annotated[float, Meta(ge=0, lt=253_402_300_800.0)]

Ending = Literal["success", "failure", "unknown", "continued"]
Label = Literal["success", "failure", "abstained"]
Source = Literal["guard", "reward", "feedback", "rules", "llm", "none"]

encode = msgspec.json.Encoder().encode


class JsonStruct(msgspec.Struct, frozen=True):
    """A value that lies on the log, or in the store, as JSON."""

    def to_json(self) -> bytes:
        return encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        return json_reader(cls)(value)


def clip(text: str, limit: int) -> str:
    """The text, or its first characters and `CUT` where it has more than `limit`."""
    return text if len(text) <= limit else f"{text[: limit - 1]}{CUT}"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One tool call that ended, or one message.

    Attributes:
        sequence: its position in the session.
        role: `tool` for a call, or else the speaker (`user`, `assistant`, …), with the text in `result`.
        arguments: JSON or text, at most `MAX_TEXT` characters (`clip`).
        result: at most `MAX_TEXT` characters, or `MAX_SCHEMA` if it lists a schema.
        call: id of the kind of call (`fleetlore.fingerprint.fingerprint.call_id`), or "" for a message.
        family, pattern, exact: ids of the failure at its three levels, or None if the call worked. `pattern` is the
            class level.
        template: the masked text of the error, or "" if the call worked.
        about: the names in the call that the error is about, in lower case and sorted.
        transient: whether the failure is transient.
        advice: ids of the lore the agent was given before the call.
        withheld: ids of the lore that the holdout withheld.
        adapter: version of the adapter the agent ran.
        loop: id of the loop (`fleetlore.fingerprint.loops.LoopPattern.exact`) that the session was in with this call,
            or None outside of a loop.
        mark: replaces the whole arguments and result for the detection of loops if a session may go on
            (`fleetlore.fingerprint.loops.mark_of`), or "".
        time: end of a call that is compared with later ones if a session may go on, in seconds since the Unix epoch,
            or 0.
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
    def is_cut(self) -> bool:
        return self.arguments.endswith(CUT)

    def clipped(self, limit: int) -> Step:
        """The same step with its call and error cut to `limit` characters and its result to `DIGEST_TEXT` or `limit`.
        Itself where they are short enough, as most are."""
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
    """How many calls of one kind a digest has left out; all else as in `Step`."""

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
        return Step(
            sequence=0,
            role="tool",
            tool=self.tool,
            call=self.call,
            error_type=self.error_type,
            family=self.family,
            pattern=self.pattern,
            exact=self.exact,
            transient=self.transient,
        )


class Looped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many calls of a session were in loops of one pattern (`fleetlore.fingerprint.loops.LoopPattern`)."""

    calls: int
    tool: str
    template: str
    family: str
    class_: str
    exact: str
    call: str | None


class Feedback(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="feedback"):
    """A later correction of how a session ended. The newest one counts; ties are broken by who gave it.

    Attributes:
        session: the id that its sender knows. A claim is about the sender's own session. Any other feedback is about
            every session with this id.
        time: event time in seconds since the Unix epoch.
        by: the agent or person who gave it.
        claimed: whether it came among the agents' events, to which every agent may write. Other feedback counts first.
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
        # If one person gave two at the same time, the failure counts: a false success does more harm.
        return not self.claimed, self.time, self.by, self.label == "failure"


class Trajectory(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="trajectory"):
    """One session, or one part of a long one.

    Attributes:
        part: 0 for the first (and nearly always only) part.
        started: event time of the part's first event, in seconds since the Unix epoch.
        ended: the latest event time, in seconds since the Unix epoch.
        arrived: when the broker got its newest event, or 0 in records of earlier releases.
        ending: how it ended by its own word or its environment's, or `continued` if it was closed without an end.
        reward: the environment's reward, if any.
        events: number of events it was made from.
        missing: number of events that never arrived, by the gaps in the sequence.
        gaps: ranges [from, to) of the sequences before its last event that it was not made from.
        place: where it acts by its own statement (a database, a repository, a host), or "".
        user: hash of the user it acts for by its own statement, or "".
        guard: a rule that the session broke by the environment's word, the first by name, or "".
        left_out: the calls that are not among the steps of a digest, so that a session that goes on keeps its counts.
            It has `_MOST_LEFT_OUT` kinds at most, those with the most calls.
        loops: its loops, including those of left-out calls. It has `MAX_LOOPS` at most, those with the most calls.
        is_open: whether the session goes on. Only its ways past failures are learned yet, and its end replaces them.
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
        # A session that goes on is made of all numbers between: a few bytes would fill the memory.
        if self.gaps and sum(max(0, end - start) for start, end in self.gaps) > _MOST_EVENTS:
            raise ValueError("its gaps are longer than a part of a session")

    @property
    def id(self) -> str:
        """Key of the session and its part, which names its judgment and everything that it teaches."""
        return session_key(self.agent, self.session, self.part)

    @property
    def came(self) -> float:
        """When it became known. Senders choose the times of events, so what is new is decided by the broker's time."""
        return self.arrived or self.ended

    @property
    def claim(self) -> int:
        """Rank among several sessions of one principal under one id.

        The greatest claim counts: the first to begin. It has 36 bits of tenths of a second, and 6 bits of the agent's
        hash for sessions that began at once. With `revision` it still is a whole number that every JSON reader accepts,
        and it is as short as the rows need it.
        """
        began = min(max(int(self.started * 10), 0), _LAST_TENTH)
        return (_LAST_TENTH - began) << 6 | crc32(self.agent.encode()) & 63

    @property
    def revision(self) -> tuple[int, float]:
        """(claim and number of its events in one, time of the correction or 0): the greatest under an id counts."""
        return self.claim << 10 | min(self.events, _MOST_EVENTS), self.feedback.time if self.feedback else 0.0

    @property
    def correction(self) -> Feedback | None:
        """The feedback, where somebody else gave it who may: it outranks the environment's reward."""
        given = self.feedback
        return None if given is None or given.claimed or given.by == self.agent else given

    @property
    def calls(self) -> tuple[Step, ...]:
        return tuple([step for step in self.steps if step.role == "tool"])

    def to_bounded_json(self, most_bytes: int) -> bytes:
        """JSON of at most so many bytes: where it is too long, with all steps and their texts cut shorter."""
        encoded, text, short = self.to_json(), MAX_TEXT, self
        while len(encoded) > most_bytes and text > 1:
            text //= 2
            steps = tuple([step.clipped(text) for step in self.steps])
            short = replace(self, goal=clip(self.goal, text), steps=steps)
            encoded = short.to_json()
        return encoded

    def digest(self) -> Trajectory:
        """The same session, short enough to keep: long texts are cut, and the first and last of many steps stay."""
        return self.digested()[0]

    def digested(self) -> tuple[Trajectory, bytes]:
        """The digest and its JSON, which is made anyway to count it."""
        steps, text = DIGEST_STEPS, self._call_text()
        # Counted in bytes, because a character has up to six of them in JSON, and a row that does not fit its field
        # would be refused at every retry.
        while (size := len(encoded := (short := self._clipped(steps, text)).to_json())) > DIGEST_BYTES and steps > 1:
            if steps > LEAST_STEPS:
                steps = max(LEAST_STEPS, min(steps * DIGEST_BYTES // size, steps - 1))
            else:
                steps, text = steps // 2, text // 2
        return short, encoded

    def _call_text(self) -> int:
        if len(self.steps) * (DIGEST_TEXT + 2 * MAX_TEXT) <= DIGEST_BYTES // 2:
            return MAX_TEXT  # of so few steps all fit
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
    """Whether a session succeeded, how sure that is, and who says so.

    Attributes:
        probability: probability of success, 0..1, or 0.5 if the judge abstained.
        version: version of the judge, so that a better one can be replayed over the same log.
        by: the person who gave it, if it is feedback.
    """

    label: Label
    probability: float
    source: Source
    version: str
    by: str = ""


class Judgment(JsonStruct, frozen=True, kw_only=True, gc=False):
    trajectory: Trajectory
    verdict: Verdict
