"""From one judged session to its contributions to the fleet's memory. Extractive: it quotes what happened and invents nothing.

recovery    a call failed and a later call of the same tool worked: what was changed, or what was done in between. The
            environment itself showed that it works, so the verdict on the session is not needed.
lesson      a session that failed, on a tool that never worked again after that error.
strategy    a task that some sessions solved and others did not: the shortest way that worked against one that did not.

Transient errors (503, time-outs, rate limits) teach nothing. Pure and deterministic: items are keyed by content, so that
contributions of many sessions meet in one item whatever the order of their arrival (`models.item_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import orjson

from fleetlore.patterns import argument_shape, arguments_text, pattern_id
from fleetlore.trajectory import Judgment, Step, Trajectory
from models.call_change import distance, in_words
from models.candidate import Candidate, Side

VERSION = "extractive-1"

# What is unsure never becomes a lesson or a strategy: probabilities of success between these bounds teach neither.
FAILURE_BELOW = 0.2
SUCCESS_ABOVE = 0.8

MAX_GOAL = 160
MAX_CALL = 400
MAX_STEP = 200
MAX_ERROR = 300
MAX_RESULT = 200
MAX_OUTLINE_BYTES = 6_000
MAX_OUTLINE = 24
MAX_ERRORS = 3
MAX_TRIED = 3

# Texts that are kept once they were shortened: goals, errors and calls repeat within a session and between sessions of a
# task, so more than half are found. At most 2,000 characters each: some ten megabytes.
REMEMBERED = 4096

Calls = tuple[Step, ...]


def distil(judgment: Judgment) -> list[Candidate]:
    """What the session contributes: at most one candidate an item, sorted by item id."""
    calls = judgment.trajectory.calls
    found = [*_recoveries(judgment, calls), *_lessons(judgment, calls), *_strategies(judgment, calls)]
    best: dict[str, Candidate] = {}
    for candidate in sorted(found, key=lambda each: (each.item_id, each.rank, each.content)):
        best.setdefault(candidate.item_id, candidate)
    return list(best.values())


def item_id(tenant: str, kind: str, *key: str) -> str:
    """Id of a memory item; a new `VERSION` gives new ids, so items of two distillers never mix."""
    return pattern_id("item", VERSION, tenant, kind, *key)


def _recoveries(judgment: Judgment, calls: Calls) -> list[Candidate]:
    """At most one recovery an error: the one that says most surely what got past it."""
    working = [place for place, call in enumerate(calls) if _worked(judgment, call)]
    found = [
        candidate
        for index, call in enumerate(calls[: working[-1]] if working else ())
        if call.failed and not call.transient and (candidate := _recovery_of(judgment, calls, working, index))
    ]
    best: dict[str | None, Candidate] = {}
    for candidate in sorted(found, key=lambda each: (each.rank, each.item_id, each.content)):
        best.setdefault(candidate.pattern, candidate)
    return list(best.values())


def _recovery_of(judgment: Judgment, calls: Calls, working: list[int], index: int) -> Candidate | None:
    """What got the session past the failed call at `index`, where that can be told.

    Args:
        working: places of the calls that worked.
    """
    failed = calls[index]
    # What can be told without a comparison of calls comes first: comparing is most of the cost of distilling.
    candidates = [place for place in working if place > index and calls[place].tool == failed.tool]
    if not candidates:
        return None
    first = next(_attempts(calls, index, range(index + 1, len(calls))), None)
    # The next attempt decides: if it met the same error, what was done in between did not help; if not, it got past it,
    # though perhaps only as far as the next error.
    if first is None or calls[first[1]].pattern == failed.pattern:
        return None
    between = [call for call in calls[index + 1 : first[1]] if not call.failed]
    unchanged = first[0] == 0
    if unchanged and not between:
        return None  # the error passed by itself
    if not unchanged and any(call.tool != failed.tool for call in between):
        return None  # another tool was called *and* the call was changed: which of them helped cannot be told
    repairs = _attempts(calls, index, (place for place in candidates if place >= first[1]))
    if unchanged:
        return _prepared_call(judgment, failed, between) if any(True for _ in repairs) else None
    size, later = min((each for each in repairs if each[0]), default=(0, 0))
    words = in_words(failed.arguments, calls[later].arguments) if size else None
    if words is None:
        return None
    looked_up = [call for call in calls[index + 1 : later] if not call.failed]
    return _changed_call(judgment, failed, calls[later], looked_up, size, words)


def _attempts(calls: Calls, index: int, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(how much was changed, place) of those calls that try the same thing as the one at `index`."""
    failed = calls[index]
    for place in places:
        if calls[place].tool == failed.tool:
            size = distance(failed.arguments, calls[place].arguments)
            if size is not None:
                yield size, place


