"""Distil a judged session into its contributions to memory items.

A `recovery` is a call that worked once changed (`models.distil.cases`), or a name looked up after an error rejected
another (`_looked_up`). A `strategy` is the calls that solved a task.
"""

import builtins
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import product

import orjson
from msgspec.structs import replace

from fleetlore.advice.changes import says_where
from fleetlore.calls.call import CALL_CHARACTERS, KEYWORDS, values_of
from fleetlore.calls.context import RESULT_CHARACTERS
from fleetlore.fingerprint.fingerprint import arguments_text, object_of, parsed, strategy_id
from fleetlore.fingerprint.names import missing_name
from fleetlore.wire.lore import INSTEAD_OF
from fleetlore.wire.trajectory import Judgment, Trajectory
from fleetlore.words import NAME, PART, names_of
from models.distil.call_diff import distance
from models.distil.cases import VERSION, JudgedCall, judged_calls, line, recoveries, telling, worked_after
from models.memory.candidate import ERROR, SEVERAL_GOALS, SUCCESS_ABOVE, Candidate, item_id, origin

__all__ = ["distil"]

_MAX_GOAL = 160
_MAX_STEP = 200
_MAX_OUTLINE = 24
_MAX_OUTLINE_BYTES = 3_000
_THOUGHT_KEY = "thought"
_THOUGHT = re.compile(rf"\s*\{{\s*(['\"]){_THOUGHT_KEY}\1\s*:")
_STRINGS = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_CALLED = re.compile(r"\b([A-Za-z_]\w+)(?=\()")
_MAX_NAMES = 12
_MAX_TOLD, _MAX_BESIDE = 4, 3


def distil(judgment: Judgment) -> list[Candidate]:
    """At most one candidate an item, by its id. A session backs no item that it was shown."""
    trajectory = judgment.trajectory
    calls = judged_calls(judgment)
    found = strategies(judgment, calls)
    if failed := telling(calls):
        past = recoveries(trajectory, calls, failed)
        news = _looked_up(trajectory, calls, failed)
        said = {each.pattern for each in news}
        past = [replace(each, delayed=False) if each.pattern in said else each for each in past]
        found += past + news
    if not found:
        return []
    best: dict[str, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.item_id, each.side != "success", each.content)):
        best.setdefault(each.item_id, each)
    shown = {id for step in trajectory.steps for id in step.advice}
    return [each for each in best.values() if each.item_id not in shown or each.side != "success"]


def strategies(judgment: Judgment, calls: Sequence[JudgedCall]) -> list[Candidate]:
    trajectory = judgment.trajectory
    if not trajectory.task or judgment.verdict.probability <= SUCCESS_ABOVE or not calls or calls[-1].step.failed:
        return []
    way = [call for call in calls if not call.step.failed and not _is_thought(call)]
    if not way:
        return []
    return [
        Candidate(
            **origin(trajectory),
            item_id=strategy_id(trajectory.task, trajectory.goal),
            kind="strategy",
            side="success",
            title=line(trajectory.goal, _MAX_GOAL),
            when=f"the task is {trajectory.task}",
            task=trajectory.task,
            calls=_outline(way),
            danger=any(call.is_harmful for call in way),
            version=VERSION,
        )
    ]


def _is_thought(call: JudgedCall) -> bool:
    return _THOUGHT_KEY in (object_of(call.json) or ()) or _THOUGHT.match(call.json) is not None


def _outline(calls: Sequence[JudgedCall]) -> tuple[str, ...]:
    half = _MAX_OUTLINE // 2
    kept = calls if len(calls) <= _MAX_OUTLINE else [*calls[:half], *calls[-half:]]
    whole = [f"{call.tool}({arguments_text(parsed(call.json))})" for call in kept]
    limit = _MAX_STEP
    while True:
        texts = tuple([line(each, limit) for each in whole])
        # A state holds eight outlines and must fit a field: up to six bytes a character in escaped JSON.
        short = 6 * sum(map(len, texts)) <= _MAX_OUTLINE_BYTES
        if short or limit <= 8 or len(orjson.dumps(texts)) <= _MAX_OUTLINE_BYTES:
            return texts
        limit //= 2


