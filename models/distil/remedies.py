"""What got past an error and what did not: preparations and changed arguments, counted over sessions and over names.

A recovery of a failure's class (`models.distil.distiller`) quotes what one session did, and a class keeps names, so what helped with
one table says nothing of the next. Here an error is met by its *cause* (`fleetlore.fingerprint.fingerprint.cause_of`: names left out), and between the
failed call and the next attempt at the same thing each of these is a remedy by itself:

preparation    a call of another tool that worked, values that the error or the failed call name left open;
change         one argument that got another value.

A session backs a remedy where the next attempt did not meet the error again more often than it did, and speaks against it
otherwise. What one session cannot tell apart (it prepared two things and changed an argument) the counts of many can: what
was only there by chance is also there where the error came again. Pure and deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import cause_of, failure_of
from fleetlore.wire.trajectory import Step
from models.distil.call_diff import distance

# Of the calls between a failure and the next attempt, the last ones; of what a call says, as much as a call of few arguments needs.
MAX_PREPARATIONS = 6
MAX_ARGUMENTS = 300
MAX_VALUE = 48
MIN_NAME = 3

_PART = re.compile(r"[^\W_]+")

Calls = Sequence[Step]


class Example(NamedTuple):
    """Places in a session: the call that failed, the preparation (None for a change), the later call of the same tool.

    The later call is the one that worked; of what was in vain, the one that met the error again.
    """

    failed: int
    prepared: int | None
    later: int


@dataclass(slots=True)
class Remedy:
    """One remedy of one cause in one session.

    Attributes:
        key: what it is, names left out: equal for sessions that did the same.
        past, again: how often the error was gone at the next attempt, and how often it came again.
        open: names of the arguments of a preparation that the error or the failed call name.
        change: of a change: (name of the argument, value that failed, value instead).
        examples, vain: where the error was gone, and where it came again.
    """

    key: tuple[str, ...]
    past: int = 0
    again: int = 0
    open: tuple[str, ...] = ()
    change: tuple[str, Any, Any] | None = None
    examples: list[Example] = field(default_factory=list)
    vain: list[Example] = field(default_factory=list)

    @property
    def helped(self) -> bool:
        return self.past > self.again and bool(self.examples)


def cause(step: Step) -> str:
    """Id of the cause of a failed call."""
    return _cause(step.tool, step.arguments, step.error_type, step.error_message)


@lru_cache(maxsize=8192)
def _cause(tool: str, arguments: str, error_type: str | None, message: str | None) -> str:
    return cause_of(failure_of(tool, arguments, error_type, message), arguments)


def remedies(calls: Calls, failed: Sequence[int], telling: Collection[int]) -> dict[tuple[str, ...], Remedy]:
    """What was tried against the errors of a session, by cause and key, in the order of the session.

    Args:
        failed: places of the calls that failed for a reason that stays.
        telling: those of them whose error says what is wrong: of an answer that was called wrong, another answer is no remedy.
    """
    found: dict[tuple[str, ...], Remedy] = {}
    worked_last = {call.tool: place for place, call in enumerate(calls) if not call.failed}
    for place in failed:
        before = calls[place]
        # To find the next attempt means to compare texts, and most failures teach nothing: nothing else was done after them, and what
        # was called is no object whose values could be told apart.
        if _values(before.arguments) is None and all(
            at < place for tool, at in worked_last.items() if tool != before.tool
        ):
            continue
        after = next(_attempts(calls, place), None)
        tried = [] if after is None else list(_between(calls, place, after))
        if after is None or not tried:
            continue
        met = cause(before)
        gone = calls[after].pattern is None or cause(calls[after]) != met
        worked = next((each for each in _attempts(calls, place) if not calls[each].failed), None) if gone else None
        if gone and worked is None:
            continue  # the tool never worked again: nothing shows that this was a way
        for remedy, prepared in tried:
            if remedy.change is not None and place not in telling:
                continue
            known = found.setdefault((met, *remedy.key), remedy)
            if not gone:
                known.again += 1
                known.vain.append(Example(place, prepared, after))
            elif worked is not None and _shows(known, calls[worked]):
                known.past += 1
                known.examples.append(Example(place, prepared, worked))
    return found


def _attempts(calls: Calls, place: int) -> Iterator[int]:
    """Places of the later calls that try the same thing, those left out that met the network's weather."""
    before = calls[place]
    for later in range(place + 1, len(calls)):
        call = calls[later]
        if call.tool == before.tool and not call.transient and distance(before.arguments, call.arguments) is not None:
            yield later


def _between(calls: Calls, place: int, after: int) -> Iterator[tuple[Remedy, int | None]]:
    """What was done between a failed call and the next attempt, each remedy once."""
    before = calls[place]
    if (change := _change(before.arguments, calls[after].arguments)) is not None:
        yield Remedy(("change", change[0], _json(change[1]), _json(change[2])), change=change), None
    made = [each for each in range(place + 1, after) if not calls[each].failed and calls[each].tool != before.tool]
    seen: set[tuple[str, ...]] = set()
    for each in made[-MAX_PREPARATIONS:]:
        call = calls[each]
        values = _values(call.arguments)
        if values is None:
            continue
        names = _named(f"{before.error_message or ''} {before.arguments}")
        open_names = tuple(name for name in sorted(values) if _is_named(values[name], names))
        kept = {name: value for name, value in values.items() if name not in open_names}
        key = ("after", call.tool, " ".join(open_names), _json(kept))
        if key not in seen:
            seen.add(key)
            yield Remedy(key, open=open_names), each


def _shows(remedy: Remedy, worked: Step) -> bool:
    """Of a change: the call that worked in the end has the new value still."""
    if remedy.change is None:
        return True
    name, _, value = remedy.change
    values = _values(worked.arguments)
    return values is not None and values.get(name) == value and type(values[name]) is type(value)


@lru_cache(maxsize=8192)
def _change(failed: str, later: str) -> tuple[str, Any, Any] | None:
    """The one argument that has another value, both of them short and plain."""
    old, new = _values(failed), _values(later)
    if old is None or new is None or old.keys() != new.keys():
        return None
    changed = [name for name in sorted(old) if _json(old[name]) != _json(new[name])]
    if len(changed) != 1:
        return None
    name = changed[0]
    if not all(_is_plain(value) for value in (old[name], new[name])):
        return None
    return name, old[name], new[name]


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and 0 < len(value) <= MAX_VALUE)


@lru_cache(maxsize=8192)
def _values(arguments: str) -> dict[str, Any] | None:
    """Arguments that are a small object; None for all else."""
    if len(arguments) > MAX_ARGUMENTS or not arguments.startswith("{"):
        return None if arguments else {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


@lru_cache(maxsize=8192)
def _named(text: str) -> frozenset[str]:
    return frozenset([part.casefold() for part in _PART.findall(text) if len(part) >= MIN_NAME])


def _is_named(value: Any, names: frozenset[str]) -> bool:
    return isinstance(value, str | int | float) and not _named(str(value)).isdisjoint(names)


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
