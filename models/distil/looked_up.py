"""Distil the names that worked after an error had rejected another name, where results had shown them.

What a model brings by itself after an error (`import math`) it needs not be told. A table, a column or an option that
the session first had to look up is news to the next one. Each session states what it looked up and used with success,
of these the name that is spelled most like the rejected one, or else those that share a part with it. A name that
sessions of several goals share becomes an item; where the error does not say where it was met, it is one of what
stood beside the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import product

from fleetlore.advice.changes import says_where
from fleetlore.calls.context import CALL_CHARACTERS, KEYWORDS, RESULT_CHARACTERS, WORD, text_of, words_of
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.wire.lore import INSTEAD_OF
from fleetlore.wire.trajectory import Judgment, Step
from models.cases import is_shown_to_work, worked_after
from models.distil.formatting import VERSION, Calls, error_text, item_id, line, said
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin
from models.memory.danger import is_plain, names_all
from models.memory.quality import ERROR

_MAX_NAMES = 12
# Of an error: names, and names beside each.
MAX_TOLD, MAX_BESIDE = 4, 3


def looked_up(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """For each error that names something of its call, one candidate a name that worked instead."""
    last = {calls[place].pattern: place for place in telling}
    found = []
    for place in last.values():
        failed = calls[place]
        later = [calls[at] for at in worked_after(calls, place, failed.tool)]
        if not any(is_shown_to_work(judgment, call) for call in later):
            continue  # asked first: most errors are met to the end
        rejected = _rejected(failed)
        if rejected and (names := _nearest(rejected, _names_after(judgment, calls, place))):
            beside = [""]
            if not says_where(said(failed)):
                beside = [name for name in _beside(judgment, calls, place) if name not in rejected] or beside
            for name, next_to in product(names[:MAX_TOLD], beside[:MAX_BESIDE]):
                found.append(_candidate(judgment, failed, rejected, name, next_to))
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
        if call.tool == failed.tool and is_shown_to_work(judgment, call):
            names.update(dict.fromkeys(name for name in _names(call) if name in shown and name not in tried))
        shown |= _shown(call)
    return list(names)[:_MAX_NAMES]


def _nearest(rejected: Sequence[str], names: list[str]) -> list[str]:
    """The name spelled like each rejected one; where none is, those that share a part with one: `section_name` for
    `name`. The others are about the task.
    """
    close = [match for name in rejected for match in get_close_matches(name, names, n=1)]
    parts = frozenset[str]().union(*map(_name_parts, rejected))
    return list(dict.fromkeys(close)) or [name for name in names if not parts.isdisjoint(_name_parts(name))]


def _name_parts(name: str) -> frozenset[str]:
    return frozenset(part for part in name.split("_") if part)


def _beside(judgment: Judgment, calls: Calls, place: int) -> list[str]:
    """What stands in the failed call and in the next one of its tool that worked: they are about the same thing."""
    failed = calls[place]
    later = [calls[at] for at in worked_after(calls, place, failed.tool) if is_shown_to_work(judgment, calls[at])]
    kept = {name for call in later if not set(_names(call)).isdisjoint(_names(failed)) for name in _names(call)}
    return [name for name in dict.fromkeys(_names(failed)) if name in kept and name not in KEYWORDS][:_MAX_NAMES]


def _names(step: Step) -> list[str]:
    return [word.lower() for word in WORD.findall(text_of(step.arguments)[:CALL_CHARACTERS])]


def _shown(step: Step) -> set[str]:
    return set() if step.failed else words_of(step.result, RESULT_CHARACTERS) - KEYWORDS


def _candidate(judgment: Judgment, failed: Step, rejected: tuple[str, ...], name: str, beside: str) -> Candidate:
    trajectory, tool, error = judgment.trajectory, failed.tool, error_text(failed)
    told = f"{INSTEAD_OF}{f' beside `{beside}`' if beside else ''}: `{name}`"
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "looked up", tool, failed.pattern or "", error, told, *rejected),
        kind="recovery",
        side="success",
        delayed=True,
        least_goals=SEVERAL_GOALS,
        title=f"{tool}: {line(error, 90)}{told}",
        description="Sessions that met this error looked up another name, and calls with it worked.",
        content=f"{ERROR}{error}\nWorked instead{told.removeprefix(INSTEAD_OF)}",
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        remedy={"tool": tool},
        was=rejected,
        now=(name,),
        plain=is_plain(rejected, (name,)),
        named=names_all(error, (name,)),
        version=VERSION,
    )