def _looked_up(trajectory: Trajectory, calls: Sequence[JudgedCall], telling: list[int]) -> list[Candidate]:
    last = {calls[place].step.pattern: place for place in telling}
    found = []
    for place in last.values():
        failed = calls[place]
        later = list(worked_after(calls, place))
        works = [call for call in later if call.is_shown_to_work]
        if not works or any(distance(failed.json, call.json) == 0 for call in later):
            continue
        error, rejected = failed.step.answer, failed.kind.names if failed.kind is not None else ()
        missing = missing_name(error)
        if missing is not None and missing in rejected:
            names = _called_instead(calls[: place + 1], later[0])
            found += [_candidate(trajectory, failed, (missing,), name, "") for name in names]
        elif rejected and (names := _nearest(rejected, _names_after(calls, place))):
            beside = [""]
            if not says_where(error):
                beside = [name for name in _beside(failed, works) if name not in rejected] or beside
            for name, next_to in product(names[:_MAX_TOLD], beside[:_MAX_BESIDE]):
                found.append(_candidate(trajectory, failed, rejected, name, next_to))
    return found


def _called_instead(before: Iterable[JudgedCall], by: JudgedCall) -> list[str]:
    texts = (_STRINGS.sub(" ", call.text[:CALL_CHARACTERS]) for call in before)
    known = {name for text in texts for name in NAME.findall(text.lower())}
    called = dict.fromkeys(_CALLED.findall(by.text[:CALL_CHARACTERS]))
    return [name for name in called if name.lower() not in known and not hasattr(builtins, name)][:_MAX_TOLD]


def _names_after(calls: Sequence[JudgedCall], place: int) -> list[str]:
    failed = calls[place]
    tried = {name for call in calls if call.step.pattern == failed.step.pattern for name in _names(call)}
    shown: set[str] = set()
    for call in calls[:place]:
        shown |= _shown(call)
    names: dict[str, None] = {}
    for call in calls[place + 1 :]:
        if call.tool == failed.tool and call.is_shown_to_work:
            names.update(dict.fromkeys(name for name in _names(call) if name in shown and name not in tried))
        shown |= _shown(call)
    return list(names)[:_MAX_NAMES]


def _nearest(rejected: Sequence[str], names: list[str]) -> list[str]:
    close = [match for name in rejected for match in get_close_matches(name, names, n=1)]
    parts = {part for name in rejected for part in PART.findall(name)}
    return list(dict.fromkeys(close)) or [name for name in names if not parts.isdisjoint(PART.findall(name))]


def _beside(failed: JudgedCall, works: Iterable[JudgedCall]) -> list[str]:
    fields = {key.lower() for key in values_of(failed.json)}  # they stand in each call of the tool
    names = [name for name in dict.fromkeys(_names(failed)) if name not in fields]
    kept = {name for call in works if not set(_names(call)).isdisjoint(names) for name in _names(call)}
    return [name for name in names if name in kept and name not in KEYWORDS][:_MAX_NAMES]


def _names(call: JudgedCall) -> list[str]:
    return NAME.findall(call.text[:CALL_CHARACTERS].lower())


def _shown(call: JudgedCall) -> set[str]:
    return set() if call.step.failed else names_of(call.step.result[:RESULT_CHARACTERS]) - KEYWORDS


def _candidate(trajectory: Trajectory, failed: JudgedCall, was: tuple[str, ...], name: str, beside: str) -> Candidate:
    tool, error = failed.tool, failed.error
    told = f"{INSTEAD_OF}{f' beside `{beside}`' if beside else ''}: `{name}`"
    return Candidate(
        **failed.recovery(trajectory),
        item_id=item_id(VERSION, "recovery", "looked up", tool, failed.step.pattern or "", error, told, *was),
        delayed=True,
        least_goals=SEVERAL_GOALS,
        title=f"{tool}: {line(error, 90)}{told}",
        description="Sessions that met this error looked up another name, and calls with it worked.",
        content=f"{ERROR}{error}\nWorked instead{told.removeprefix(INSTEAD_OF)}",
        was=was,
        now=(name,),
        danger=failed.is_harmful,
        version=VERSION,
    )
