"""Decide which calls go to the closed world: systems that the operator runs, whose texts may teach.

A call is closed if it is one statement of SQL, or if the operator lists its tool in `FLEETLORE_CLOSED_TOOLS`.
Everything else is open: pages, mail, files, shell output and MCP servers hold texts of unknown authors. A server's
`openWorldHint: false` is its own claim, so the operator lists trusted tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import object_of

__all__ = ["is_closed", "mcp_name", "shows_names", "world_of"]

_STATEMENT = re.compile(
    r"\s*(?:SELECT\b.+\bFROM\s+\S|WITH\s.+\bAS\s*\(|INSERT\s+INTO\s|UPDATE\s.+\bSET\s|DELETE\s+FROM\s|EXPLAIN\s+\w"
    r"|SHOW\s+(?:FULL\s+)?(?:TABLES|COLUMNS|FIELDS|DATABASES|SCHEMAS|CREATE|INDEX|KEYS)\b|DESC(?:RIBE)?\s+\S+\s*;?\s*\Z"
    r"|PRAGMA\s+\w|(?:CREATE|ALTER|DROP)\s+(?:\w+\s+)?(?:TABLE|VIEW|INDEX)\s)",
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
# Coding agents and `fleetlore mcp-proxy` name MCP tools `mcp__server__tool`.
_MCP = "mcp__"
_NO_NAME = re.compile(r"[^\w.-]+")
_ADDRESS = re.compile(r"://|\bhttps?\b", re.IGNORECASE)
_MAX_TEXT = 8_192


def mcp_name(server: str, tool: str) -> str:
    """Name a tool of an MCP server: two servers may each have a tool `search`."""
    return f"{_MCP}{_NO_NAME.sub('_', server).strip('_') or 'unknown'}__{tool}"


@lru_cache(maxsize=4096)
def _statement(tool: str, arguments: str) -> str:
    values = object_of(arguments)
    named = [("", arguments)] if values is None else [(key, each) for key, each in values.items() if each is not None]
    texts = [(key, each[:_MAX_TEXT]) for key, each in named if isinstance(each, str) and " " in each.strip()]
    if len(texts) != 1 or _ADDRESS.search(texts[0][1]):
        return ""
    key, text = texts[0]
    text = _WRAPPED.sub(r"\1", text)
    of_database = _DATABASE.search(tool) or _DATABASE.search(key)
    return text if _STATEMENT.match(text.upper() if of_database else text) else ""


def is_closed(tool: str, arguments: str, listed: Iterable[str] = ()) -> bool:
    """Whether a call goes to the closed world. `listed`: names of tools, `*` for any part."""
    is_listed = any(fnmatchcase(tool, pattern) for pattern in listed)
    return is_listed or (not tool.startswith(_MCP) and bool(_statement(tool, arguments)))


def world_of(tool: str, listed: Iterable[str] = ()) -> str:
    """Return `closed`, `SQL` if only its statements are closed, else `open`."""
    if any(fnmatchcase(tool, pattern) for pattern in listed):
        return "closed"
    return "SQL" if _DATABASE.search(tool) and not tool.startswith(_MCP) else "open"


def shows_names(tool: str, arguments: str, listed: Iterable[str] = ()) -> bool:
    """Whether a closed call asks what there is, so that its result holds names and no rows."""
    statement = _statement(tool, arguments)
    return _NAMES.match(statement) is not None if statement else is_closed(tool, arguments, listed)
