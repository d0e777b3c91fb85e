"""Count what got past an error and what did not: preparations and changed arguments, over sessions and over names.

A recovery of a failure's class (`models.distil.recovery`) quotes what one session did. A class keeps names, so what
helped with one table says nothing of the next. Here an error counts by its *cause*
(`fleetlore.fingerprint.fingerprint.cause_of`: names left out). Between the failed call and the next attempt at the same
thing, each of these is a remedy of its own:

preparation    a call of another tool that worked; values that the error or the failed call names stay open
change         one argument that got another value

A session backs a remedy if the error was gone at the next attempt more often than it came again, and contradicts it
otherwise. One session cannot tell apart two preparations and a change; the counts of many can, because a remedy that
was present by chance is also present where the error came again. Pure and deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import cause_of, failure_of
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.call_diff import distance
from models.distil.formatting import MAX_STEP, VERSION, Calls, call_text, error_text, item_id, line, parsed
from models.distil.resets import ActivePreparation, resets_of
from models.memory.candidate import Candidate, origin
from models.memory.quality import ERROR, TRIED

# Candidates of one session: an agent that is stuck tries everything. What helped comes first.
MAX_REMEDIES = 48
# The last calls between a failure and the next attempt, and as much of a call as few arguments need.
MAX_PREPARATIONS = 6
MAX_ARGUMENTS = 300
MAX_VALUE = 48
MIN_NAME = 3

_PART = re.compile(r"[^\W_]+")


class Attempt(NamedTuple):
    """Places in a session: the failed call, the preparation (None for a change), and the later call of the same tool.

    The later call is the one that worked, or the one that met the error again.
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
        open: arguments of a preparation whose values the error or the failed call names.
        change: (name of the argument, value that failed, value instead).
        successes, failures: attempts at which the error was gone, and at which it came again.
    """

    key: tuple[str, ...]
    past: int = 0
    again: int = 0
    open: tuple[str, ...] = ()
    change: tuple[str, Any, Any] | None = None
    successes: list[Attempt] = field(default_factory=list)
    failures: list[Attempt] = field(default_factory=list)

    @property
    def helped(self) -> bool:
        return self.past > self.again and bool(self.successes)


def remedies_of(judgment: Judgment, calls: Calls, failed: Sequence[int], telling: Collection[int]) -> list[Candidate]:
    """At most `MAX_REMEDIES` candidates, those that helped first, and what reset them (`models.distil.resets`).

    Args:
        failed, telling: as in `remedies`.
    """
    tried = [
        (met, remedy) for (met, *_), remedy in remedies(calls, failed, telling).items() if remedy.helped or remedy.again
    ]
    tried.sort(key=lambda each: not each[1].helped)
    found = [_candidate(judgment, calls, met, remedy) for met, remedy in tried[:MAX_REMEDIES]]
    active = [_active(calls, failed, *each) for each in tried if each[1].helped and each[1].change is None]
    return found + resets_of(judgment, calls, active)


def cause(step: Step) -> str:
    """Id of the cause of a failed call."""
    return _cause(step.tool, step.arguments, step.error_type, step.error_message)


@lru_cache(maxsize=8192)
def _cause(tool: str, arguments: str, error_type: str | None, message: str | None) -> str:
    return cause_of(failure_of(tool, arguments, error_type, message), arguments)


def remedies(calls: Calls, failed: Sequence[int], telling: Collection[int]) -> dict[tuple[str, ...], Remedy]:
    """The remedies that a session tried, by cause and key, in the order of the session.

    Args:
        failed: places of the calls with a permanent failure.
        telling: those whose error says what is wrong: another answer is no remedy of "your answer is wrong".
    """
    found: dict[tuple[str, ...], Remedy] = {}
    worked_last = {call.tool: place for place, call in enumerate(calls) if not call.failed}
    for place in failed:
        before = calls[place]
        # Finding the next attempt compares texts, so it is skipped for the many failures that teach nothing: no other
        # tool worked after them, and their arguments are no object whose values could differ.
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
            continue  # the tool never worked again: nothing shows that the remedy helped
        for remedy, prepared in tried:
            if remedy.change is not None and place not in telling:
                continue
            known = found.setdefault((met, *remedy.key), remedy)
            if not gone:
                known.again += 1
                known.failures.append(Attempt(place, prepared, after))
            elif worked is not None and _shows(known, calls[worked]):
                known.past += 1
                known.successes.append(Attempt(place, prepared, worked))
    return found


def _attempts(calls: Calls, place: int) -> Iterator[int]:
    """Places of the later calls that try the same thing, without transient failures."""
    before = calls[place]
    for later in range(place + 1, len(calls)):
        call = calls[later]
        if call.tool == before.tool and not call.transient and distance(before.arguments, call.arguments) is not None:
            yield later


def _between(calls: Calls, place: int, after: int) -> Iterator[tuple[Remedy, int | None]]:
    """Remedies between a failed call and the next attempt, each once."""
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
    """Whether the call that worked still has the changed value; True for a preparation."""
    if remedy.change is None:
        return True
    name, _, value = remedy.change
    values = _values(worked.arguments)
    return values is not None and values.get(name) == value and type(values[name]) is type(value)


@lru_cache(maxsize=8192)
def _change(failed: str, later: str) -> tuple[str, Any, Any] | None:
    """The single argument whose value differs, if both values are short and plain."""
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


def _active(calls: Calls, failed: Sequence[int], met: str, remedy: Remedy) -> ActivePreparation:
    first = remedy.successes[0]
    again = frozenset([place for place in failed if place > first.later and cause(calls[place]) == met])
    return ActivePreparation(calls[first.failed].tool, again, calls[first.prepared or 0].tool, first.later)


def _candidate(judgment: Judgment, calls: Calls, met: str, remedy: Remedy) -> Candidate:
    trajectory, helped = judgment.trajectory, remedy.helped
    rank, attempt = min((_rank(calls, each), each) for each in (remedy.successes if helped else remedy.failures))
    before, later = calls[attempt.failed], calls[attempt.later]
    tool, error = before.tool, error_text(before)
    content = [f"Failed: {call_text(before)}", f"{ERROR}{error}"]
    if attempt.prepared is None:
        name, old, new = remedy.change or ("", None, None)
        said = f"`{name}={old}` → `{name}={new}`"
        helps = {"tool": tool, "arguments": parsed(later.arguments), "change": [name, old, new]}
    else:
        prepared = calls[attempt.prepared]
        said = call_text(prepared, MAX_STEP)
        helps = {"tool": prepared.tool, "arguments": parsed(prepared.arguments), "open": list(remedy.open)}
        content.append(f"Then: {said}" if helped else f"{TRIED}{said}")
    if helped:
        content.append(f"Worked: {call_text(later)}")
    named = f" (`{'`, `'.join(remedy.open)}`: as in the error or the call)" if remedy.open else ""
    verb = "got past this error" if helped else "met this error again"
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "cause", met, *remedy.key),
        kind="recovery",
        side="success" if helped else "failure",
        rank=rank,
        title=line(f"{tool}: {line(error, 90)} — {'' if helped else 'not '}{line(said, 90)}", 200),
        description=f"{tool} {verb} after {said}{named}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=before.pattern,
        cause=met,
        remedy=helps,
        version=VERSION,
    )


def _rank(calls: Calls, attempt: Attempt) -> tuple[int, int]:
    """The best example is the plainest: the failed call repeated unchanged, after few steps."""
    same = calls[attempt.failed].arguments == calls[attempt.later].arguments
    return int(not same), attempt.later - attempt.failed
