"""Make the rows of a dataset: preference pairs (`pairs`), whole sessions (`sft`) or calls one by one (`kto`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from fleetlore.wire.definitions import Definitions
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.cases import is_shown_to_work
from models.export.conversation import Conversation, calling, conversation_of
from models.export.pairs import pairs_of
from models.export.usable import is_usable

_Chat = Callable[[Trajectory], Conversation]
Kind = Literal["pairs", "sft", "kto"]

#: No agent gives a greater share of the rows, or than twice its equal part where there are few agents.
AGENT_SHARE = 0.05
#: Share of the tasks whose rows are kept apart, to test on.
TEST_SHARE = 0.1


class Row(NamedTuple):
    """One row, not yet in a format (`models.export.formats`).

    Attributes:
        kind: of a pair `recovery` or `contrast`, of a call `worked` or `failed`, else `session`.
        sessions: ids of those that it was made from.
        definitions: hash of what the model was given besides, of the session whose chat it is.
        parts: by name, messages, or a label.
    """

    kind: str
    agent: str
    task: str
    sessions: tuple[str, ...]
    definitions: str
    parts: dict[str, Any]


def rows_of(judgments: Sequence[Judgment], kind: Kind, given: Mapping[str, Definitions]) -> list[Row]:
    """The rows of usable sessions (`models.export.usable`), the share of each agent bounded.

    Args:
        given: what models were given besides, by the hash that sessions name it by.
    """

    def chat(session: Trajectory) -> Conversation:
        named = given.get(session.definitions)
        return conversation_of(session, named.system if named else "")

    made = {"pairs": _pairs, "sft": _sessions, "kto": _calls}[kind](judgments, chat)
    return _bounded(list(made))


def _pairs(judgments: Sequence[Judgment], chat: _Chat) -> Iterator[Row]:
    for pair in pairs_of(judgments):
        parts = {
            "prompt": chat(pair.session).until(pair.at),
            "chosen": [calling(pair.chosen)],
            "rejected": [calling(pair.rejected)],
        }
        sessions = tuple(dict.fromkeys((pair.session.id, pair.other.id)))
        yield _row(pair.kind, pair.session, sessions, parts)


def _sessions(judgments: Sequence[Judgment], chat: _Chat) -> Iterator[Row]:
    for judgment in judgments:
        session = judgment.trajectory
        if judgment.verdict.label == "success" and session.calls and all(map(_may_be_told, session.calls)):
            messages = list(chat(session).messages)
            yield _row("session", session, (session.id,), {"messages": messages})


def _may_be_told(call: Step) -> bool:
    return is_usable(call) or (call.transient and not call.is_cut and not call.advice)


def _calls(judgments: Sequence[Judgment], chat: _Chat) -> Iterator[Row]:
    for judgment in judgments:
        session = judgment.trajectory
        told = chat(session)
        for at, call in enumerate(session.calls):
            good = judgment.verdict.label == "success" and is_shown_to_work(judgment, call)
            if is_usable(call) and (good or call.failed):
                parts = {"prompt": told.until(at), "completion": [calling(call)], "label": not call.failed}
                kind = "failed" if call.failed else "worked"
                yield _row(kind, session, (session.id,), parts)


def _row(kind: str, session: Trajectory, sessions: tuple[str, ...], parts: dict[str, Any]) -> Row:
    return Row(kind, session.agent, session.task, sessions, session.definitions, parts)


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
    content = orjson.dumps([row.sessions, row.parts], default=_plain)
    return blake2b(content, digest_size=16).digest()


def _plain(part: Any) -> Any:
    return [part.sequence, part.tool, part.arguments] if isinstance(part, Step) else tuple(part)


def is_test(row: Row) -> bool:
    """Whether a row is kept apart: by its task, so that no task is on both sides."""
    drawn = int.from_bytes(blake2b((row.task or row.sessions[0]).encode(), digest_size=6).digest()) / 2**48
    return drawn < TEST_SHARE
