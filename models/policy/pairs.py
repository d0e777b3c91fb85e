"""Find preference pairs for the policy adapter: in one state, a call that worked is preferred to one that failed.

The state is a session's chat up to a failed call, once without that call and once with its error. The preferred call
comes from another session, and in a fleet from another principal. It got that session past the same failure of the same
tool at the same task. Its words occur in the state, or a quorum of principals used them in calls that worked. So a
version gives no agent a word that advice would withhold. End users' identities are replaced.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import orjson

from fleetlore.advice.provenance import MARK
from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.fingerprint.normal_form import template
from fleetlore.redact.named_values import REDACTED
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.distil.call_diff import distance
from models.distil.cases import LESS, judged_calls, tells, worked_after
from models.memory.identities import identities, replacing, texts_of

__all__ = ["Messages", "Pair", "calling", "chat", "preference_pairs", "session_row", "usable"]

Messages = list[dict[str, Any]]
_State = tuple[str, str, str]  # task or kind of goal, tool, class of the failure

_WORD = re.compile(r"\w+")
# A stuck session repeats one failure: more pairs would teach nothing new.
_MOST_OF_SESSION = 4
# Calls kept of one state, and owners of each: they bound the time for a failure.
_MOST_WAYS, _MOST_OWNERS = 32, 3
_ASSISTANT = frozenset({"assistant", "model", "agent", "ai"})
_Row = dict[str, Any]


class Pair(NamedTuple):
    """Two calls of one state, the messages `worked` and `failed`. `sessions`, `agents`: ids of the state's and of the
    preferred call's session, and their principals. `prompt`: the chat before the call, as TRL reads it. `ended`: end of
    the later session, in Unix seconds.
    """

    sessions: tuple[str, str]
    agents: tuple[str, str]
    task: str
    tool: str
    ended: float
    prompt: Messages
    worked: dict[str, Any]
    failed: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """The pair as TRL's preference trainers read it."""
        stated = {"sessions": self.sessions, "agents": self.agents, "task": self.task}
        return {**stated, "prompt": self.prompt, "chosen": [self.worked], "rejected": [self.failed]}


class _WayOut(NamedTuple):
    session: Trajectory
    owner: str
    call: Step
    words: frozenset[str]


# By state and arguments.
_WaysOut = dict[_State, dict[str, list[_WayOut]]]


def preference_pairs(judgments: Sequence[Judgment], quorum: int) -> list[Pair]:
    """Return the pairs of usable sessions in the order of their ends: a function of their set.

    `quorum`: principals that must have used a word; 1 if all agents have one owner (`Settings.quorum`).
    """
    kept = sorted(filter(usable, judgments), key=lambda each: (each.trajectory.ended, each.trajectory.id))
    ways, users = _ways_out(kept, quorum), defaultdict[str, set[str]](set)
    for judgment in kept:
        for call in judged_calls(judgment):
            if _is_usable(call.step) and call.is_shown_to_work:
                for word in _words(call.json):
                    users[word].add(principal_of(judgment.trajectory.agent))
    common = frozenset(word for word, principals in users.items() if len(principals) >= quorum)
    found = [pair for judgment in kept for pair in _pairs(judgment.trajectory, ways, common, quorum)]
    return sorted(found, key=lambda pair: (pair.ended, pair.sessions))


def _owner(session: Trajectory, quorum: int) -> str:
    """The owner of a call. If all agents have one owner, another session is enough."""
    return session.id if quorum < 2 else principal_of(session.agent)


def _ways_out(judgments: Sequence[Judgment], quorum: int) -> _WaysOut:
    ways: _WaysOut = defaultdict(dict)
    for judgment in judgments:
        session, calls = judgment.trajectory, judged_calls(judgment)
        for number, failed in enumerate(calls):
            worked = next(worked_after(calls, number), None) if _teaches(failed.step) else None
            if worked is None:
                continue
            owner, of_state = _owner(session, quorum), ways[_state(session, failed.step)]
            same = of_state.get(worked.json, [])
            is_full = len(same) == _MOST_OWNERS or (not same and len(of_state) == _MOST_WAYS)
            if is_full or any(way.owner == owner for way in same):
                continue
            leaves_out = LESS.search(worked.json) and not LESS.search(failed.json)
            is_attempt = not leaves_out and bool(distance(failed.json, worked.json))
            is_safe = _is_usable(worked.step) and not worked.is_harmful
            if is_attempt and is_safe and worked.is_shown_to_work:
                of_state[worked.json] = [*same, _WayOut(session, owner, worked.step, _words(worked.json))]
    return ways


