"""Count what got past an error and what did not: preparations and changed arguments, over sessions and over names.

A recovery of a failure's class (`models.distil.recovery`) shows what one session changed. A class keeps names, so what
helped with one table says nothing of the next. Here an error counts by its *cause*
(`fleetlore.fingerprint.fingerprint.cause_of`: names left out). Between the failed call and the next attempt at the same
thing, each of these is a remedy of its own:

preparation    another call that worked; values that the error or the failed call names, and literals, stay open
change         one argument that got another value; it is told once sessions of several goals back it

A session backs a remedy if the error was gone at the next attempt more often than it came again, and contradicts it
otherwise. A preparation is backed only where the next attempt was the very same call: a changed call may work by its
change. And it is contradicted where it had been made before the error came, and where the same call worked in this
session without it: so a tool without effect gets no credit. What is left to chance, the counts of many sessions tell,
because a remedy that was present by chance is also present where the error came again. Pure and deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import arguments_text, cause_of, failure_of, parsed
from fleetlore.fingerprint.literals import is_identity, masked_arguments, masked_text, masked_value
from fleetlore.wire.trajectory import MAX_TEXT, Judgment, Step
from models.distil.call_diff import distance
from models.distil.formatting import MAX_STEP, VERSION, Calls, call_text, error_text, item_id, known_of, line, near
from models.distil.resets import ActivePreparation, resets_of
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin
from models.memory.quality import ERROR, TRIED

# Candidates of one session: an agent that is stuck tries everything. What helped comes first.
MAX_REMEDIES = 48
# The last calls between a failure and the next attempt, and as much of one in free text as can be shown.
MAX_PREPARATIONS = 6
MAX_WORDS = 160
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
        arguments: of a preparation, as others may read them: open values as `<name>`.
        open: those of its arguments whose values are its session's own, or named by the error or the failed call.
        change: (name of the argument, value that failed, value instead).
        successes, failures: attempts at which the error was gone, and at which it came again.
    """

    key: tuple[str, ...]
    past: int = 0
    again: int = 0
    arguments: Any = None
    open: tuple[str, ...] = ()
    change: tuple[str, Any, Any] | None = None
    successes: list[Attempt] = field(default_factory=list)
    failures: list[Attempt] = field(default_factory=list)

    @property
    def helped(self) -> bool:
        return self.past > self.again and bool(self.successes)


def remedies_of(judgment: Judgment, calls: Calls, failed: Sequence[int]) -> list[Candidate]:
    """At most `MAX_REMEDIES` candidates, those that helped first, and what reset them (`models.distil.resets`).

    Args:
        failed: as in `remedies`.
    """
    tried = [(met, remedy) for (met, *_), remedy in remedies(calls, failed).items() if remedy.helped or remedy.again]
    tried.sort(key=lambda each: not each[1].helped)
    found = [_candidate(judgment, calls, met, remedy) for met, remedy in tried[:MAX_REMEDIES]]
    active = [_active(calls, failed, *each) for each in tried if each[1].helped and each[1].change is None]
    return found + resets_of(judgment, calls, active) if active else found


def cause(step: Step) -> str:
    """Id of the cause of a failed call."""
    return _cause(step.tool, step.arguments, step.error_type, step.error_message)


@lru_cache(maxsize=8192)
def _cause(tool: str, arguments: str, error_type: str | None, message: str | None) -> str:
    return cause_of(failure_of(tool, arguments, error_type, message), arguments)


