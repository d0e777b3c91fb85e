"""Offer what all commands share: options, which a parameter :class:`Joined`, :class:`Asked`, :class:`Reader` or
:class:`Stack` gives a command (:func:`command`), and output.

On a terminal rich draws tables; elsewhere a table is aligned text without truncation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from fleetlore.advice.gate import INVISIBLE
from fleetlore.cluster import check_address
from fleetlore.config import Settings, check_tenant
from fleetlore.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
AdapterName = Literal["calls", "llm"]


def checked(check: Callable[[str], object]) -> Callable[[str | None], str | None]:
    def run(value: str | None) -> str | None:
        try:
            if value is not None:
                check(value)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None
        return value

    return run


Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="HOST:PORT",
        help="Kafka bootstrap servers. Default: FLEETLORE_BROKER.",
        callback=checked(check_address),
    ),
]
Milvus = Annotated[
    str | None, typer.Option("--milvus", metavar="URL", help="Address of Milvus. Default: FLEETLORE_MILVUS.")
]


def folder(text: str) -> Path:
    if not text:  # `Path` would take it for the current one
        raise typer.BadParameter("it is empty, as an unset variable of a script is")
    return Path(text)


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        parser=folder,
        help="Folder of a running `fleetlore up --data DIR`; provides the addresses.",
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the events and lore.", callback=checked(check_tenant))]
Adapter = Annotated[
    AdapterName | None, typer.Option("--adapter", help="Name of the adapter. Default: found by the version.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")]
Version = Annotated[str, typer.Argument(help="Version, or its first characters.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Workers = Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Seconds to wait for the workers.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="Seconds to wait for the broker.")
]


def connection(broker: str | None, data: Path | None, milvus: str | None = None, *, of_agent: bool = False) -> Settings:
    """Return settings for the options: the stack in `--data`, or `--broker`, or the environment.

    `of_agent`: wait for a stack that is down, and only log unknown variables.
    """
    if data is not None and broker is not None:
        raise typer.BadParameter("give --data or --broker, not both: a stack's folder names its own broker")
    return Settings.from_data_dir(
        data, broker=broker, milvus=milvus, unknown_refused=not of_agent, must_run=not of_agent
    )


@dataclass(frozen=True)
class Joined:
    broker: Broker = None
    data: Data = None
    tenant: Tenant = "default"

    def fleet(self) -> dict[str, Any]:
        connection(self.broker, self.data, of_agent=True)
        return {"broker": self.broker, "data": self.data, "tenant": self.tenant}


@dataclass(frozen=True)
class Asked(Joined):
    json: Json = False

    @property
    def settings(self) -> Settings:
        return connection(self.broker, self.data)


@dataclass(frozen=True)
class Reader(Asked):
    timeout: Timeout = 10.0


@dataclass(frozen=True)
class Stack:
    broker: Broker = None
    milvus: Milvus = None
    data: Data = None

    @property
    def settings(self) -> Settings:
        return connection(self.broker, self.data, self.milvus)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its dataclass parameter."""
    own: list[Parameter] = []
    shared: list[Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in _parameters(function):
        kind: Any = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            options = list(_parameters(kind))
            groups[parameter.name] = kind, [each.name for each in options]
            shared += options
        else:
            own.append(parameter)
    shown = own + shared

    @wraps(function)
    def run(**given: Any) -> None:
        for name, (kind, options) in groups.items():
            given[name] = kind(**{option: given.pop(option) for option in options})
        function(**given)

    run.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def _parameters(of: Callable[..., Any]) -> Iterator[Parameter]:
    hints = get_type_hints(of, include_extras=True)
    for each in signature(of).parameters.values():
        kind = hints[each.name]
        for info in getattr(kind, "__metadata__", ()):
            # Show `--limit LIMIT`, and not `<int range>`.
            types = {*get_args(kind.__origin__), kind.__origin__} - {bool, type(None)}
            if isinstance(info, OptionInfo) and info.metavar is None and types & {str, int, float, Path, list[str]}:
                info.metavar = each.name.upper()
        # Keyword-only, so that options with a default may precede others.
        yield each.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)


def group(app: typer.Typer, name: str) -> typer.Typer:
    for each in app.registered_groups:
        if each.name == name and each.typer_instance is not None:
            return each.typer_instance
    made = typer.Typer(no_args_is_help=True)
    app.add_typer(made, name=name)
    return made


def only(entries: Iterable[T], field: str, beginning: str, what: str) -> T:
    """Return the entry whose field begins so. Raises BadParameter: there is none, or several."""
    found = [each for each in entries if getattr(each, field).startswith(beginning)]
    if len(found) != 1:
        reason = f"no {what} begins" if not found else f"{len(found)} {what}s begin"
        raise typer.BadParameter(f"{reason} with {beginning!r}", param_hint=field.upper())
    return found[0]


Columns = Mapping[str, Callable[[Any], object]]


def members(*columns: str) -> Columns:
    """Return columns that show the members of dictionaries, under their names."""
    return {column: itemgetter(column.lstrip(">~").lower()) for column in columns}


_SPACES = re.compile(r"[\t\r\n]+")


def safe(text: str) -> str:
    """Return one line, with terminal controls and invisible characters escaped: agents' texts must not steer the
    terminal.
    """

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return INVISIBLE.sub(escaped, _SPACES.sub(" ", text))


def safe_lines(text: str) -> str:
    return "\n".join(safe(line) for line in text.splitlines())


def moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds > 0 else "-"
    except (OverflowError, ValueError, OSError):
        return "-"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], console: Console | None = None) -> None:
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
    """A Chinese character takes two cells."""
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
    """Print rows as a table, or with --json as a document with the tenant and `facts`.

    `key`: name of the rows there. `nothing`: printed instead of an empty table.
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


def print_result(as_json: bool, document: Any, text: str) -> None:
    typer.echo(json.dumps(document) if as_json else text)


def confirm(question: str, instead: str = "say --yes") -> None:
    """Ask before an irreversible action; exit with 1 on a no. Raises ConfigError without a terminal."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask; {instead}")
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
