"""Define the options that commands share. A command with a parameter :class:`Joined`, :class:`Asked`, :class:`Reader`
or :class:`Stack` gets its options (:func:`command`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from fleetlore.cluster import check_address
from fleetlore.config import Settings, check_tenant
from fleetlore.errors import ConfigError, ModelUnavailable

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
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Folder of a running `fleetlore up --data DIR`; provides the addresses."
    ),
]
Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the events and lore.", callback=checked(check_tenant))]
Adapter = Annotated[
    AdapterName | None, typer.Option("--adapter", help="Name of the adapter. Default: found by the version.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Logs = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        exists=True,
        help="Logged sessions in any form that `fleetlore import` reads, or trajectories.jsonl and steps.jsonl.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")]
Version = Annotated[str, typer.Argument(help="Version, or its first characters.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="Seconds to wait for the broker.")
]


def connection(broker: str | None, data: Path | None, milvus: str | None = None, *, of_agent: bool = False) -> Settings:
    """Return settings for the options: the stack in `--data`, or `--broker`, or the environment.

    `of_agent`: wait for a stack that is down, and only log unknown variables. Raises BadParameter, ConfigError.
    """
    if data is not None and broker is not None:
        raise typer.BadParameter("give --data or --broker, not both: a stack's folder names its own broker")
    if data is None:
        return Settings.from_env(broker=broker, milvus=milvus, unknown_refused=not of_agent)
    return Settings.from_data_dir(
        data, broker=broker, milvus=milvus, unknown_refused=not of_agent, must_run=not of_agent
    )


@dataclass(frozen=True)
class Joined:
    """Options of a command that joins a tenant as an agent."""

    broker: Broker = None
    data: Data = None
    tenant: Tenant = "default"

    def fleet(self) -> dict[str, Any]:
        connection(self.broker, self.data, of_agent=True)
        return {"broker": self.broker, "data": self.data, "tenant": self.tenant}


@dataclass(frozen=True)
class Asked(Joined):
    """Options of a command about a tenant."""

    json: Json = False

    @property
    def settings(self) -> Settings:
        """Raises BadParameter and ConfigError as `connection` does."""
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
        """Raises BadParameter and ConfigError as `connection` does."""
        return connection(self.broker, self.data, self.milvus)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its dataclass parameter, after its own."""
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
        _name_value(each.name, hints[each.name])
        # Keyword-only, so that options with a default may precede others.
        yield each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY)


def _name_value(name: str, kind: Any) -> None:
    """Show `--limit LIMIT`, and not `<int range>` or `<list[str]>`."""
    for info in getattr(kind, "__metadata__", ()):
        types = {*get_args(kind.__origin__), kind.__origin__} - {bool, type(None)}
        if isinstance(info, OptionInfo) and info.metavar is None and types & {str, int, float, Path, list[str]}:
            info.metavar = name.upper()


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import an extra's modules for a command. Raises ModelUnavailable with the install command."""
    try:
        yield
    except ImportError as error:
        raise ModelUnavailable(f"{what} {error.name}: pip install 'fleetlore[{name}]' from your index") from None


def group(app: typer.Typer, name: str) -> typer.Typer:
    """Return the command group `name` of `app`, new if necessary."""
    for each in app.registered_groups:
        if each.name == name and each.typer_instance is not None:
            return each.typer_instance
    made = typer.Typer(no_args_is_help=True)
    app.add_typer(made, name=name)
    return made