def remedies(calls: Calls, failed: Sequence[int]) -> dict[tuple[str, ...], Remedy]:
    """The remedies that a session tried, by cause and key, in the order of the session.

    Args:
        failed: places of the calls with a permanent failure whose error says what is wrong.
    """
    found: dict[tuple[str, ...], Remedy] = {}
    worked_last = {call.tool: place for place, call in enumerate(calls) if not call.failed}
    same_last = {(call.tool, call.arguments): place for place, call in enumerate(calls) if not call.failed}
    needless: set[str] = set()
    for place in failed:
        before = calls[place]
        # Finding the next attempt compares texts, so it is skipped for the many failures that teach nothing: neither
        # another tool nor the same call worked after them, and their arguments are no object whose values could differ.
        if (
            _values(before.arguments) is None
            and same_last.get((before.tool, before.arguments), -1) < place
            and all(at < place for tool, at in worked_last.items() if tool != before.tool)
        ):
            continue
        after = next(_attempts(calls, place), None)
        if after is None:
            continue
        met, unchanged = cause(before), _is_same(before, calls[after])
        tried = list(_between(calls, place, after))
        gone = calls[after].pattern is None or cause(calls[after]) != met
        if gone and unchanged and not tried:
            needless.add(met)
        if not tried:
            continue
        worked = next((each for each in _attempts(calls, place) if not calls[each].failed), None) if gone else None
        if gone and worked is None:
            continue  # the tool never worked again: nothing shows that the remedy helped
        for remedy, prepared in tried:
            known = found.setdefault((met, *remedy.key), remedy)
            if not gone:
                known.again += 1
                known.failures.append(Attempt(place, prepared, after))
            elif worked is not None and (unchanged if remedy.change is None else _shows(remedy, calls[worked])):
                known.past += 1
                known.successes.append(Attempt(place, prepared, worked))
    if found:
        _contradict(calls, failed, found, needless)
    return found


def _contradict(
    calls: Calls, failed: Sequence[int], found: Mapping[tuple[str, ...], Remedy], needless: Collection[str]
) -> None:
    """Count against preparations that they stood before the error as well, or that it passes without them."""
    causes = {met for met, *key in found if key[0] == "after"}
    for place in failed:
        if (met := cause(calls[place])) not in causes:
            continue
        since = max((at for at in range(place) if _tries_the_same(calls[at], calls[place])), default=-1)
        if since >= 0 and calls[since].failed:
            continue  # counted as what was tried between the two
        for made, prepared in _preparations(calls, place, range(since + 1, place)):
            if (remedy := found.get((met, *made.key))) is not None:
                remedy.again += 1
                remedy.failures.append(Attempt(place, prepared, place))
    for (met, *_), remedy in found.items():
        if met in needless and remedy.change is None:
            remedy.past = 0


def _attempts(calls: Calls, place: int) -> Iterator[int]:
    """Places of the later calls that try the same thing, without transient failures."""
    for later in range(place + 1, len(calls)):
        if not calls[later].transient and _tries_the_same(calls[later], calls[place]):
            yield later


def _tries_the_same(call: Step, other: Step) -> bool:
    return call.tool == other.tool and distance(other.arguments, call.arguments) is not None


def _is_same(call: Step, other: Step) -> bool:
    """Whether two calls of a tool are surely the same."""
    return not call.is_cut and distance(call.arguments, other.arguments) == 0


def _between(calls: Calls, place: int, after: int) -> Iterator[tuple[Remedy, int | None]]:
    """Remedies between a failed call and the next attempt, each once."""
    before = calls[place]
    if (change := _change(before.arguments, calls[after].arguments)) is not None:
        yield Remedy(("change", change[0], _json(change[1]), _json(change[2])), change=change), None
    yield from _preparations(calls, place, range(place + 1, after))


def _preparations(calls: Calls, place: int, places: range) -> Iterator[tuple[Remedy, int]]:
    """The calls at these places that prepare the one at `place`, each once."""
    before = calls[place]
    made = [each for each in places if not calls[each].failed and not _tries_the_same(calls[each], before)]
    seen: set[tuple[str, ...]] = set()
    for each in made[-MAX_PREPARATIONS:]:
        remedy = _preparation(calls[each], f"{before.error_message or ''} {before.arguments}")
        if remedy is not None and remedy.key not in seen:
            seen.add(remedy.key)
            yield remedy, each