def _pairs(session: Trajectory, ways: _WaysOut, common: frozenset[str], quorum: int) -> Iterator[Pair]:
    owner, calls = _owner(session, quorum), session.calls
    seen: set[tuple[int, str, str]] = set()
    rows: list[_Row] = []
    said, read = set[str](), 0
    for number, failed in enumerate(calls):
        if not _teaches(failed) or len(seen) >= _MOST_OF_SESSION:
            continue
        others = [
            way
            for same in ways.get(_state(session, failed), {}).values()
            for way in same
            if way.owner != owner and way.call.arguments != failed.arguments
        ]
        if not others:
            continue
        # The chat is made and read once: to do so for each failure takes seconds.
        rows = rows or chat(session, len(calls))
        before = [*(place for place, row in enumerate(rows) if "tool_calls" in row), len(rows)]
        said |= _words(" ".join(_texts(rows[read : before[number + 1]])))
        read = before[number + 1]
        fitting = [way for way in others if way.words - common <= said]
        if not fitting:
            continue
        way = min(fitting, key=lambda way: (distance(failed.arguments, way.call.arguments) or 0, way.call.arguments))
        texts = (texts_of(each.goal, each.steps) for each in (session, way.session))
        masked = replacing(identities(chain.from_iterable(texts)))
        # After the failure the rival is the next call if it failed, or else the same call again.
        again = calls[number + 1] if number + 1 < len(calls) and _teaches(calls[number + 1]) else failed
        again = again if again.tool == failed.tool and again.arguments != way.call.arguments else failed
        for made, rival in ((number, failed), (number + 1, again)):
            key = made, way.call.arguments, rival.arguments
            if key in seen or len(seen) >= _MOST_OF_SESSION:
                continue
            seen.add(key)
            sessions, task = (session.id, way.session.id), session.task or session.goal
            agents = principal_of(session.agent), principal_of(way.session.agent)
            messages = masked([rows[: before[made]], calling(way.call), calling(rival)])
            yield Pair(sessions, agents, task, failed.tool, max(session.ended, way.session.ended), *messages)


def _teaches(call: Step) -> bool:
    return tells(call) and _is_usable(call)


def _state(session: Trajectory, failed: Step) -> _State:
    return session.task or template(session.goal), failed.tool, failed.pattern or ""


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in (*value, *value.values()):
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)


def usable(judgment: Judgment) -> bool:
    """Whether a model may learn from a session: it is whole, judged, broke no rule and quotes no advice."""
    session = judgment.trajectory
    if session.guard or session.part or session.missing or session.ending == "continued":
        return False
    return judgment.verdict.label != "abstained" and not any(
        MARK in text for text in texts_of(session.goal, session.steps)
    )


def session_row(judgment: Judgment) -> _Row:
    session = judgment.trajectory
    row = {"messages": chat(session, len(session.calls)), "label": judgment.verdict.label == "success"}
    replaced: _Row = replacing(identities(texts_of(session.goal, session.steps)))(row)
    return {"session": session.session, "agent": session.agent, "task": session.task, **replaced}


def _is_usable(call: Step) -> bool:
    """Whether a model may learn a call: it is whole, holds no masked secret, and followed no advice."""
    # The prompt lacks the advice that a call followed.
    return not (call.is_cut or call.transient or call.advice or REDACTED in call.arguments)


def chat(session: Trajectory, calls: int) -> list[_Row]:
    """Return the chat up to the first `calls` calls, without the words before the next call."""
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
        messages += [calling(step, words), {"role": "tool", "content": step.answer, "name": step.tool}]
    return messages


def calling(step: Step, words: str = "") -> _Row:
    value = parsed(step.arguments)
    arguments: _Row = {"input": step.arguments} if step.arguments else {}
    if isinstance(value, dict):
        with suppress(orjson.JSONEncodeError):
            orjson.dumps(value)
            arguments = value
    call = {"type": "function", "function": {"name": step.tool, "arguments": arguments}}
    return {"role": "assistant", "content": words, "tool_calls": [call]}
