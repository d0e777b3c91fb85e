"""From one judged session to its contributions to the fleet's memory. Extractive: it quotes what happened and invents nothing.

recovery    a call failed and a later call of the same tool worked: what was changed, or what was done in between. The
            environment itself showed that it works, so the verdict on the session is not needed.
lesson      a session that failed, on a tool that never worked again after that error.
strategy    a task that some sessions solved and others did not: a way that worked against one that did not. Of attempts that
            were started together without a task, the group is the task.

A session that met an error and succeeded all the same contradicts the lesson about it, and says which recovery it taught
instead. Transient errors (503, time-outs, rate limits) teach nothing, nor do those that say only that the call failed
(`models.junk.is_verdict`), nor a success whose last call failed, for one of the two is wrong. Pure and deterministic: items are
keyed by what was learned and not by how it was worded, so that contributions of many sessions meet in one item whatever the
order of their arrival (`models.item_state`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any
from zlib import crc32

import orjson

from fleetlore.lore import ItemKind
from fleetlore.patterns import argument_shape, arguments_text
from fleetlore.trajectory import Judgment, Step, Trajectory
from models import candidate
from models.call_change import change_key, distance, in_words
from models.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, Side
from models.consolidation import ENDING_BITS
from models.junk import ERROR, ERROR_MET, TRIED, is_verdict

VERSION = "extractive-2"

MAX_GOAL = 160
MAX_CALL = 400
MAX_STEP = 200
MAX_ERROR = 300
MAX_RESULT = 200
MAX_OUTLINE_BYTES = 3_000
MAX_OUTLINE = 24
MAX_ERRORS = 3
MAX_TRIED = 3

_TOKEN = re.compile(r"[-+]?\w[\w.]*")

# Texts that are kept once they were shortened: goals, errors and calls repeat within a session and between sessions of a
# task, so more than half are found. At most 2,000 characters each: some ten megabytes.
REMEMBERED = 4096

Calls = tuple[Step, ...]

# The side that says that an item is right.
_BACKING: dict[ItemKind, Side] = {"recovery": "success", "lesson": "failure", "strategy": "success"}


def distil(judgment: Judgment) -> list[Candidate]:
    """What the session contributes: at most one candidate an item, sorted by item id.

    A session that was shown an item does not back it, or an item would be its own evidence; how the session ended is what it
    has to say (`models.utility`).
    """
    calls = judgment.trajectory.calls
    failed = [place for place, call in enumerate(calls) if call.pattern is not None and not call.transient]
    telling = _telling(calls, failed)
    found = _strategies(judgment, calls, telling)
    if failed:
        recoveries = _recoveries(judgment, calls, failed, telling)
        found += recoveries
        if judgment.verdict.probability > SUCCESS_ABOVE:
            found += _contradicted(judgment.trajectory, calls, telling, recoveries)
        elif judgment.verdict.probability < FAILURE_BELOW:
            found += _lessons(judgment.trajectory, calls, telling)
    best: dict[str, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.item_id, each.rank, each.content)):
        best.setdefault(each.item_id, each)
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return [each for each in best.values() if each.item_id not in shown or each.side != _BACKING[each.kind]]


def item_id(tenant: str, kind: str, *key: str) -> str:
    """Id of an item of this distiller."""
    return candidate.item_id(VERSION, tenant, kind, *key)


def _telling(calls: Calls, failed: list[int]) -> list[int]:
    """Those of the failed calls whose error says what is wrong (`models.junk.is_verdict`)."""
    telling: dict[str | None, bool] = {}
    places = []
    for place in failed:
        call = calls[place]
        tells = telling.get(call.pattern)
        if tells is None:  # an agent that is stuck meets one error again and again
            tells = telling[call.pattern] = not is_verdict(call.tool, call.arguments, _said(call))
        if tells:
            places.append(place)
    return places


def _recoveries(judgment: Judgment, calls: Calls, failed: list[int], telling: list[int]) -> list[Candidate]:
    """At most one recovery an error: the one that says most surely what got past it."""
    working = [place for place, call in enumerate(calls) if _worked(judgment, call)]
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
    """What got the session past the failed call at `index`, where that can be told.

    Args:
        working: places of the calls that worked.
        tells: the error says what is wrong.
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
    # Of an answer that was called wrong, another answer is no repair, unless the error names what was changed ("x is required").
    if words is None or (
        not tells and is_verdict(failed.tool, failed.arguments + calls[later].arguments, _said(failed))
    ):
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
    content = [f"Failed: {_call(failed)}", f"{ERROR}{error}"]
    content += [
        f"Looked up: {_call(step, MAX_STEP)} → {_line(step.result, MAX_RESULT)}" for step in between[-1:] if step.result
    ]
    content += [f"Worked: {_call(worked)}"]
    content += [f"Change: {words}"] if words else []
    how = f"once the call was changed: {words}" if words else "as the other call quoted below"
    # Sessions that made the same change back the same item; where too much was changed, the shape of the call has to do.
    changed = change_key(failed.arguments, worked.arguments)
    key = (changed,) if changed is not None else (worked.tool, argument_shape(worked.arguments))
    return _recovery(judgment, failed, worked, key, (size, len(between)), words, how, content)


