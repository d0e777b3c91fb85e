"""Distil a recovery: the change to a failed call after which it worked, or the call that led out of a loop.

A later call of the same tool worked once it was changed: what was changed? The environment itself showed that it works,
so the verdict on the session is not needed. What one argument's value or another call did is counted elsewhere
(`models.distil.remedies`). Leaving a loop (`fleetlore.fingerprint.loops`) is a recovery from no error, and there the
session must have succeeded for sure: nothing else shows that it helped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from fleetlore.calls.context import text_of
from fleetlore.fingerprint.fingerprint import argument_shape, parsed
from fleetlore.fingerprint.literals import is_code, masked_arguments
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.call_diff import Difference, distance, masked_difference
from models.distil.formatting import (
    VERSION,
    Calls,
    call_text,
    error_text,
    item_id,
    known_of,
    line,
    named_by,
    near,
    said,
)
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, origin
from models.memory.quality import ERROR

# Of each call; what was changed stands before it.
MAX_SHOWN = 120

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
_UNDEFINED = re.compile(r"not defined|undefined|undeclared|unresolved", re.I)
_FAILED_CHECK = "AssertionError"
# A check in a program, to the end of its statement's line.
_CHECK = re.compile(r"\bassert\b[^\n;]*")
# What a command begins with.
_COMMAND = re.compile(r"[A-Za-z_][\w.-]*(?=\s)")


def recoveries(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """At most one recovery an error: the one with the best rank."""
    working = [place for place, call in enumerate(calls) if worked(judgment, call)]
    last = working[-1] if working else -1
    found = [
        each
        for index in telling
        if index < last and (each := _recovery_of(judgment, calls, working, index)) is not None
    ]
    best: dict[str | None, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.rank, each.item_id, each.content)):
        best.setdefault(each.pattern, each)
    return list(best.values())


def _recovery_of(judgment: Judgment, calls: Calls, working: list[int], index: int) -> Candidate | None:
    """What got the session past the failed call at `index`, if that can be told.

    Args:
        working: places of the calls that worked.
    """
    failed = calls[index]
    # Checks without a comparison of calls come first: comparing is most of the cost of distilling.
    candidates = [place for place in working if place > index and calls[place].tool == failed.tool]
    if not candidates or failed.is_cut:
        return None
    first = next(_attempts(calls, index, range(index + 1, len(calls))), None)
    # The next attempt decides: if it met the same error, the calls in between did not help.
    if first is None or first[0] == 0 or calls[first[1]].pattern == failed.pattern:
        return None
    between = [call for call in calls[index + 1 : first[1]] if not call.failed]
    if any(call.tool != failed.tool for call in between):
        return None  # another tool was called *and* the call was changed: either may have helped
    repairs = _attempts(calls, index, (place for place in candidates if place >= first[1]))
    size, later = min((each for each in repairs if each[0]), default=(0, 0))
    if not size or calls[later].is_cut:
        return None
    change = masked_difference(failed.arguments, calls[later].arguments, known_of(failed), named_by(failed))
    if change is None or change.is_value or _is_less(failed, calls[later], change) or _makes_up(failed, change):
        return None
    looked_up = [call for call in calls[index + 1 : later] if not call.failed]
    first_met = next(place for place, call in enumerate(calls) if call.pattern == failed.pattern)
    candidate = _candidate(judgment, failed, calls[later], looked_up, size, change)
    return replace(candidate, delayed=later > first_met + 1)


def _attempts(calls: Calls, index: int, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(how much was changed, place) of the calls that try the same thing as the one at `index`."""
    failed = calls[index]
    for place in places:
        if calls[place].tool == failed.tool:
            size = distance(failed.arguments, calls[place].arguments)
            if size is not None:
                yield size, place


def worked(judgment: Judgment, call: Step) -> bool:
    """Whether something shows that the call worked: a result, a later step, or that the session succeeded.

    No result at the very last step is no evidence: the log may end before the answer.
    """
    shown = bool(call.result) or call is not judgment.trajectory.steps[-1]
    return not call.failed and (shown or judgment.verdict.probability > SUCCESS_ABOVE)


def _is_less(failed: Step, worked: Step, change: Difference) -> bool:
    """Whether the call worked because less was asked of it: that solves another task, not this one.

    What was only dropped was wrong if the error rejects it by name. A check that failed is not met by another check.
    """
    if LESS.search(worked.arguments) and not LESS.search(failed.arguments):
        return True
    if drops_check(failed, worked):
        return True
    dropped = {word for word in change.removed if any(map(str.isalnum, word))}
    if not dropped or any(any(map(str.isalnum, word)) for word in change.added):
        return False
    return not _REJECTS.search(said(failed)) or not dropped <= known_of(failed)


