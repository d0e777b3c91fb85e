"""Distil the names that worked after an error had rejected another name, where results had shown them.

What a model brings by itself after an error (`import math`) it needs not be told. A table, a column or an option that
the session first had to look up is news to the next one. Each session states what it looked up and used with success,
of these the names that are spelled like the rejected one where there are such;
what sessions of several goals share becomes the item (`models.memory.contrast.shared`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain

from fleetlore.calls.context import CALL_CHARACTERS, KEYWORDS, RESULT_CHARACTERS, WORD, text_of, words_of
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import VERSION, Calls, error_text, item_id, line, said
from models.distil.recovery import worked
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin
from models.memory.contrast import BESIDE
from models.memory.quality import ERROR

MAX_NAMES = 12
# `Table 'shop.cars'` says where; `Unknown column 'type'` is said at every table.
_QUALIFIED = re.compile(r"\w[./:]\w")


def looked_up(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """At most one candidate an error that names something of its call."""
    last = {calls[place].pattern: place for place in telling}
    found = []
    for place in last.values():
        failed = calls[place]
        rejected = _rejected(failed)
        if rejected and (names := _nearest(rejected, _names_after(judgment, calls, place))):
            if not _QUALIFIED.search(said(failed)):
                names += [f"{BESIDE}{name}" for name in _beside(judgment, calls, place) if name not in rejected]
            found.append(_candidate(judgment, failed, names))
    return found


def _rejected(failed: Step) -> tuple[str, ...]:
    """Names of the call that the error is about."""
    failure = failure_of(failed.tool, failed.arguments, failed.error_type, failed.error_message)
    return failure_kind(failure.error_class, failure.template, said(failed), text_of(failed.arguments)).names


def _names_after(judgment: Judgment, calls: Calls, place: int) -> list[str]:
    """Names in later calls that worked, which a result had shown and which no failed call of the pattern holds."""
    failed = calls[place]
    tried = {name for call in calls if call.pattern == failed.pattern for name in _names(call)}
    shown: set[str] = set()
    for call in calls[:place]:
        shown |= _shown(call)
    names: dict[str, None] = {}
    for call in calls[place + 1 :]:
        if call.tool == failed.tool and worked(judgment, call):
            names.update(dict.fromkeys(name for name in _names(call) if name in shown and name not in tried))
        shown |= _shown(call)
    return list(names)[:MAX_NAMES]


def _nearest(rejected: Sequence[str], names: list[str]) -> list[str]:
    """Names spelled like a rejected one, the likest first; all where none is: the others are about the task."""
    close = [get_close_matches(name, names, n=MAX_NAMES) for name in rejected]
    return list(dict.fromkeys(chain.from_iterable(close))) or names


def _beside(judgment: Judgment, calls: Calls, place: int) -> list[str]:
    """What stands in the failed call and in the next one of its tool that worked: they are about the same thing."""
    failed = calls[place]
    later = (call for call in calls[place + 1 :] if call.tool == failed.tool and worked(judgment, call))
    kept = {name for call in later if not set(_names(call)).isdisjoint(_names(failed)) for name in _names(call)}
    return [name for name in dict.fromkeys(_names(failed)) if name in kept and name not in KEYWORDS][:MAX_NAMES]


def _names(step: Step) -> list[str]:
    return [word.lower() for word in WORD.findall(text_of(step.arguments)[:CALL_CHARACTERS])]


def _shown(step: Step) -> set[str]:
    return set() if step.failed else words_of(step.result, RESULT_CHARACTERS) - KEYWORDS


def _candidate(judgment: Judgment, failed: Step, names: list[str]) -> Candidate:
    trajectory, tool, error = judgment.trajectory, failed.tool, error_text(failed)
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "looked up", failed.pattern or ""),
        kind="recovery",
        side="success",
        rank=(),
        delayed=True,
        least_goals=SEVERAL_GOALS,
        title=f"{tool}: {line(error, 90)}",
        description="Sessions that met this error looked up other names, and calls with them worked.",
        content=f"{ERROR}{error}",
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        remedy={"tool": tool},
        calls=tuple(names),
        aspect="names",
        version=VERSION,
    )
