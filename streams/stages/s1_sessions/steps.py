"""Make the step of a call, and say for which subjects it counts."""

from __future__ import annotations

from functools import lru_cache
from sys import getsizeof
from typing import Any

from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import Failure, argument_shape, shaped_call_id, shaped_failure
from fleetlore.wire.trajectory import MAX_TEXT, Step, clip
from models.memory.pattern_state import Subject
from streams.stage.observations import subjects_of_call, subjects_of_failure, subjects_of_warnings
from streams.stages.s1_sessions.parse import Data

# Bounds of stored fields that the sender fills in: length of a role, an id of lore or a version; number of ids.
MAX_WORD = 64
MAX_ADVICE = 64


def step_of(
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
        step = replace(step, withheld=texts(data.withheld))
    return step


@lru_cache(maxsize=16_384)
def recognise_call(tool: str, shape: str) -> tuple[str, tuple[Subject, ...]]:
    """Return the call's id and its subjects. Cached: a fleet makes few kinds of calls, and many of each."""
    call = shaped_call_id(tool, shape)
    return call, subjects_of_call(tool, call, shape)


@lru_cache(maxsize=16_384)
def recognise_failure(tool: str, shape: str, error_type: str, message: str) -> tuple[Failure, tuple[Subject, ...]]:
    """Return the failure and all subjects of a call that failed."""
    failure = shaped_failure(tool, shape, error_type, message)
    call, subjects = recognise_call(tool, shape)
    return failure, subjects + subjects_of_failure(failure, call)


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([each[:MAX_WORD] for each in value if isinstance(each, str)][:MAX_ADVICE])


def text_bytes(step: Step) -> int:
    return getsizeof(step.arguments) + getsizeof(step.result) + getsizeof(step.error_message)


def subjects_of_step(step: Step) -> tuple[Subject, ...]:
    """The subjects of a call that is known from its step: those that `OpenSession.add` counted."""
    shape = argument_shape(step.arguments)
    subjects = subjects_of_call(step.tool, step.call, shape)
    if step.family is not None and step.pattern is not None and step.exact is not None:
        template = shaped_failure(step.tool, shape, step.error_type or "", step.error_message or "").template
        failure = Failure(
            step.tool, step.error_type or "", template, shape, step.family, step.pattern, step.exact, step.transient
        )
        subjects += subjects_of_failure(failure, step.call)
    if step.advice:
        subjects += tuple(subjects_of_warnings(step.tool, step.arguments, step.advice))
    return subjects