def _prepared_call(judgment: Judgment, failed: Step, between: list[Step]) -> Candidate:
    """The same call works after something else was done."""
    remedy = between[-1]
    content = [f"Failed: {_call(failed)}", f"{ERROR}{_error(failed)}"]
    content += [f"Then: {_call(step, MAX_STEP)}" for step in between[-3:]]
    content += ["Got past it: the same call again"]
    first, how = f"first {_call(remedy, 80)}", f"unchanged after {_call(remedy, MAX_STEP)}"
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
    tool, error = failed.tool, _error(failed)
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
        revision=trajectory.revision,
        rank=(trust, *rank),
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


def _lessons(trajectory: Trajectory, calls: Calls, telling: list[int]) -> list[Candidate]:
    """The last error that a failed session did not get past: the tool never worked again after it."""
    for index in reversed(telling):
        failed = calls[index]
        if not any(call.tool == failed.tool and not call.failed for call in calls[index:]):
            return [_lesson(trajectory, calls, failed)]
    return []


def _lesson(trajectory: Trajectory, calls: Calls, failed: Step) -> Candidate:
    tool, error = failed.tool, _error(failed)
    attempts = [call for call in calls if call.pattern == failed.pattern]
    tried = list(islice(dict.fromkeys([call.arguments for call in attempts]), MAX_TRIED))
    said = _line(failed.result, MAX_ERROR)
    content = [f"Goal: {_line(trajectory.goal, MAX_GOAL)}", f"{ERROR}{error}"]
    content += [f"The tool said: {said}"] if said and said not in error and error not in said else []
    content += [f"{TRIED}{tool}({_line(arguments, MAX_CALL)})" for arguments in tried]
    again = f"{len(attempts)} attempts" if len(tried) > 1 else f"The same call {len(attempts)} times"
    repeated = f" {again} did not help." if len(attempts) > 1 else ""
    return Candidate(
        item_id=item_id(trajectory.tenant, "lesson", failed.pattern or ""),
        tenant=trajectory.tenant,
        kind="lesson",
        side="failure",
        session=trajectory.id,
        agent=trajectory.agent,
        seen=trajectory.ended,
        revision=trajectory.revision,
        # The best example shows most of what does not help.
        rank=(-len(tried), len(attempts)),
        title=_line(f"{tool}: {error}", 160),
        description=f"Sessions failed on this error and never got {tool} to work again.{repeated}",
        content="\n".join(content),
        when=f"before a call like {_call(failed, MAX_STEP)}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        version=VERSION,
    )


def _contradicted(
    trajectory: Trajectory, calls: Calls, telling: list[int], recoveries: list[Candidate]
) -> list[Candidate]:
    """What a session that succeeded has to say against the lessons about the errors that it met.

    It takes back its own lesson too, where it was judged a failure before somebody corrected that.
    """
    instead = {each.pattern: each.item_id for each in recoveries}
    return [
        Candidate(
            item_id=item_id(trajectory.tenant, "lesson", pattern),
            tenant=trajectory.tenant,
            kind="lesson",
            side="success",
            session=trajectory.id,
            agent=trajectory.agent,
            seen=trajectory.ended,
            revision=trajectory.revision,
            rank=(int(pattern not in instead),),
            instead=instead.get(pattern, ""),
            version=VERSION,
        )
        for pattern in dict.fromkeys([calls[index].pattern or "" for index in telling])
    ]