def _worked(judgment: Judgment, call: Step) -> bool:
    """Whether something shows that the call worked: a result, a step after it, or that the session succeeded.

    Silence as the very last step is no evidence: the log may end before the answer came.
    """
    shown = bool(call.result) or call is not judgment.trajectory.steps[-1]
    return not call.failed and (shown or judgment.verdict.probability > SUCCESS_ABOVE)


def _changed_call(
    judgment: Judgment, failed: Step, worked: Step, between: list[Step], size: int, words: str
) -> Candidate:
    """The call works when it is made differently."""
    error = _error(failed)
    content = [f"Failed: {_call(failed)}", f"Error: {error}"]
    content += [
        f"Looked up: {_call(step, MAX_STEP)} → {_line(step.result, MAX_RESULT)}" for step in between[-1:] if step.result
    ]
    content += [f"Worked: {_call(worked)}"]
    content += [f"Change: {words}"] if words else []
    how = f"once the call was changed: {words}" if words else "as the other call quoted below"
    return _recovery(judgment, failed, worked, size, len(between), words, how, content)


def _prepared_call(judgment: Judgment, failed: Step, between: list[Step]) -> Candidate:
    """The same call works after something else was done."""
    remedy = between[-1]
    content = [f"Failed: {_call(failed)}", f"Error: {_error(failed)}"]
    content += [f"Then: {_call(step, MAX_STEP)}" for step in between[-3:]]
    content += ["Got past it: the same call again"]
    first = f"first {_call(remedy, 80)}"
    return _recovery(
        judgment, failed, remedy, 0, len(between), first, f"unchanged after {_call(remedy, MAX_STEP)}", content
    )


def _recovery(
    judgment: Judgment, failed: Step, remedy: Step, size: int, between: int, short: str, how: str, content: list[str]
) -> Candidate:
    trajectory = judgment.trajectory
    tool, error = failed.tool, _error(failed)
    # Sessions that made the same change back the same item; a change too long to say is known by the shape of the call.
    key = (short,) if size and short else (remedy.tool, argument_shape(remedy.arguments))
    probability = judgment.verdict.probability
    trust = 0 if probability > SUCCESS_ABOVE else 2 if probability < FAILURE_BELOW else 1
    return Candidate(
        item_id=item_id(trajectory.tenant, "recovery", failed.pattern or "", *key),
        tenant=trajectory.tenant,
        kind="recovery",
        side="success",
        session=trajectory.id,
        agent=trajectory.agent,
        seen=trajectory.ended,
        revision=_revision(trajectory),
        rank=(trust, size, between),
        title=_line(f"{tool}: {_line(error, 90)} — {short or 'a call that works'}", 200),
        description=f"{tool} got past this error {how}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        remedy={"tool": remedy.tool, "arguments": _parsed(remedy.arguments)},
        version=VERSION,
    )


def _lessons(judgment: Judgment, calls: Calls) -> list[Candidate]:
    """The last failure that a failed session did not get past: the tool never worked again after it.

    A session that was corrected to a success takes back the lesson that it may have taught before.
    """
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    corrected = trajectory.feedback is not None and probability > SUCCESS_ABOVE
    if probability >= FAILURE_BELOW and not corrected:
        return []
    worked_later: set[str] = set()
    for failed in reversed(calls):
        if failed.pattern is None:
            worked_later.add(failed.tool)
        elif not failed.transient and failed.tool not in worked_later:
            return [_lesson(trajectory, calls, failed, "success" if corrected else "failure")]
    return []


