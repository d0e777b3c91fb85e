"""Make pairs of calls of judged sessions, and only of what a model may learn from, as the chat that a model was in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from fleetlore.advice.provenance import MARK
from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.redact.named_values import REDACTED
from fleetlore.wire.events import Definitions
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.cases import is_shown_to_work, tells, worked_after
from models.distil.call_diff import distance
from models.distil.recovery import LESS

_ASSISTANT = frozenset({"assistant", "model", "agent", "ai"})
# The parameter of a tool that is called with plain text.
_TEXT_PARAMETER = "input"

#: No agent gives a greater share of the rows, or than twice its equal part where there are few agents.
AGENT_SHARE = 0.05
#: Share of the tasks whose rows are kept apart, to test on.
TEST_SHARE = 0.1


class Message(NamedTuple):
    """A message of a chat.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        call: that an assistant's message makes.
        answers: the call whose result a tool's message is.
    """

    role: str
    content: str
    call: Step | None = None
    answers: Step | None = None


def read_before(session: Trajectory, call: int, system: str = "") -> list[Message]:
    """What a model had read when it made the call of this number: a system text, the goal, then steps in order."""
    messages = [Message("system", system)] if system else []
    if session.goal and not any(step.role == "user" for step in session.steps[:2]):
        messages.append(Message("user", session.goal))
    for step in session.steps:
        if step.role != "tool":
            messages.append(Message(_role(step.role), step.result))
            continue
        said = ""
        if messages and messages[-1].role == "assistant" and messages[-1].call is None:
            said = messages.pop().content
        if call == 0:
            break
        call -= 1
        messages += [Message("assistant", said, call=step), Message("tool", result_of(step), answers=step)]
    return messages


def calling(step: Step) -> Message:
    """The assistant's message that makes a call and says nothing else."""
    return Message("assistant", "", call=step)


def result_of(step: Step) -> str:
    """What a call gave, as the model read it: its result, or its error."""
    return (step.error_message or step.error_type or "") if step.failed else step.result


def arguments_of(step: Step) -> dict[str, Any]:
    """Arguments of a call by name; plain text is the argument `_TEXT_PARAMETER`."""
    value = parsed(step.arguments)
    if isinstance(value, dict):
        with suppress(orjson.JSONEncodeError):  # nested deeper than can be written, which is less than can be read
            orjson.dumps(value)
            return value
    return {_TEXT_PARAMETER: step.arguments} if step.arguments else {}


def _role(role: str) -> str:
    if role in _ASSISTANT:
        return "assistant"
    return "system" if role == "system" else "user"


def usable_sessions(judgments: Iterable[Judgment]) -> tuple[list[Judgment], Counter[str]]:
    """The sessions that a language model may learn from, sorted by id, and how many are left out by reason.

    Returns:
        Reasons: `guarded`: it broke a rule that its environment guards; `abstained`: nobody judged it; `part`: it is a
        part of a longer one; `incomplete`: some of its events never came; `recalled`: its texts quote advice.
    """
    kept: list[Judgment] = []
    left_out: Counter[str] = Counter()
    for judgment in judgments:
        reason = _reason(judgment)
        if reason is None:
            kept.append(judgment)
        else:
            left_out[reason] += 1
    return sorted(kept, key=lambda each: each.trajectory.id), left_out


def _reason(judgment: Judgment) -> str | None:
    session = judgment.trajectory
    if session.guard:
        return "guarded"
    if session.part or session.ending == "continued":
        return "part"
    if session.missing:
        return "incomplete"
    if judgment.verdict.label == "abstained":
        return "abstained"
    return "recalled" if _quotes_advice(session) else None


def _quotes_advice(session: Trajectory) -> bool:
    texts = (text for step in session.steps for text in (step.arguments, step.result, step.error_message or ""))
    return MARK in session.goal or any(MARK in text for text in texts)


def is_usable(call: Step) -> bool:
    """Whether a model may learn to make a call, or not to make it.

    Not one that was cut, that holds a masked secret, whose failure passes by itself, or before which the agent was told
    something: that was made by what it was told, which the prompt does not hold.
    """
    return not (call.is_cut or call.transient or call.advice or REDACTED in call.arguments)


class _Pair(NamedTuple):
    """A call that is preferred to another: both were made in one state, and it worked where the other failed.

    Attributes:
        kind: `recovery`: a call failed, and the next that worked was another attempt at the same, with no result in
            between but the errors: it could have been made at once; `contrast`: two sessions with one goal made the
            same calls with the same results up to here; in the one that succeeded the next call worked, in the one
            that failed it failed.
        session: whose chat is the prompt: up to its call number `at`.
        other: session of the rejected call.
    """

    kind: Literal["recovery", "contrast"]
    session: Trajectory
    at: int
    chosen: Step
    rejected: Step
    other: Trajectory


def pairs_of(judgments: Sequence[Judgment]) -> list[_Pair]:
    """All pairs, each once, in an order that is a function of the set of sessions."""
    found = [pair for judgment in judgments for pair in _recoveries(judgment)]
    found += _contrasts(judgments)
    once: dict[tuple[str, ...], _Pair] = {}
    for pair in sorted(found, key=lambda each: (each.kind != "recovery", each.session.id, each.at, each.other.id)):
        goal, chosen, rejected = pair.session.goal, pair.chosen, pair.rejected
        once.setdefault((goal, chosen.tool, chosen.arguments, rejected.tool, rejected.arguments), pair)
    return list(once.values())


