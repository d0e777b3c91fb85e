"""Make the step of a call, and count it for its subjects."""

from collections.abc import Container
from functools import lru_cache
from sys import getsizeof
from typing import Any

import msgspec
from msgspec.structs import replace

from fleetlore.calls.call import text_of
from fleetlore.fingerprint.fingerprint import Failure, shaped_call_id, shaped_failure, tool_id
from fleetlore.fingerprint.loops import LoopPattern
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.decode import Data
from fleetlore.wire.events import finite
from fleetlore.wire.lore import LOOP
from fleetlore.wire.trajectory import MAX_SCHEMA, MAX_TEXT, Step, clip
from models.memory.bottom_k import BADLY, WELL
from models.memory.pattern_parts import order_of
from models.memory.pattern_state import Observation, Subject
from models.place_names import shows_schema


class SubjectCounts(msgspec.Struct, gc=False):
    """Mutable, because every call changes two to five."""

    subject: Subject
    first: float
    last: float
    arrived: float
    calls: int = 0
    failures: int = 0
    reported: bool = False
    ended: int = 0
    again: int = 0

    def add(self, subject: Subject, time: float, calls: int, failures: int) -> None:
        if subject is not self.subject and order_of(subject.words) < order_of(self.subject.words):
            self.subject = subject
        self.calls += calls
        self.failures += failures
        self.reported = False
        if time > self.last:
            self.last = time
        if time < self.first:
            self.first = time

    def observation(self, session: int, agent: int, ended: int) -> Observation:
        counts = self.calls, self.failures, self.first, self.last
        return Observation(self.subject, session, agent, *counts, ended, "", self.arrived, self.again)


def how_it_ended(ending: str | None, reward: float | None) -> int:
    """Return `Observation.ended` by the ending or else the reward; 0 if the two contradict.

    Corrections are left out: one may arrive before its session, and equal events must give equal states.
    """
    rewarded = None if reward is None or 0 < reward < 1 else "success" if reward >= 1 else "failure"
    ended = ending if ending in ("success", "failure") else None
    if ended is not None and rewarded is not None and ended != rewarded:
        return 0
    return {"success": WELL, "failure": BADLY}.get(ended or rewarded or "", 0)


def _subjects_of_call(tool: str, call: str, shape: str) -> tuple[Subject, ...]:
    return (Subject(tool_id(tool), "tool", tool), Subject(call, "call", tool, shape=shape, parent=tool_id(tool)))


def _subjects_of_failure(failure: Failure, call: str) -> tuple[Subject, ...]:
    return _levels(failure, failure.error_class, failure.shape, call, failure.transient)


@lru_cache(maxsize=4096)
def subjects_of_loop(loop: LoopPattern) -> tuple[Subject, ...]:
    return _levels(loop, LOOP, "", loop.call, transient=False)


def _levels(
    of: Failure | LoopPattern, error_class: str, shape: str, call: str | None, transient: bool
) -> tuple[Subject, ...]:
    return (
        Subject(of.family, "family", of.tool, error_class, transient=transient),
        Subject(of.class_, "class", of.tool, error_class, of.template, "", of.family, None, transient),
        Subject(of.exact, "exact", of.tool, error_class, of.template, shape, of.class_, call, transient),
    )


# Bounds of stored fields that the sender fills in: characters of a word; number of ids.
MAX_WORD = 64
_MAX_ADVICE = 64


def step_of(sequence: int, data: Data, call: str, failure: Failure | None, message: str | None) -> Step:
    longest = MAX_SCHEMA if len(data.result) > MAX_TEXT and shows_schema(data.result) else MAX_TEXT
    step = Step(
        sequence=sequence,
        role="tool",
        tool=data.tool or "",
        arguments=clip(data.arguments, MAX_TEXT),
        result=clip(data.result, longest),
        duration_seconds=finite(data.duration) if isinstance(data.duration, int | float) else None,
        call=call,
        advice=texts(data.advice),
        adapter=data.adapter[:MAX_WORD] if isinstance(data.adapter, str) else None,
        withheld=texts(data.withheld),
    )
    if failure is not None:
        error = message or ""
        step = replace(
            step,
            error_type=failure.error_class,
            error_message=clip(error, MAX_TEXT) or None,
            family=failure.family,
            pattern=failure.class_,
            exact=failure.exact,
            template=failure.template,
            about=failure_kind(failure.error_class, failure.template, error, text_of(data.arguments)).names,
            transient=failure.transient,
        )
    return step


@lru_cache(maxsize=16_384)
def recognise_call(tool: str, shape: str) -> tuple[str, tuple[Subject, ...]]:
    call = shaped_call_id(tool, shape)
    return call, _subjects_of_call(tool, call, shape)


@lru_cache(maxsize=16_384)
def recognise_failure(tool: str, shape: str, error_type: str, message: str) -> tuple[Failure, tuple[Subject, ...]]:
    failure = shaped_failure(tool, shape, error_type, message)
    call, subjects = recognise_call(tool, shape)
    return failure, subjects + _subjects_of_failure(failure, call)


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([each[:MAX_WORD] for each in value if isinstance(each, str)][:_MAX_ADVICE])


def text_bytes(step: Step) -> int:
    return getsizeof(step.arguments) + getsizeof(step.result) + getsizeof(step.error_message)


def subjects_of_step(step: Step) -> tuple[Subject, ...]:
    subjects = _subjects_of_call(step.tool, step.call, "")
    if step.family is not None and step.pattern is not None and step.exact is not None:
        ids = step.family, step.pattern, step.exact
        failure = Failure(step.tool, step.error_type or "", step.template, "", *ids, step.transient)
        subjects += _subjects_of_failure(failure, step.call)
    return subjects


def gaps_of(first: int, last: int, known: Container[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of unknown sequences, each without its end."""
    gaps: list[tuple[int, int]] = []
    for each in range(first, last + 1):
        if each in known:
            continue
        if gaps and gaps[-1][1] == each:
            gaps[-1] = gaps[-1][0], each + 1
        else:
            gaps.append((each, each + 1))
    return tuple(gaps)