def _lesson(trajectory: Trajectory, calls: Calls, failed: Step, side: Side) -> Candidate:
    tool, error = failed.tool, _error(failed)
    attempts = [call for call in calls if call.pattern == failed.pattern]
    tried = list(dict.fromkeys(_call(call) for call in attempts))
    said = _line(failed.result, MAX_ERROR)
    content = [f"Goal: {_line(trajectory.goal, MAX_GOAL)}", f"Error: {error}"]
    content += [f"The tool said: {said}"] if said and said not in error and error not in said else []
    content += [f"Tried in vain: {call}" for call in tried[:MAX_TRIED]]
    again = f"{len(attempts)} attempts" if len(tried) > 1 else f"The same call {len(attempts)} times"
    repeated = f" {again} did not help." if len(attempts) > 1 else ""
    return Candidate(
        item_id=item_id(trajectory.tenant, "lesson", failed.pattern or ""),
        tenant=trajectory.tenant,
        kind="lesson",
        side=side,
        session=trajectory.id,
        agent=trajectory.agent,
        seen=trajectory.ended,
        revision=_revision(trajectory),
        # The best example shows most of what does not help.
        rank=(-min(len(tried), MAX_TRIED), len(attempts)),
        title=_line(f"{tool}: {error}", 160),
        description=f"Sessions failed on this error and never got {tool} to work again.{repeated}",
        content="\n".join(content),
        when=f"before a call like {_call(failed, MAX_STEP)}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        version=VERSION,
    )


def _strategies(judgment: Judgment, calls: Calls) -> list[Candidate]:
    """One side of a task's contrast; the item exists once the other side has come too."""
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    succeeded = probability > SUCCESS_ABOVE
    if not trajectory.task or not calls or (not succeeded and probability >= FAILURE_BELOW):
        return []
    # The way that worked, without its failed attempts; of a failure, every call.
    way = [call for call in calls if not call.failed] if succeeded else calls
    errors = list(dict.fromkeys([_error(call) for call in way if call.failed and not call.transient]))
    number = len(calls)
    goal = _line(trajectory.goal, MAX_GOAL) or trajectory.task
    if succeeded:
        content, description = f"Goal: {goal}", f"Solved in {_count(number, 'call')}."
        rank: tuple[int, ...] = (number,)
    else:
        content = "\n".join(f"Error met there: {error}" for error in errors[:MAX_ERRORS])
        description = f"Others failed{' on: ' + _line(errors[-1], 120) if errors else ' without an error'}."
        # An example that met errors says more about what to avoid.
        rank = (0 if errors else 1, number)
    return [
        Candidate(
            item_id=item_id(trajectory.tenant, "strategy", trajectory.task),
            tenant=trajectory.tenant,
            kind="strategy",
            side="success" if succeeded else "failure",
            session=trajectory.id,
            agent=trajectory.agent,
            seen=trajectory.ended,
            revision=_revision(trajectory),
            rank=rank,
            title=f"How to: {_line(goal, 120)}",
            description=description,
            content=content,
            when=f"the task is {trajectory.task}",
            task=trajectory.task,
            calls=_outline(way),
            version=VERSION,
        )
    ]


def _revision(trajectory: Trajectory) -> tuple[int, float]:
    return trajectory.events, trajectory.feedback.time if trajectory.feedback else 0.0


def _outline(calls: Sequence[Step]) -> tuple[str, ...]:
    """One text a call, so that equal calls of two sessions are equal texts."""
    half = MAX_OUTLINE // 2
    kept = calls if len(calls) <= MAX_OUTLINE else [*calls[:half], *calls[-half:]]
    limit = MAX_STEP
    while True:
        texts = tuple([_outlined(call.tool, call.arguments, limit) for call in kept])
        # A state holds six outlines and must fit a field of the store, which counts bytes of escaped JSON.
        if limit <= 8 or len(orjson.dumps(texts)) <= MAX_OUTLINE_BYTES:
            return texts
        limit //= 2


@lru_cache(maxsize=REMEMBERED)
def _outlined(tool: str, arguments: str, limit: int) -> str:
    """A call with its JSON in one spelling."""
    return _line(f"{tool}({arguments_text(_parsed(arguments))})", limit)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _call(step: Step, limit: int = MAX_CALL) -> str:
    return f"{step.tool}({_line(step.arguments, limit)})"


def _error(step: Step) -> str:
    return _line(step.error_message or step.error_type or "", MAX_ERROR)


@lru_cache(maxsize=REMEMBERED)
def _line(text: str, limit: int) -> str:
    """The text on one line, cut at `limit` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _parsed(arguments: str) -> Any:
    """Arguments as a JSON value where they are one; a text that was cut is no JSON and stays text."""
    if arguments[:1] in ("{", "["):
        try:
            return orjson.loads(arguments)
        except orjson.JSONDecodeError:
            pass
    return arguments