def _strategies(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """One side of a task's contrast; the item exists once the other side has come too."""
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    succeeded = probability > SUCCESS_ABOVE
    task = trajectory.task or trajectory.group
    if not task or not calls or (calls[-1].failed if succeeded else probability >= FAILURE_BELOW):
        return []
    # The way that worked, without its failed attempts; of a failure, every call.
    way = [call for call in calls if call.pattern is None] if succeeded else calls
    number = len(calls)
    goal = _line(trajectory.goal, MAX_GOAL) or task
    if succeeded:
        content, description = f"Goal: {goal}", f"Solved in {_count(number, 'call')}."
        rank: tuple[int, ...] = (number,)
    else:
        errors = list(dict.fromkeys([_said(calls[place]) for place in telling]))
        content = "\n".join(f"{ERROR_MET}{_line(error, MAX_ERROR)}" for error in errors[:MAX_ERRORS])
        description = f"Others failed{' on: ' + _line(errors[-1], 120) if errors else ' without an error'}."
        # An example that met errors says more about what to avoid.
        rank = (0 if errors else 1, number)
    return [
        Candidate(
            item_id=item_id(trajectory.tenant, "strategy", task),
            tenant=trajectory.tenant,
            kind="strategy",
            side="success" if succeeded else "failure",
            session=trajectory.id,
            agent=trajectory.agent,
            seen=trajectory.ended,
            revision=trajectory.revision,
            rank=rank,
            title=f"How to: {_line(goal, 120)}",
            description=description,
            content=content,
            when=f"the task is {task}",
            task=task,
            calls=_outline(way),
            way=_way(calls[-1]),
            version=VERSION,
        )
    ]


def _way(last: Step) -> int:
    """How a session ended: by what its last call gave, for the same is reached by different calls, or else by the call.

    Upper bits by the tool, lower bits by the rest, without what is mere writing.
    """
    said = " ".join(_TOKEN.findall((last.error_message or last.result or last.arguments).casefold()))
    return crc32(last.tool.encode()) >> 12 << ENDING_BITS | crc32(said.encode())


def _outline(calls: Sequence[Step]) -> tuple[str, ...]:
    """One text a call, so that equal calls of two sessions are equal texts."""
    half = MAX_OUTLINE // 2
    kept = calls if len(calls) <= MAX_OUTLINE else [*calls[:half], *calls[-half:]]
    limit = MAX_STEP
    while True:
        texts = tuple([_outlined(call.tool, call.arguments, limit) for call in kept])
        # A state holds eight outlines and must fit a field of the store, which counts bytes of escaped JSON: six a character
        # at the most.
        short = 6 * sum(map(len, texts)) <= MAX_OUTLINE_BYTES
        if short or limit <= 8 or len(orjson.dumps(texts)) <= MAX_OUTLINE_BYTES:
            return texts
        limit //= 2


@lru_cache(maxsize=REMEMBERED)
def _outlined(tool: str, arguments: str, limit: int) -> str:
    """A call with its JSON in one spelling."""
    if arguments[:1] in ("{", "["):
        arguments = arguments_text(_parsed(arguments))
    return _line(f"{tool}({arguments})", limit)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _call(step: Step, limit: int = MAX_CALL) -> str:
    return f"{step.tool}({_line(step.arguments, limit)})"


def _said(failed: Step) -> str:
    return failed.error_message or failed.error_type or ""


def _error(step: Step) -> str:
    return _line(_said(step), MAX_ERROR)


@lru_cache(maxsize=REMEMBERED)
def _line(text: str, limit: int) -> str:
    """The text on one line, cut at `limit` characters."""
    if len(text) <= limit and "  " not in text and text.isprintable():
        return text.strip()  # most are so, and are looked at once instead of being taken apart
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
