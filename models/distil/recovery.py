"""Distil a recovery: a call failed and a later call of the same tool worked. What was changed, or done in between?

The environment itself showed that it works, so the verdict on the session is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleetlore.fingerprint.fingerprint import argument_shape
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.call_diff import change_key, distance, in_words
from models.distil.formatting import (
    MAX_RESULT,
    MAX_STEP,
    VERSION,
    Calls,
    call_text,
    error_text,
    item_id,
    line,
    parsed,
)
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, origin
from models.memory.quality import ERROR


def recoveries(judgment: Judgment, calls: Calls, failed: list[int], telling: list[int]) -> list[Candidate]:
    """At most one recovery an error: the one with the best rank."""
    working = [place for place, call in enumerate(calls) if worked(judgment, call)]
    last = working[-1] if working else -1
    found = [
        each
        for index in failed
        if index < last and (each := _recovery_of(judgment, calls, working, index, index in telling))
    ]
    best: dict[str | None, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.rank, each.item_id, each.content)):
        best.setdefault(each.pattern, each)
    return list(best.values())


def _recovery_of(judgment: Judgment, calls: Calls, working: list[int], index: int, tells: bool) -> Candidate | None:
    """What got the session past the failed call at `index`, if that can be told.

    Args:
        working: places of the calls that worked.
        tells: the error says what is wrong.
    """
    failed = calls[index]
    # Checks without a comparison of calls come first: comparing is most of the cost of distilling.
    candidates = [place for place in working if place > index and calls[place].tool == failed.tool]
    if not candidates:
        return None
    first = next(_attempts(calls, index, range(index + 1, len(calls))), None)
    # The next attempt decides: if it met the same error, the calls in between did not help.
    if first is None or calls[first[1]].pattern == failed.pattern:
        return None
    between = [call for call in calls[index + 1 : first[1]] if not call.failed]
    unchanged = first[0] == 0
    if unchanged and not between:
        return None  # the error passed by itself
    if not unchanged and any(call.tool != failed.tool for call in between):
        return None  # another tool was called *and* the call was changed: either may have helped
    repairs = _attempts(calls, index, (place for place in candidates if place >= first[1]))
    if unchanged:
        return _prepared_call(judgment, failed, between) if any(True for _ in repairs) else None
    size, later = min((each for each in repairs if each[0]), default=(0, 0))
    words = in_words(failed.arguments, calls[later].arguments) if size else None
    # After "your answer is wrong" another answer is no repair.
    if words is None or not tells:
        return None
    looked_up = [call for call in calls[index + 1 : later] if not call.failed]
    return _changed_call(judgment, failed, calls[later], looked_up, size, words)


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


def _changed_call(
    judgment: Judgment, failed: Step, worked: Step, between: list[Step], size: int, words: str
) -> Candidate:
    """The call works once it is changed."""
    error = error_text(failed)
    content = [f"Failed: {call_text(failed)}", f"{ERROR}{error}"]
    content += [
        f"Looked up: {call_text(step, MAX_STEP)} → {line(step.result, MAX_RESULT)}"
        for step in between[-1:]
        if step.result
    ]
    content += [f"Worked: {call_text(worked)}"]
    content += [f"Change: {words}"] if words else []
    how = f"once the call was changed: {words}" if words else "as the other call quoted below"
    # Sessions with the same change back the same item; if too much was changed, the shape of the call is the key.
    changed = change_key(failed.arguments, worked.arguments)
    key = (changed,) if changed is not None else (worked.tool, argument_shape(worked.arguments))
    return _recovery(judgment, failed, worked, key, (size, len(between)), words, how, content)


def _prepared_call(judgment: Judgment, failed: Step, between: list[Step]) -> Candidate:
    """The same call works after another call."""
    remedy = between[-1]
    content = [f"Failed: {call_text(failed)}", f"{ERROR}{error_text(failed)}"]
    content += [f"Then: {call_text(step, MAX_STEP)}" for step in between[-3:]]
    content += ["Got past it: the same call again"]
    first, how = f"first {call_text(remedy, 80)}", f"unchanged after {call_text(remedy, MAX_STEP)}"
    key = (remedy.tool, argument_shape(remedy.arguments))
    return _recovery(judgment, failed, remedy, key, (0, len(between)), first, how, content)


def _recovery(
    judgment: Judgment,
    failed: Step,
    remedy: Step,
    key: tuple[str, ...],
    rank: tuple[int, int],
    short: str,
    how: str,
    content: list[str],
) -> Candidate:
    trajectory = judgment.trajectory
    tool, error = failed.tool, error_text(failed)
    probability = judgment.verdict.probability
    trust = 0 if probability > SUCCESS_ABOVE else 2 if probability < FAILURE_BELOW else 1
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", failed.pattern or "", *key),
        kind="recovery",
        side="success",
        rank=(trust, *rank),
        title=line(f"{tool}: {line(error, 90)} — {short or 'a call that works'}", 200),
        description=f"{tool} got past this error {how}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        remedy={"tool": remedy.tool, "arguments": parsed(remedy.arguments)},
        version=VERSION,
    )
