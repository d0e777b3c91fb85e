"""Hold one tool call in the forms in which it is read, and decide its world.

A call goes to the closed world (systems of the operator, whose texts may teach) if it is one statement of SQL, or if
`FLEETLORE_CLOSED_TOOLS` lists its tool. Pages, mail, files, shell output and MCP servers hold texts of unknown
authors. A server's `openWorldHint: false` is its own claim.
"""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

import orjson

from fleetlore.fingerprint.fingerprint import argument_shape, arguments_text, object_of, shaped_call_id
from fleetlore.fingerprint.literals import is_code
from fleetlore.fingerprint.names import FailureKind, kind_of
from fleetlore.wire.trajectory import MAX_TEXT, Step, clip
from fleetlore.words import TOKEN, names_of

__all__ = [
    "CALL_CHARACTERS", "KEYWORDS", "EndedCall", "MadeCall", "is_closed", "mcp_name", "shows_names", "text_of",
    "values_of", "world_of",
]  # fmt: skip

KEYWORDS = frozenset(
    """
    select from where and or not in on as by order group having limit join inner left right outer distinct count sum avg
    min max desc asc is null like between union all the of to a an for with if else elif return import def print while
    true false none int str len range self lambda class try except
    """.split()  # noqa: SIM905
)
CALL_CHARACTERS = 2_500
_COMMAND = re.compile(r"&&|\|\|?|;|\n")
# A program and perhaps its command: `npm run`, but neither `df.append(x)` nor `x = 1`.
_PROGRAM = re.compile(
    r"\s*(?:(?:sudo|env|time|exec|\w+=\S*)\s+)*+(?:[\w.~-]*/)*+([a-z][\w.-]*+)(?=\s|$)(?!\s+[=(:+])"
    r"(?:\s+([a-z][a-z-]*+)(?=\s|$))?"
)
MAX_TOKENS = 260
_LAST_TOKENS = 70
# Matches the definition of a name, as `def f(`, or `x = 1` at the beginning of a command.
_BINDS = re.compile(
    r"\b(?:import|as|def|class|for|let|var|const|function)[ \t]+([A-Za-z_]\w*)|(?:^|;)[ \t]*([A-Za-z_]\w*)[ \t]*=(?!=)",
    re.M,
)


def values_of(arguments: str) -> dict[str, object]:
    """Return the arguments by name, or {} if they are no JSON object."""
    return object_of(arguments) or {}


@lru_cache(maxsize=256)  # steps are read in pairs
def text_of(arguments: str) -> str:
    """Return keys and values without the escapes of JSON."""
    values = object_of(arguments)
    if values is None:
        return arguments
    return "\n".join(
        f"{key} {each}" if isinstance(each, str) else f"{key} {orjson.dumps(each).decode()}"
        for key, each in values.items()
    )


