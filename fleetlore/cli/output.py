"""Print and write for all commands.

On a terminal rich draws tables. Elsewhere a table is aligned text without truncation. `--json` prints one ASCII JSON
document. Control characters in agents' texts are escaped, so that they cannot steer the terminal.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from fleetlore.advice.gate import INVISIBLE
from fleetlore.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from fleetlore.cli.options import Asked

__all__ = ["Columns", "ask", "confirm", "moment", "print_json", "print_list", "print_table", "safe", "safe_lines"]

T = TypeVar("T")
# Cell values by the column names of `print_table`.
Columns = Mapping[str, Callable[[Any], object]]

_SPACES = re.compile(r"[\t\r\n]+")


def safe(text: str) -> str:
    """Return the text on one line, with terminal controls and invisible characters escaped."""
    return INVISIBLE.sub(lambda match: _escaped(ord(match.group())), _SPACES.sub(" ", text))


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_lines(text: str) -> str:
    """Escape a text, but keep its lines."""
    return "\n".join(safe(line) for line in text.splitlines())


def moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds > 0 else "-"
    except (OverflowError, ValueError, OSError):
        return "-"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], console: Console | None = None) -> None:
    """Print rows, with their texts escaped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = console or Console(highlight=False)
    cells = [[safe(str(cell)) for cell in row] for row in rows]
    if not console.is_terminal:
        typer.echo(_plain(columns, cells), file=console.file)
        return
    table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        fold = column.startswith("~")
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(
            column.lstrip(">~"), justify=justify, no_wrap=not fold, overflow="fold" if fold else "ellipsis"
        )
    for row in cells:
        # rich would read brackets as markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Chinese character takes two terminal cells."""
    from rich.cells import cell_len

    lines = [[column.lstrip(">~") for column in columns], *rows]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(
            " " * (width - cell_len(cell)) + cell if column[:1] == ">" else cell + " " * (width - cell_len(cell))
            for column, cell, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def print_list(
    asked: Asked,
    key: str,
    rows: Sequence[T],
    columns: Columns,
    *,
    nothing: str,
    limit: int | None = None,
    as_json: Callable[[T], Any] = asdict,  # type: ignore[assignment]
    **facts: Any,
) -> None:
    """Print rows as a table or, with --json, as a document with the tenant and `facts`.

    Args:
        key: name of the rows in the document.
        nothing: printed instead of an empty table.
    """
    shown = rows[:limit]
    if asked.json:
        total = {} if limit is None else {"total": len(rows)}
        print_json({"tenant": asked.tenant, **facts, **total, key: [as_json(each) for each in shown]})
    elif not shown:
        typer.echo(nothing)
    else:
        print_table(list(columns), [[cell(each) for cell in columns.values()] for each in shown])
        if limit is not None:
            say_rest(len(rows), limit)


def say_rest(total: int, limit: int) -> None:
    if total > limit:
        typer.echo(f"\n{limit} of {total}; more with --limit")


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document))


def confirm(question: str) -> None:
    """Ask before an irreversible action; exit with 1 on a no. Raises ConfigError without a terminal."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask; say --yes")
    typer.confirm(question, abort=True)


def ask(question: Coroutine[Any, Any, T]) -> T:
    """Run a request to the broker. Its error is printed in one line."""
    clients = [logging.getLogger(name) for name in ("aiokafka", "fleetlore")]
    levels = [client.level for client in clients]
    for client in clients:
        client.setLevel(logging.CRITICAL + 1)
    try:
        return asyncio.run(question)
    finally:
        for client, level in zip(clients, levels, strict=True):
            client.setLevel(level)
