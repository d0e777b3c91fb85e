"""Make training data of judged sessions: chats with their labels, and pairs of calls, in the form that TRL reads.

A pair is two calls from one state: `chosen` worked and `rejected` failed. A recovery is a failed call and the next call
that worked, if both attempt the same. A contrast comes from two sessions with one goal and the same results so far. The
session that succeeded then made a call that worked, and the other session made a call that failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import orjson

from fleetlore.advice.provenance import MARK
from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.redact.named_values import REDACTED
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.cases import is_shown_to_work, tells, worked_after
from models.distil.call_diff import distance
from models.distil.recovery import LESS
from models.memory.identities import identities, replacing, texts_of

__all__ = ["calling", "chat", "is_usable", "pairs_of", "session_row", "usable"]

_ASSISTANT = frozenset({"assistant", "model", "agent", "ai"})
_Row = dict[str, Any]
_Pair = tuple[Trajectory, int, Step, Step]  # session of the prompt, number of its call, chosen, rejected


def usable(judgment: Judgment) -> bool:
    """Return whether a model may learn from a session: it is whole, judged, broke no rule and quotes no advice."""
    session = judgment.trajectory
    if session.guard or session.part or session.missing or session.ending == "continued":
        return False
    return judgment.verdict.label != "abstained" and not any(MARK in text for text in texts_of(session))


def session_row(judgment: Judgment) -> _Row:
    session = judgment.trajectory
    return _row(session, {"messages": chat(session, len(session.calls)), "label": judgment.verdict.label == "success"})


def pairs_of(judgments: Sequence[Judgment]) -> list[_Row]:
    """Return all pairs of usable sessions, each once. They and their order are a function of the set of sessions."""
    kept = sorted(filter(usable, judgments), key=lambda each: each.trajectory.id)
    rows: dict[tuple[str, ...], _Row] = {}
    for session, number, chosen, rejected in (*_recoveries(kept), *_contrasts(kept)):
        key = (session.goal, chosen.tool, chosen.arguments, rejected.tool, rejected.arguments)
        pair = {"prompt": chat(session, number), "chosen": [calling(chosen)], "rejected": [calling(rejected)]}
        rows.setdefault(key, _row(session, pair))
    return list(rows.values())


def _row(session: Trajectory, found: _Row) -> _Row:
    replaced: _Row = replacing(identities(texts_of(session)))(found)
    return {"session": session.session, "agent": session.agent, "task": session.task, **replaced}


def _recoveries(judgments: Iterable[Judgment]) -> Iterator[_Pair]:
    for judgment in judgments:
        calls = judgment.trajectory.calls if judgment.verdict.label == "success" else ()
        for number, failed in enumerate(calls):
            later = next(worked_after(calls, number), None)
            if later is None:
                break
            repair = calls[later]
            leaves_out = LESS.search(repair.arguments) and not LESS.search(failed.arguments)
            if repair.tool != failed.tool or leaves_out or not distance(failed.arguments, repair.arguments):
                continue
            if tells(failed) and is_usable(failed) and is_usable(repair) and is_shown_to_work(judgment, repair):
                yield judgment.trajectory, number, repair, failed


def _contrasts(judgments: Iterable[Judgment]) -> Iterator[_Pair]:
    better: dict[bytes, tuple[Trajectory, int, Step]] = {}
    worse: defaultdict[bytes, list[Step]] = defaultdict(list)
    for judgment in judgments:
        session, succeeded = judgment.trajectory, judgment.verdict.label == "success"
        for number, (state, call) in enumerate(_states(session) if session.task and session.goal else ()):
            if succeeded and is_usable(call) and is_shown_to_work(judgment, call):
                better.setdefault(state, (session, number, call))
            elif not succeeded and tells(call) and is_usable(call):
                worse[state].append(call)
    for state, chosen in better.items():
        yield from ((*chosen, rejected) for rejected in worse.get(state, ()))


def _states(session: Trajectory) -> Iterator[tuple[bytes, Step]]:
    """Yield each call with a hash of what its agent had seen: the goal, users' words, calls and their results."""
    seen = blake2b(f"{session.task}\x1f{session.goal}\x1f{session.place}".encode(), digest_size=16)
    for step in session.steps:
        if step.role == "tool":
            yield seen.digest(), step
        if step.role in ("tool", "user", "system"):  # the model's own words do not change the world
            seen.update(f"\x1e{step.tool}\x1f{step.arguments}\x1f{_result(step)}".encode())


def is_usable(call: Step) -> bool:
    """Return whether a model may learn a call: it is whole, holds no masked secret, and followed no advice."""
    # The prompt does not hold the advice that a call followed.
    return not (call.is_cut or call.transient or call.advice or REDACTED in call.arguments)


def chat(session: Trajectory, calls: int) -> list[_Row]:
    """Return the chat up to the first `calls` calls, without the model's words before the next call."""
    messages: list[_Row] = []
    if session.goal and not any(step.role == "user" for step in session.steps[:2]):
        messages.append({"role": "user", "content": session.goal})
    for step in session.steps:
        if step.role != "tool":
            role = "assistant" if step.role in _ASSISTANT else "system" if step.role == "system" else "user"
            messages.append({"role": role, "content": step.result})
            continue
        words = ""
        if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
            words = messages.pop()["content"]
        if not calls:
            break
        calls -= 1
        messages += [calling(step, words), {"role": "tool", "content": _result(step), "name": step.tool}]
    return messages


def _result(step: Step) -> str:
    return (step.error_message or step.error_type or "") if step.failed else step.result


def calling(step: Step, words: str = "") -> _Row:
    """Return the message in which a model makes a call."""
    value = parsed(step.arguments)
    arguments: _Row = {"input": step.arguments} if step.arguments else {}
    if isinstance(value, dict):
        with suppress(orjson.JSONEncodeError):  # nested deeper than can be written
            orjson.dumps(value)
            arguments = value
    call = {"type": "function", "function": {"name": step.tool, "arguments": arguments}}
    return {"role": "assistant", "content": words, "tool_calls": [call]}