def _preparation(call: Step, about: str) -> Remedy | None:
    """The call as a remedy; None if it cannot be shown. `about`: words that name what it is about."""
    values = _values(call.arguments)
    if values is None:
        text = masked_text(call.arguments)
        if call.is_cut or len(text) > MAX_WORDS:
            return None
        return Remedy(("after", call.tool, "", text), arguments=text)
    names = _named(about)
    shown = {
        name: f"<{name}>" if _is_named(value, names) else masked_value(name, value) for name, value in values.items()
    }
    left_open = tuple(sorted([name for name, value in values.items() if shown[name] != value]))
    kept = {name: value for name, value in values.items() if name not in left_open}
    return Remedy(("after", call.tool, " ".join(left_open), _json(kept)), arguments=shown, open=left_open)


def _shows(remedy: Remedy, worked: Step) -> bool:
    """Whether the call that worked still has the changed value; True for a preparation."""
    if remedy.change is None:
        return True
    name, _, value = remedy.change
    values = _values(worked.arguments)
    return values is not None and values.get(name) == value and type(values[name]) is type(value)


@lru_cache(maxsize=8192)
def _change(failed: str, later: str) -> tuple[str, Any, Any] | None:
    """The single argument whose value differs, if it names no thing, and both values are short and plain."""
    old, new = _values(failed), _values(later)
    if old is None or new is None or old.keys() != new.keys():
        return None
    changed = [name for name in sorted(old) if _json(old[name]) != _json(new[name])]
    if len(changed) != 1:
        return None
    name = changed[0]
    if is_identity(name) or not all(_is_plain(value) for value in (old[name], new[name])):
        return None
    return name, old[name], new[name]


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        # A name that looks like a file's may be a setting: tar.gz, python3.12. So may Europe/Berlin, which is no path.
        masked = masked_text(value)
        return 0 < len(value) <= MAX_VALUE and (masked == value or (masked == "<path>" and "/" not in value))
    return isinstance(value, bool | int | float)


@lru_cache(maxsize=8192)
def _values(arguments: str) -> dict[str, Any] | None:
    """Arguments that are an object; None for all else."""
    if not arguments:
        return {}
    value = parsed(arguments) if len(arguments) <= MAX_TEXT else None
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
    tool, error, known = before.tool, error_text(before), known_of(before)
    content = [f"{ERROR}{error}"]
    if remedy.change is not None:
        name, old, new = remedy.change
        said = f"`{name}={old}` → `{name}={new}`"
        known |= {str(value).casefold() for value in (old, new)}
        content += [f"Change: {said}", f"Failed: {call_text(before, known=known)}"]
        content += [f"Worked: {call_text(later, known=known)}"] if helped else []
        helps = {"tool": tool, "arguments": masked_arguments(later.arguments, known), "change": [name, old, new]}
    else:
        by = calls[attempt.prepared or 0].tool
        said = f"{by}({line(arguments_text(remedy.arguments), MAX_STEP)})"
        helps = {"tool": by, "arguments": remedy.arguments, "open": list(remedy.open)}
        content.append(f"Failed: {call_text(before, known=known)}")
        content += [f"Then: {said}", "Got past it: the same call again"] if helped else [f"{TRIED}{said}"]
    verb = "got past this error" if helped else "met this error again"
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "cause", met, *remedy.key),
        kind="recovery",
        side="success" if helped else "failure",
        rank=rank,
        delayed=attempt.later > attempt.failed + 1,
        # A value that the error does not reject by name may be wrong for one task only, and most calls do not help
        # against most errors.
        least_goals=1 if helped and _is_rejected(before, remedy) else SEVERAL_GOALS,
        title=line(f"{tool}: {line(error, 90)} — {'' if helped else 'not '}{line(said, 90)}", 200),
        description=f"{tool} {verb} after {said}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=before.pattern,
        cause=met,
        remedy=helps,
        version=VERSION,
        near=near(trajectory.goal, before) if helped and remedy.change is not None else "",
    )


def _is_rejected(failed: Step, remedy: Remedy) -> bool:
    """Whether the error names the value that was changed; True for a preparation."""
    return remedy.change is None or _is_named(remedy.change[1], _named(failed.error_message or ""))


def _rank(calls: Calls, attempt: Attempt) -> tuple[int, int]:
    """The best example is the plainest: the failed call repeated unchanged, after few steps."""
    same = calls[attempt.failed].arguments == calls[attempt.later].arguments
    return int(not same), attempt.later - attempt.failed