def _makes_up(failed: Step, change: Difference) -> bool:
    """Whether a name that was not defined is only set to some number: what it should be, nobody can know from that."""
    words = {word.lower() for word in change.added if any(map(str.isalpha, word)) and not word.startswith("<")}
    return not change.removed and words <= named_by(failed) and bool(_UNDEFINED.search(said(failed)))


def drops_check(failed: Step, worked: Step) -> bool:
    """Whether a check of the program failed, and the later call does without it."""
    is_check = (failed.error_type or said(failed)).startswith(_FAILED_CHECK)
    return is_check and not _checks(failed) <= _checks(worked)


def _checks(call: Step) -> set[str]:
    """What the program in a call checks, white space left out."""
    return {"".join(check.split()) for check in _CHECK.findall(text_of(call.arguments))}


def _candidate(
    judgment: Judgment, failed: Step, worked: Step, between: list[Step], size: int, change: Difference
) -> Candidate:
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    tool, error, known = failed.tool, error_text(failed), known_of(failed)
    content = [f"{ERROR}{error}", f"Change: {change.text}"]
    content += [f"Looked up before: {call_text(step, known=known)}" for step in between[-1:]]
    content += [f"Failed: {call_text(failed, MAX_SHOWN, known)}", f"Worked: {call_text(worked, MAX_SHOWN, known)}"]
    trust = 0 if probability > SUCCESS_ABOVE else 2 if probability < FAILURE_BELOW else 1
    return Candidate(
        **origin(trajectory),
        # Sessions with the same change back the same item.
        item_id=item_id(trajectory.tenant, "recovery", failed.pattern or "", change.key),
        kind="recovery",
        side="success",
        rank=(trust, size, len(between)),
        title=line(f"{tool}: {line(error, 90)} — {change.text}", 200),
        description=f"{tool} got past this error once the call was changed: {change.text}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        remedy={"tool": worked.tool, "arguments": masked_arguments(worked.arguments, known)},
        version=VERSION,
        near=near(trajectory.goal, failed),
    )


def loop_recoveries(judgment: Judgment, calls: Calls, recoveries: Sequence[Candidate]) -> list[Candidate]:
    """At most one candidate a loop: the call after the session's last step in it.

    Args:
        recoveries: of the session; an error that one of them got past needs no other.
    """
    if judgment.verdict.probability <= SUCCESS_ABOVE:
        return []
    last = {call.loop: place for place, call in enumerate(calls) if call.loop is not None}
    past = {each.pattern for each in recoveries if each.side == "success"}
    found = []
    for loop, place in last.items():
        before = {(call.tool, call.arguments) for call in calls[: place + 1]}
        # What ended the session led nowhere else, and a repeated call may be only another round of the loop.
        after = calls[place + 1] if place + 2 < len(calls) else None
        if after is None or (after.tool, after.arguments) in before or not worked(judgment, after):
            continue
        # Another call of the same kind led out by its values, and those answer its own task.
        if calls[place].pattern not in past and _kind_of_step(after) != _kind_of_step(calls[place]):
            found.append(_way_out(judgment, loop, calls[place], after))
    return found


def _way_out(judgment: Judgment, loop: str, stuck: Step, after: Step) -> Candidate:
    trajectory, step = judgment.trajectory, _kind_of_step(after)
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", loop, after.tool, argument_shape(after.arguments)),
        kind="recovery",
        side="success",
        rank=(len(after.arguments),),
        delayed=True,
        title=line(f"{stuck.tool} in circles — {step}", 200),
        description=f"Sessions that went round here got out of it with another step: {step}.",
        content=f"In circles: {call_text(stuck)}\nLed out of it: {step}",
        when=line(f"{stuck.tool} gives the same again and again: {call_text(stuck)}", 300),
        tool=stuck.tool,
        pattern=loop,
        remedy={"tool": after.tool},
        version=VERSION,
    )


def _kind_of_step(call: Step) -> str:
    """The call without its values: they answer its own task."""
    values = parsed(call.arguments)
    if isinstance(values, dict):
        return f"{call.tool}({', '.join(values)})"
    command = is_code("", call.arguments) and _COMMAND.match(call.arguments)
    return f"{call.tool}({command[0]} …)" if command else call.tool
