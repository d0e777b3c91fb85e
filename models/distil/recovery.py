"""Distil recoveries: what got a session past a failed call, and what was tried in vain.

A case is a failed call and the next attempt at the same thing. What lies between the two is tried:

change         the call itself was changed. It helped if the class of the failure is gone and a changed call worked
preparation    another call worked in between. It helped if the very same call then no longer met the error's *cause*
               (`fleetlore.fingerprint.fingerprint.cause_of`: names left out), so what helped with one calendar counts
               for the next; values that the error or the failed call names, and literals, stay open

A session backs what helped more often than not, and contradicts it otherwise. A preparation is also contradicted where
it had been made before the error came, and where the same call worked in this session without it: so a tool without
effect gets no credit. What is left to chance, the counts of many sessions tell. The environment itself showed what
works, so the verdict on the session is not needed.

An item's id is made of all that it says, so its evidence is of that very text. Pure and deterministic.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from fleetlore.fingerprint.fingerprint import arguments_text, cause_of, cause_text, failure_of, object_of
from fleetlore.fingerprint.literals import masked_text, masked_value
from fleetlore.wire.trajectory import MAX_TEXT, Judgment, Step
from fleetlore.words import PART, WORD
from models.cases import MAX_STEP, VERSION, Calls, error_text, is_shown_to_work, item_id, known_of, line, named_by, said
from models.distil.call_diff import Difference, distance, is_of_one_value, masked_difference
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin
from models.memory.quality import ERROR, is_dangerous, is_plain, names_all

__all__ = ["LESS"]

# Candidates of one session: an agent that is stuck tries everything. What helped comes first.
_MAX_RECOVERIES = 48
# The last calls between a failure and the next attempt, and as much of one in free text as can be shown.
_MAX_PREPARATIONS = 6
_MAX_WORDS = 160
_MIN_NAME = 3

# An error that rejects what it names, and does not only report on it.
_REJECTS = re.compile(
    r"unknown|unrecogni[sz]ed|unexpected|unsupported|invalid|illegal|unmatched|unterminated|ambiguous|duplicate|syntax|"
    r"not (?:a|an|found|defined|allowed|supported|recogni[sz]ed|permitted|valid|known)|no such|does(?:n't| not) exist|"
    r"no attribute|cannot|extra|too many",
    re.I,
)
# What leaves out a part of what was asked for, or hides that it failed.
LESS = re.compile(
    r"\|\| *(?:true|:)|2> */dev/null|(?:^|\s)(?:-k|--ignore|--deselect|--exclude|--skip|--no-verify)\b|\bset \+e"
)
_UNDEFINED = re.compile(
    r"\bnot defined|undefined (?:name|variable|identifier|symbol|local)|undeclared|unresolved", re.I
)
_FAILED_CHECK = "AssertionError"
_CHECK = re.compile(r"\bassert\b")


class _Way(NamedTuple):
    """A change of a failed call, or a call that prepares: `done`, and the error that it is against, as they are shown.

    `about`: the class of the failure, or its cause.
    """

    about: str
    error: str
    done: str


@dataclass(slots=True)
class _Tried:
    """What one session tried.

    Attributes:
        failed: the call that failed first; `by`: the call that worked, or the one that prepared.
        open: of a preparation: arguments whose values are the session's own, or named by the error or the failed call.
        past, again: how often the error was gone at the next attempt, and how often it came again.
        delayed: whether it was not the session's next call.
    """

    failed: Step
    by: Step
    change: Difference | None = None
    arguments: Any = None
    open: tuple[str, ...] = ()
    past: int = 0
    again: int = 0
    delayed: bool = True


def recoveries(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """At most `_MAX_RECOVERIES` candidates, those that helped first.

    Args:
        telling: places of the calls with a permanent failure whose error says what is wrong.
    """
    tried = _tried(judgment, calls, telling)
    found = sorted(tried.items(), key=lambda each: each[1].past <= each[1].again)
    return [_candidate(judgment, way, each) for way, each in found[:_MAX_RECOVERIES] if each.past or each.again]


def _tried(judgment: Judgment, calls: Calls, telling: list[int]) -> dict[_Way, _Tried]:
    found: dict[_Way, _Tried] = {}
    needless: set[str] = set()
    first = {call.pattern: place for place, call in reversed(list(enumerate(calls)))}
    last_worked = max((place for place, call in enumerate(calls) if not call.failed), default=-1)
    for place in telling:
        if place > last_worked:
            break
        failed = calls[place]
        attempt = next((at for at in range(place + 1, len(calls)) if _tries_the_same(calls[at], failed)), None)
        if attempt is None:
            continue
        after = calls[attempt]
        works = [
            at
            for at in range(attempt, len(calls))
            if is_shown_to_work(judgment, calls[at]) and _tries_the_same(calls[at], failed)
        ]
        between = [at for at in range(place + 1, attempt) if not calls[at].failed]
        same = _is_same(failed, after)
        gone = after.pattern is None or _cause(after) != _cause(failed)
        if gone and same and not between:
            needless.add(_cause(failed))
        for way, made in _preparations(calls, failed, between):
            each = found.setdefault(way, made)
            each.past += bool(gone and same and works)
            each.again += not gone
        if not same and (changed := _change(calls, failed, after, works, between)) is not None:
            way, made = changed
            each = found.setdefault(way, made)
            each.past, each.again = each.past + (made.past or 0), each.again + (made.again or 0)
            made.delayed = works[0] > first[failed.pattern] + 1 if works else True
    _contradict(calls, telling, found, needless)
    return found


def _change(
    calls: Calls, failed: Step, after: Step, works: list[int], between: list[int]
) -> tuple[_Way, _Tried] | None:
    """The change that got past the failure, or else the one at the next attempt that met it again."""
    helped = after.pattern != failed.pattern
    sizes = [(size, at) for at in works if (size := distance(failed.arguments, calls[at].arguments))]
    by = calls[min(sizes)[1]] if helped and sizes else after
    if failed.is_cut or by.is_cut or (helped and not sizes):
        return None
    # Of a value many sessions decide. Of all else: where another tool was called *and* the call was changed, either may
    # have helped; and a failed attempt may have failed for another reason, so it contradicts nothing.
    of_value_alone = not helped or any(calls[at].tool != failed.tool for at in between)
    # Asked first: to compare two texts takes as long as all else does, and most attempts meet the error again.
    if of_value_alone and not is_of_one_value(failed.arguments, by.arguments):
        return None
    change = masked_difference(failed.arguments, by.arguments, known_of(failed), named_by(failed))
    if change is None or (helped and (_is_less(failed, by, change) or _is_authors(failed, change))):
        return None
    if of_value_alone and change.value is None:
        return None
    tried = _Tried(failed, by, change, past=int(helped), again=int(not helped))
    return _Way(failed.pattern or "", error_text(failed), change.text), tried


def _contradict(calls: Calls, telling: list[int], found: dict[_Way, _Tried], needless: set[str]) -> None:
    """Count against preparations that they stood before the error as well, or that it passes without them."""
    causes = {way.about for way, each in found.items() if each.change is None}
    for place in telling if causes else ():
        if _cause(calls[place]) in causes:
            since = max((at for at in range(place) if _tries_the_same(calls[at], calls[place])), default=-1)
            if since < 0 or not calls[since].failed:  # else it was counted as what was tried between the two
                before = [at for at in range(since + 1, place) if not calls[at].failed]
                for way, _ in _preparations(calls, calls[place], before):
                    if way in found:
                        found[way].again += 1
    for way, each in found.items():
        if way.about in needless and each.change is None:
            each.past = 0


def _tries_the_same(call: Step, other: Step) -> bool:
    return (
        call.tool == other.tool
        and not (call.failed and call.transient)
        and distance(other.arguments, call.arguments) is not None
    )


def _is_same(call: Step, other: Step) -> bool:
    """Whether two calls of a tool are surely the same."""
    return not call.is_cut and distance(call.arguments, other.arguments) == 0


def _preparations(calls: Calls, failed: Step, places: list[int]) -> Iterator[tuple[_Way, _Tried]]:
    """The calls at these places that prepare the failed one, each once."""
    seen: set[_Way] = set()
    names = _named(f"{failed.error_message or ''} {failed.arguments}")
    for call in [calls[at] for at in places if not _tries_the_same(calls[at], failed)][-_MAX_PREPARATIONS:]:
        values = _values(call.arguments)
        arguments: Any = masked_text(call.arguments)
        left_open: tuple[str, ...] = ()
        if values is not None:
            arguments = {
                name: f"<{name}>" if _is_named(value, names) else masked_value(name, value)
                for name, value in values.items()
            }
            left_open = tuple(sorted([name for name, value in values.items() if arguments[name] != value]))
        elif call.is_cut or len(arguments) > _MAX_WORDS:
            continue
        done = f"{call.tool}({line(arguments_text(arguments), MAX_STEP)})"
        cause, text = _cause_and_text(failed.tool, failed.arguments, failed.error_type, failed.error_message)
        way = _Way(cause, line(text, MAX_STEP), done)
        if way not in seen:
            seen.add(way)
            yield way, _Tried(failed, call, arguments=arguments, open=left_open)


def _is_less(failed: Step, worked: Step, change: Difference) -> bool:
    """Whether the call worked because less was asked of it: that solves another task, not this one.

    What was only dropped was wrong if the error rejects it by name.
    """
    if LESS.search(worked.arguments) and not LESS.search(failed.arguments):
        return True
    removed, added = _words(*change.was), _words(*change.now)
    dropped = set(removed - added)
    if not dropped or added - removed:
        return False
    return not _REJECTS.search(said(failed)) or not dropped <= set(_words(*known_of(failed)))


def _is_authors(failed: Step, change: Difference) -> bool:
    """Whether a change mends what only its author knows: a check of the program's own, its signs, or a name that was
    not defined and is set to some number or exchanged for another. What brings the name from elsewhere (`import math`,
    `math.pi` for `pi`) helps others too.
    """
    if (failed.error_type or said(failed)).startswith(_FAILED_CHECK) and _CHECK.search(failed.arguments):
        return True
    if change.value is not None:
        return False
    if not _words(*change.was, *change.now):
        return True
    if not _UNDEFINED.search(said(failed)):
        return False
    if change.was:
        return len(change.was) != len(change.now) or not all(
            new.endswith(f".{old}") for new, old in zip(change.now, change.was, strict=True)
        )
    words = {word for word in _words(*change.now) if any(map(str.isalpha, word)) and word != "number"}
    return words <= named_by(failed)


def _words(*parts: str) -> Counter[str]:
    found = Counter[str]()
    for part in parts:
        found.update(WORD.findall(part.casefold()))
    return found


def _cause(step: Step) -> str:
    return _cause_and_text(step.tool, step.arguments, step.error_type, step.error_message)[0]


@lru_cache(maxsize=8192)
def _cause_and_text(tool: str, arguments: str, error_type: str | None, message: str | None) -> tuple[str, str]:
    failure = failure_of(tool, arguments, error_type, message)
    return cause_of(failure, arguments), cause_text(failure, arguments)


@lru_cache(maxsize=8192)
def _values(arguments: str) -> dict[str, Any] | None:
    """Arguments that are an object; None for all else."""
    if not arguments:
        return {}
    return object_of(arguments) if len(arguments) <= MAX_TEXT else None


@lru_cache(maxsize=8192)
def _named(text: str) -> frozenset[str]:
    return frozenset([part.casefold() for part in PART.findall(text) if len(part) >= _MIN_NAME])


def _is_named(value: Any, names: frozenset[str]) -> bool:
    return isinstance(value, str | int | float) and not _named(str(value)).isdisjoint(names)


def _candidate(judgment: Judgment, way: _Way, tried: _Tried) -> Candidate:
    trajectory, tool = judgment.trajectory, tried.failed.tool
    made, id = origin(trajectory), item_id(trajectory.tenant, "recovery", tool, *way)
    if tried.past <= tried.again:
        return Candidate(**made, item_id=id, kind="recovery", side="failure", version=VERSION)
    change = tried.change
    told = f"{ERROR}{way.error}\nThen: {way.done}\nGot past it: the same call again"
    remedy: dict[str, Any] = {"tool": tried.by.tool}
    if change is None:
        remedy |= {"arguments": tried.arguments, "open": list(tried.open)}
    else:
        told = f"{ERROR}{way.error}\nChange: {way.done}"
        remedy |= {"change": list(change.value)} if change.value is not None else {}
    is_rejected = change is None or change.value is None or _is_named(change.value[1], _named(said(tried.failed)))
    return Candidate(
        **made,
        item_id=id,
        kind="recovery",
        side="success",
        delayed=tried.delayed,
        # A value that the error does not reject by name may be wrong for one task only.
        least_goals=1 if is_rejected else SEVERAL_GOALS,
        title=line(f"{tool}: {line(way.error, 90)} — {line(way.done, 90)}", 200),
        description=f"{tool} got past this error by {way.done}.",
        content=told,
        when=f"{tool} fails with: {way.error}",
        tool=tool,
        pattern=tried.failed.pattern,
        cause=_cause(tried.failed) if change is None or change.value is not None else None,
        remedy=remedy,
        was=change.was if change is not None else (),
        now=change.now if change is not None else (),
        plain=change is not None and is_plain(change.was, change.now),
        named=change is not None and names_all(way.error, change.now),
        danger=is_dangerous(tried.by, tried.failed if change is not None else None),
        version=VERSION,
    )
