"""Define trajectories, a closed session in short, and the verdict on one: what the stages after the first hand on.

They are msgspec structs: one pass decodes the JSON, checks its types and makes the objects, at a fifth of the cost of a
decoder, a check and a class of our own. What has its default is left out of the JSON.
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
    "MAX_SCHEMA",
    "MAX_TEXT",
    "Count",
    "Ending",
    "Feedback",
    "Hash",
    "JsonStruct",
    "Judgment",
    "Label",
    "LeftOut",
    "Looped",
    "Moment",
    "Source",
    "Step",
    "Trajectory",
    "Verdict",
    "clip",
    "encode",
]

MAX_TEXT = 2000
# Of a result that says what there is (`models.place_names.shows_schema`): databases of 24 tables take half of it.
MAX_SCHEMA = 6000

# Of a digest: it fits a Milvus field (65,535 bytes) with room for what is kept beside it.
DIGEST_BYTES = 60_000
# What is kept is what is learned from: of sessions of 120 short calls, 32 held a quarter of the remedies. Of calls with
# long texts fewer fit.
DIGEST_STEPS = 192
LEAST_STEPS = 32
# Kinds of calls counted of those that are left out, and their bytes: a tool's name may have 1 kB, all else about 200 B.
_MOST_LEFT_OUT, _LEFT_OUT_BYTES = 128, 32 * 1024
# Loops counted of a session: up to 1 kB each.
MAX_LOOPS = 32
# Of a result. Calls and errors are kept whole where the session fits, since calls are compared; the least that is left
# of them is as much.
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
        """Raises msgspec.DecodeError (a ValueError) for what is none."""
        return json_reader(cls)(value)


def clip(text: str, limit: int) -> str:
    """The text, or its first characters and `CUT` where it has more than `limit`."""
    return text if len(text) <= limit else f"{text[: limit - 1]}{CUT}"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One tool call that ended, or one message.

    Attributes:
        sequence: its place in the session.
        role: `tool` for a call; else who spoke (`user`, `assistant`, …), with the text in `result`.
        arguments: JSON or text, at most `MAX_TEXT` characters (`clip`).
        result: at most `MAX_TEXT` characters, or `MAX_SCHEMA` where it says what there is.
        call: id of the kind of call (`fleetlore.fingerprint.fingerprint.call_id`); empty for a message.
        family, pattern, exact: ids of the failure at its three levels; None where it worked. `pattern` is the class
            level.
        template: the masked text of the error; empty where the call worked.
        about: the names in the call that the error is about, in lower case and sorted.
        transient: the failure is one that passes by itself.
        advice: ids of the lore the agent was given before the call.
        withheld: ids of the lore that it would have been given, but for the draw that measures what lore is worth.
        adapter: version of the adapter the agent ran.
        loop: id of the loop (`fleetlore.fingerprint.loops.LoopPattern.exact`) that the session was in with this call;
            None in none.
        mark: stands for the whole arguments and result where a session may go on and its loops be looked for
            (`fleetlore.fingerprint.loops.mark_of`); else empty.
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

    @property
    def failed(self) -> bool:
        return self.pattern is not None

    @property
    def is_cut(self) -> bool:
        """Whether its arguments are not whole: such a call may differ from another behind the cut."""
        return self.arguments.endswith(CUT)

    def clipped(self, limit: int) -> Step:
        """The same step with its call and error cut to `limit` characters and its result to `DIGEST_TEXT` or `limit`.

        Itself where they are short enough, as most are.
        """
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
        """A call of the kind, without its texts."""
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
    """A later correction of how a session ended; of several the newest counts, ties broken by who gave it.

    Attributes:
        session: the id that its sender knows. A claim is of the sender's own session; any other feedback is of every
            session with this id.
        time: event time in seconds since the Unix epoch.
        by: the agent or person who gave it.
        claimed: it came among the agents' events, where whoever may write events can give it. Any other counts first.
    """

    session: str
    label: Literal["success", "failure"]
    time: Moment
    by: str
    claimed: bool = False

    def newest(self, other: Feedback | None) -> Feedback:
        """The one of two that counts."""
        return self if other is None or self._rank >= other._rank else other

    @property
    def _rank(self) -> tuple[bool, float, str, bool]:
        # Of two that one person gave at one time the failure counts: a success that is none does more harm.
        return not self.claimed, self.time, self.by, self.label == "failure"


class Trajectory(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="trajectory"):
    """One session, or one part of a long one.

    Attributes:
        part: 0 for the first (and nearly always only) part.
        started: event time of the part's first event, `ended`: the latest, in seconds since the Unix epoch.
        ending: what the session itself or its environment said; `continued` where it was closed without an end.
        reward: where the environment gave one.
        events: how many events it was made from.
        missing: events that never arrived, by the gaps in the sequence.
        gaps: ranges [from, to) of the sequences before its last event that it was not made from.
        place: where it acts (a database, a repository, a host), as it stated; empty where it did not.
        user: hash of whom it acts for, as the session stated it; empty where it did not.
        guard: a rule that the session broke by the environment's word, the first by name; empty where it broke none.
        left_out: of a digest, the calls that are not among its steps, so that a session that goes on counts from where
            it was; of `_MOST_LEFT_OUT` kinds at most, those with the most calls.
        loops: its loops, those of left-out calls included; `MAX_LOOPS` at most, those with the most calls.
        is_open: the session goes on. Only what got it past a failure is learned yet, and its end replaces all of it.
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

    def __post_init__(self) -> None:
        # A session that goes on is made of all numbers between: a few bytes would fill the memory.
        if self.gaps and sum(max(0, end - start) for start, end in self.gaps) > _MOST_EVENTS:
            raise ValueError("its gaps are longer than a part of a session")

    @property
    def id(self) -> str:
        """Key of the session and its part, which names its judgment and everything that it teaches."""
        return session_key(self.agent, self.session, self.part)

    @property
    def claim(self) -> int:
        """Of several sessions of one principal under one id the greatest claim counts: the one that began first.

        36 bits of tenths of a second, and 6 of the agent's hash for those that began at once: with `revision` it is a
        whole number that JSON readers take, and as short as the rows need it.
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
        probability: of success, 0..1; .5 where the judge abstained.
        version: of the judge, so that a better one can be replayed over the same log.
        by: who gave it, where it is feedback.
    """

    label: Label
    probability: float
    source: Source
    version: str
    by: str = ""


class Judgment(JsonStruct, frozen=True, kw_only=True, gc=False):
    """A trajectory with its verdict."""

    trajectory: Trajectory
    verdict: Verdict
