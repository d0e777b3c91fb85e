"""Count the sessions and calls of real logs that are lost, in every form and with every damage that reports show.

Real sessions of other people's agents are written in each form that an importer knows, whole and damaged, and read
back. This module counts the input without the importers. Each session and each call must come back as an event, as a
call without a result in the log, or as a skipped part with a reason. Any other is lost in silence. The logs are not in
this repository.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Report, Row
from benchmarks.runs import lines_of, read_runs
from fleetlore.errors import ConfigError
from fleetlore.transcripts.read import Form, read_files
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev

__all__ = ["DAMAGES", "FOLDER", "Count", "count_of", "run", "written_sessions"]

FOLDER = Path(__file__).parents[2] / "shared" / "data"
_QUICK = 5
Chat = list[dict[str, Any]]


class Count(NamedTuple):
    """Sessions and calls of one form: written, read, and left out with a reason."""

    sessions: int
    calls: int
    read_sessions: int
    read_calls: int
    reasons: Counter[str]

    @property
    def lost(self) -> int:
        """Sessions and calls that are neither read nor counted."""
        parts = self.reasons["part that could not be read"]
        return max(0, self.sessions - self.read_sessions - parts) + max(
            0, self.calls - self.read_calls - sum(self.reasons.values())
        )


def count_of(chats: list[Chat], found: list[LoggedSession | None]) -> Count:
    """Compare chats with the sessions that were read of them."""
    calls = sum(len(message.get("tool_calls") or ()) for chat in chats for message in chat)
    read = [each for each in found if each is not None]
    reasons = Counter({"call without a result": sum(each.unanswered for each in read)})
    for each in read:
        reasons.update(each.left_out)
    reasons["part that could not be read"] = len(found) - len(read)
    outcomes = sum(kind == "outcome" for each in read for kind, _ in each.events)
    return Count(len(chats), calls, len(read), outcomes, +reasons)


def written_sessions(folder: Path = FOLDER) -> list[Chat]:
    """Sessions of STATE-Bench as chat messages; none where the folder is missing."""
    found = []
    for path in sorted((folder / "statebench").glob("*.messages.jsonl.gz")):
        found += [line["messages"] for line in lines_of(path)]
    return found


def _as_anthropic(chat: Chat) -> Chat:
    made: Chat = []
    for message in chat:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            made.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            blocks: list[dict[str, Any]] = [{"type": "text", "text": message["content"]}] if message["content"] else []
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                name = call["function"]["name"]
                blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": arguments})
            made.append({"role": "assistant", "content": blocks})
        elif message["role"] != "system":
            made.append({"role": message["role"], "content": message["content"]})
    return made


def _as_responses(chat: Chat) -> Chat:
    made: Chat = []
    for message in chat:
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            made.append({"type": "function_call_output", **output})
            continue
        if message["content"]:
            made.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls") or ():
            made.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return made


def _claude_lines(chat: Chat, number: int) -> Iterator[str]:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    about = {"sessionId": f"s{number}", "cwd": "/w", "version": "2.1.332", "isSidechain": False}
    for place, message in enumerate(_as_anthropic(chat)):
        moment = (start + timedelta(seconds=place)).isoformat()
        line = {**about, "type": message["role"], "uuid": f"{number}-{place}", "timestamp": moment, "message": message}
        yield json.dumps(line)


def _with_id(message: dict[str, Any], id: str) -> dict[str, Any]:
    if message["role"] == "tool":
        return message | {"tool_call_id": id}
    if not message.get("tool_calls"):
        return message
    return message | {"tool_calls": [call | {"id": id} for call in message["tool_calls"]]}


def _without_end(chat: Chat) -> Chat:
    last = max((place for place, message in enumerate(chat) if message["role"] == "tool"), default=len(chat))
    return chat[:last]


#: Damages of a chat, and of its text, by name.
DAMAGES: dict[str, tuple[Callable[[Chat], Chat], Callable[[str], str]]] = {
    "whole": (list, str),
    "ids empty": (lambda chat: [_with_id(each, "") for each in chat], str),
    "one id for all calls": (lambda chat: [_with_id(each, "call_0") for each in chat], str),
    "last result missing": (_without_end, str),
    "byte order mark": (list, lambda text: "\ufeff" + text),
    "half a surrogate pair": (list, lambda text: text.replace("the", "\\ud83d", 1)),
    "NUL": (list, lambda text: text.replace("the", "\\u0000", 1)),
    "NaN and an integer of 70 bits": (
        list, lambda text: text[:-1] + ', "reward": NaN, "seed": 1180591620717411303424}'
    ),
    "line ends of Windows": (list, lambda text: text + "\r"),
}  # fmt: skip


def _files(chats: list[Chat], folder: Path) -> Iterator[tuple[str, Form, list[Path], list[Chat]]]:
    for name, (damage, write) in DAMAGES.items():
        damaged = [damage(chat) for chat in chats]
        path = folder / f"{name.replace(' ', '-')}.jsonl"
        lines = [write(json.dumps({"messages": chat})) for chat in damaged]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
        yield f"OpenAI chat, {name}", "messages", [path], damaged
    for name, form in (("Anthropic messages", _as_anthropic), ("OpenAI Responses", _as_responses)):
        path = folder / f"{form.__name__}.jsonl"
        path.write_text("".join(json.dumps({"messages": form(chat)}) + "\n" for chat in chats))
        yield name, "messages", [path], chats
    paths = []
    for number, chat in enumerate(chats):
        paths.append(folder / f"claude-{number}.jsonl")
        paths[-1].write_text("\n".join(_claude_lines(chat, number)))
    yield "Claude Code", "claude-code", paths, chats
    copies = []
    for number in range(len(chats)):
        copies.append(folder / f"copy-{number}.jsonl")
        copies[-1].write_text(paths[number].read_text())
    yield "Claude Code, each transcript twice", "claude-code", [*paths, *copies], [*chats, *chats]


def run(quick: bool) -> Report:
    """`quick` reads five sessions.

    Raises:
        ConfigError: the logs are missing.
    """
    chats = written_sessions()[: _QUICK if quick else None]
    if not chats:
        raise ConfigError(f"there are no logs in {FOLDER}")
    rows, lost = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, form, paths, written in _files(chats, Path(folder)):
            count = count_of(written, list(read_files(form, paths)))
            lost += count.lost
            rows.append(_row(name, count))
    for path in sorted((FOLDER / "smoke").iterdir()):
        lines = (line for file in sorted(path.glob("steps.jsonl*")) for line in lines_of(file))
        steps = [line for line in lines if line["role"] == "tool"]
        found = read_runs(path)
        outcomes = sum(kind == "outcome" for each in found for kind, _ in each.events)
        reasons = Counter({"call without a result": sum(each.unanswered for each in found)})
        count = Count(len({each["session"] for each in steps}), len(steps), len(found), outcomes, +reasons)
        failed = sum(ev.ERROR_MESSAGE in data for each in found for kind, data in each.events if kind == "outcome")
        mislabelled = abs(failed - sum(each["error"] is not None for each in steps))
        lost += count.lost + mislabelled
        rows.append(_row(f"own form, {path.name}", count, mislabelled))
    return Report(
        "formats", lost, 0, "sessions and calls lost or mislabelled", higher_is_better=False, rows=tuple(rows),
    )  # fmt: skip


def _row(name: str, count: Count, mislabelled: int = 0) -> Row:
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(count.reasons.items()))
    read = f"{count.read_sessions} of {count.sessions} sessions, {count.read_calls} of {count.calls} calls"
    return Row(name, count.lost + mislabelled, "lost or mislabelled", note=f"{read}; {reasons}" if reasons else read)
