"""Read sessions of a state check: their calls, their reward, and which assertions about the state failed.

`NAME.messages.jsonl[.gz]` holds sessions as chat messages, `NAME.wrong.jsonl[.gz]` the failed assertions of those that
ended badly, by id. A name is a domain: a world with tools of its own.
"""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import arguments_text, parsed
from fleetlore.transcripts.forms import read_messages
from fleetlore.transcripts.session import LoggedSession, repeatable_id
from fleetlore.wire import events as ev

_MESSAGES, _WRONG = ".messages.jsonl", ".wrong.jsonl"
# A value that is an option of a tool, and no name or number of one session.
_OPTION = re.compile(r"[a-z][a-z_]{0,31}")
_LOOKS = re.compile(r"(?:get|search|list|find|check|read|show|describe|view|look|validate|calculate)(?:_|$)")
# The flag of a call that is shown first and made then.
CONFIRM: Final = "confirm"
# What a result says that changed nothing though no error came.
_REFUSED = frozenset({"preview", "rejected", "denied", "failed"})


class Made(NamedTuple):
    """A call. `said`: its result as text; `before`: what people and the agent said since the call before it."""

    tool: str
    arguments: Mapping[str, Any]
    said: str
    worked: bool
    before: str

    @property
    def looks(self) -> bool:
        """Whether it only reads, by the tool's name."""
        return looks(self.tool)

    @property
    def writes(self) -> bool:
        """Whether it changed something: no look-up, no preview, and not refused."""
        if self.looks or not self.worked or self.arguments.get(CONFIRM) is False:
            return False
        result = parsed(self.said)
        return not (isinstance(result, dict) and (result.get("error") or result.get("status") in _REFUSED))


class Failed(NamedTuple):
    """A failed assertion: of one field of one record; `field` is empty where the whole record is wrong."""

    record: str
    field: str


@dataclass(frozen=True, slots=True)
class Case:
    """A session. `wrong`: of one that ended badly, the assertions that failed."""

    logged: LoggedSession
    domain: str
    calls: tuple[Made, ...]
    ended: str
    wrong: frozenset[Failed]

    @property
    def well(self) -> bool:
        return self.logged.outcome == "success"


def read_cases(folder: Path) -> list[Case]:
    """All sessions of all domains, in the order of the files.

    Raises:
        ConfigError: there are none, or a file cannot be read.
    """
    files = sorted(path for path in folder.glob(f"*{_MESSAGES}*") if path.suffix in (".gz", ".jsonl"))
    cases = [case for path in files for case in _domain(path)]
    if all(case.well for case in cases):
        raise ConfigError(f"{folder} holds no session that ended badly (*{_MESSAGES}.gz with *{_WRONG}.gz beside it)")
    return cases


def looks(tool: str) -> bool:
    """Whether a tool only reads, by its name."""
    return _LOOKS.match(tool) is not None


def is_option(value: object) -> bool:
    """Whether a value is one of a few that a tool takes: a flag, or one plain word."""
    return isinstance(value, bool) or (isinstance(value, str) and _OPTION.fullmatch(value) is not None)


def _domain(path: Path) -> Iterator[Case]:
    domain, _, ending = path.name.partition(_MESSAGES)
    wrong = path.with_name(f"{domain}{_WRONG}{ending}")
    lines = [orjson.loads(line) for line in _text(wrong).splitlines()] if wrong.exists() else []
    failed = {repeatable_id("messages", line["id"]): frozenset(_failed(line)) for line in lines}
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as plain:
        plain.write(_text(path))
        plain.flush()
        sessions = [each for each in read_messages(Path(plain.name)) if each is not None]
    for each in sessions:
        if each.outcome != "unknown":
            each.source = domain
            calls, ended = _calls(each)
            yield Case(each, domain, calls, ended, failed.get(each.session, frozenset()))


def _text(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _failed(line: Mapping[str, Any]) -> Iterator[Failed]:
    """What a line says is wrong. Of a record that should be there and is not its id is unknown: only what it is of."""
    for each in (*line.get("missing_assertions", ()), *line.get("unexpected_assertions", ())):
        yield Failed(str(each["record_key"]), str(each["field"]))
    for each in line.get("unresolved_match_requirements", ()):
        for field in each["requirement"]["match_fields"]:
            if not field.endswith("_id"):
                yield Failed("", str(field))


def _calls(logged: LoggedSession) -> tuple[tuple[Made, ...], str]:
    """The calls, and what was said after the last of them."""
    made: list[Made] = []
    said: list[str] = []
    for kind, data in logged.events:
        if kind == "message":
            said.append(data[ev.CONTENT])
            continue
        failed = ev.ERROR_MESSAGE in data
        arguments = data[ev.ARGUMENTS] if isinstance(data[ev.ARGUMENTS], dict) else {"": data[ev.ARGUMENTS]}
        result = data[ev.ERROR_MESSAGE] if failed else arguments_text(data.get(ev.RESULT, ""))
        made.append(Made(data[ev.TOOL], arguments, result, not failed, "\n".join(said)))
        said = []
    return tuple(made), "\n".join(said)