def _recoveries(judgment: Judgment) -> Iterator[_Pair]:
    session = judgment.trajectory
    if judgment.verdict.label != "success":  # what got past an error may still have been of no use
        return
    calls = session.calls
    for at, failed in enumerate(calls):
        later = next(worked_after(calls, at), None)
        if later is None:
            return
        repair = calls[later]
        usable = is_usable(failed) and is_usable(repair)
        if tells(failed) and usable and _repairs(failed, repair) and is_shown_to_work(judgment, repair):
            yield _Pair("recovery", session, at, repair, failed, session)


def _repairs(failed: Step, later: Step) -> bool:
    """Whether a call tries the same thing, and not less of it."""
    if later.tool != failed.tool or (LESS.search(later.arguments) and not LESS.search(failed.arguments)):
        return False
    return bool(distance(failed.arguments, later.arguments))


def _contrasts(judgments: Iterable[Judgment]) -> Iterator[_Pair]:
    # By state: the first call that worked in a session that succeeded, and those that failed in others.
    better: dict[bytes, tuple[Trajectory, int, Step]] = {}
    worse: defaultdict[bytes, list[tuple[Trajectory, Step]]] = defaultdict(list)
    for judgment in judgments:
        session, succeeded = judgment.trajectory, judgment.verdict.label == "success"
        if not session.task or not session.goal:
            continue
        for at, (state, call) in enumerate(_states(session)):
            if succeeded and is_usable(call) and is_shown_to_work(judgment, call):
                better.setdefault(state, (session, at, call))
            elif not succeeded and tells(call) and is_usable(call):
                worse[state].append((session, call))
    for state, (session, at, chosen) in better.items():
        for other, rejected in worse.get(state, ()):
            yield _Pair("contrast", session, at, chosen, rejected, other)


def _states(session: Trajectory) -> Iterator[tuple[bytes, Step]]:
    """Each call, and a hash of what its agent had seen before it: goal, user's words, calls and their results."""
    seen = blake2b(f"{session.task}\x1f{session.goal}\x1f{session.place}".encode(), digest_size=16)
    for step in session.steps:
        if step.role == "tool":
            yield seen.digest(), step
        if step.role in ("tool", "user", "system"):  # what the model itself said is no part of the world's state
            seen.update(f"\x1e{step.tool}\x1f{step.arguments}\x1f{result_of(step)}".encode())


class Row(NamedTuple):
    """A pair as a model reads it.

    Attributes:
        kind: `recovery` or `contrast`.
        sessions: ids of those that it was made from.
        definitions: hash of what the model was given besides, of the session whose chat it is.
        prompt: what the model had read before the call.
    """

    kind: str
    agent: str
    task: str
    sessions: tuple[str, ...]
    definitions: str
    prompt: Sequence[Message]
    chosen: Message
    rejected: Message


def rows_of(judgments: Sequence[Judgment], given: Mapping[str, Definitions]) -> list[Row]:
    """The pairs of usable sessions, the share of each agent bounded.

    Args:
        given: what models were given besides, by the hash that sessions name it by.
    """
    rows: list[Row] = []
    for pair in pairs_of(judgments):
        session = pair.session
        named = given.get(session.definitions)
        prompt = read_before(session, pair.at, named.system if named else "")
        sessions = tuple(dict.fromkeys((session.id, pair.other.id)))
        chosen, rejected = calling(pair.chosen), calling(pair.rejected)
        rows.append(
            Row(pair.kind, session.agent, session.task, sessions, session.definitions, prompt, chosen, rejected)
        )
    return _bounded(rows)


def _bounded(rows: list[Row]) -> list[Row]:
    """As many rows of each agent as its share allows: those whose hash is lowest."""
    counts = Counter(row.agent for row in rows)
    if not counts:
        return []
    share = max(AGENT_SHARE, min(1.0, 2 / len(counts)))
    most = max(counts.values())
    while most > 1 and most > share * sum(min(count, most) for count in counts.values()):
        most -= 1
    taken: Counter[str] = Counter()
    kept = []
    for row in sorted(rows, key=_drawn):
        taken[row.agent] += 1
        if taken[row.agent] <= most:
            kept.append(row)
    return kept


def _drawn(row: Row) -> bytes:
    said = [(each.role, each.content, *(_named(call) for call in (each.call, each.answers))) for each in row.prompt]
    content = orjson.dumps([row.sessions, said, _named(row.chosen.call), _named(row.rejected.call)])
    return blake2b(content, digest_size=16).digest()


def _named(call: Step | None) -> list[object] | None:
    return None if call is None else [call.sequence, call.tool, call.arguments]


def is_test(row: Row) -> bool:
    """Whether a row is kept apart: by its task, so that no task is on both sides."""
    drawn = int.from_bytes(blake2b((row.task or row.sessions[0]).encode(), digest_size=6).digest()) / 2**48
    return drawn < TEST_SHARE