class MadeCall:
    """One tool call. `json` is made at once, because a tool may change its arguments."""

    def __init__(self, tool: str, arguments: object) -> None:
        self.tool, self.arguments, self.json = tool, arguments, arguments_text(arguments)

    @cached_property
    def text(self) -> str:
        return text_of(self.json)

    @cached_property
    def shape(self) -> str:
        return argument_shape(self.json)

    @cached_property
    def id(self) -> str:
        return shaped_call_id(self.tool, self.shape)

    def key(self, call_id: str) -> str:
        """Return the key of advice about the call."""
        return f"id\x1f{call_id}" if call_id else f"{self.tool}\x1f{self.json}"

    @cached_property
    def trajectory_key(self) -> tuple[str, str]:
        """An equal key for calls that a trajectory keeps as equal."""
        return self.tool, clip(self.json, MAX_TEXT)

    @cached_property
    def tokens(self) -> list[str]:
        tokens = TOKEN.findall(self.text[:CALL_CHARACTERS])
        return tokens if len(tokens) <= MAX_TOKENS else tokens[: MAX_TOKENS - _LAST_TOKENS] + tokens[-_LAST_TOKENS:]

    @cached_property
    def names(self) -> list[str]:
        """Distinct names in lower case, in order, without keywords."""
        words = dict.fromkeys([token.lower() for token in self.tokens if len(token) > 1 and not token[0].isdigit()])
        return [word for word in words if word not in KEYWORDS]

    def programs(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the program of each command line that holds one of these names, "" for other lines of code."""
        return tuple(_program(line, names) for line, held in self._lines if not held.isdisjoint(names))

    def program(self, names: Collection[str]) -> str:
        """Return the first of `programs`, or ""."""
        return next(iter(self.programs(names)), "")

    @cached_property
    def _lines(self) -> list[tuple[str, set[str]]]:
        values = object_of(self.json)
        texts = (
            [self.json] if values is None else [str(each) for key, each in values.items() if is_code(key, str(each))]
        )
        lines = _COMMAND.split("\n".join(texts)[:CALL_CHARACTERS].lower())
        return [(line, names_of(line)) for line in lines]

    @property
    def bound(self) -> frozenset[str]:
        return frozenset(
            [name.lower() for found in _BINDS.findall(self.text[:CALL_CHARACTERS]) for name in found if name]
        )


class EndedCall(MadeCall):
    """A call of a closed session, whose arguments are text."""

    def __init__(self, step: Step) -> None:
        self.tool, self.arguments, self.json, self.step = step.tool, step.arguments, step.arguments, step

    @cached_property
    def kind(self) -> FailureKind | None:
        return kind_of(self.step) if self.step.failed else None


def _program(line: str, names: Collection[str]) -> str:
    found = _PROGRAM.match(line)
    if found is None or found[1] in KEYWORDS or found[1] in names:
        return ""
    return found[1] if found[2] is None or found[2] in names else f"{found[1]} {found[2]}"


_STATEMENT = re.compile(
    r"\s*(?:SELECT\b.+\bFROM\s+\S|WITH\s.+\bAS\s*\(|INSERT\s+INTO\s|UPDATE\s.+\bSET\s|DELETE\s+FROM\s|EXPLAIN\s+\w"
    r"|SHOW\s+(?:FULL\s+)?(?:TABLES|COLUMNS|FIELDS|DATABASES|SCHEMAS|CREATE|INDEX|KEYS)\b"
    r"|DESC(?:RIBE)?\s+\S++\s*+;?\s*\Z|PRAGMA\s+\w|(?:CREATE|ALTER|DROP)\s+(?:\w+\s+)?(?:TABLE|VIEW|INDEX)\s)",
    re.DOTALL,
)
# Tools and arguments of such a name take SQL. "Select a hotel from the list" is no statement.
_DATABASE = re.compile(r"sql|database|(?<![a-z])db(?![a-z])|duckdb|clickhouse|bigquery|snowflake", re.IGNORECASE)
_NAMES = re.compile(
    r"(?i)\s*(?:SHOW|DESC(?:RIBE)?|PRAGMA)\s"
    r"|.*\b(?:information_schema|sqlite_(?:master|schema)|pg_(?:catalog|tables))\b",
    re.DOTALL,
)
# Some agents wrap a call: `execute[SHOW TABLES]`.
_WRAPPED = re.compile(r"\A\s*[a-z_]{1,20}[\[(](.*)[\])]\s*\Z", re.DOTALL)
_MCP = "mcp__"
_NO_NAME = re.compile(r"[^\w.-]+")
_ADDRESS = re.compile(r"://|\bhttps?\b", re.IGNORECASE)
_MAX_STATEMENT = 8_192


def mcp_name(server: str, tool: str) -> str:
    """Name a tool of an MCP server: two servers may each have a tool `search`."""
    return f"{_MCP}{_NO_NAME.sub('_', server).strip('_') or 'unknown'}__{tool}"


@lru_cache(maxsize=4096)
def _statement(tool: str, arguments: str) -> str:
    values = object_of(arguments)
    named = [("", arguments)] if values is None else [(key, each) for key, each in values.items() if each is not None]
    texts = [(key, each[:_MAX_STATEMENT]) for key, each in named if isinstance(each, str) and " " in each.strip()]
    if len(texts) != 1:
        return ""
    key, text = texts[0]
    text = _WRAPPED.sub(r"\1", text)
    of_database = _DATABASE.search(tool) or _DATABASE.search(key)
    # An address is sought last: that reads the whole text.
    is_statement = _STATEMENT.match(text.upper() if of_database else text) and not _ADDRESS.search(texts[0][1])
    return text if is_statement else ""


def is_closed(tool: str, arguments: str, listed: Iterable[str] = ()) -> bool:
    """Whether a call goes to the closed world. `listed`: tools, `*` for any part."""
    is_listed = any(fnmatchcase(tool, pattern) for pattern in listed)
    return is_listed or (not tool.startswith(_MCP) and bool(_statement(tool, arguments)))


def world_of(tool: str, listed: Iterable[str] = ()) -> str:
    """Return `closed`, `SQL` if only its statements are closed, else `open`."""
    if any(fnmatchcase(tool, pattern) for pattern in listed):
        return "closed"
    return "SQL" if _DATABASE.search(tool) and not tool.startswith(_MCP) else "open"


def shows_names(tool: str, arguments: str, listed: Iterable[str] = ()) -> bool:
    """Whether a closed call asks what exists: its result holds names, no rows."""
    statement = _statement(tool, arguments)
    return _NAMES.match(statement) is not None if statement else is_closed(tool, arguments, listed)
