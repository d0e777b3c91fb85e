"""Build the typer application from the commands of all installed packages."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, entry_points, version
from itertools import groupby
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup

from fleetlore.cli import adapters, dead_letters, install, lore, relay, transcripts
from fleetlore.cli.shared import group, safe
from fleetlore.errors import BrokerUnavailable, FleetloreError, ModelUnavailable

__all__ = ["build_app"]

GROUP = "fleetlore.commands"

PANELS = {
    "Start": ("up",),
    "Read": ("health", "patterns", "items", "places", "adapters", "dead-letters", "console"),
    "Join": ("install", "relay", "mcp", "mcp-proxy", "ingest", "import"),
    "Run": ("worker", "trainer", "topics", "backfill", "hints", "revoke", "distrust", "decisions", "erase", "export",
            "export sessions", "export lore", "import lore"),
    "Check": ("doctor", "uplift", "why", "backtest"),
}  # fmt: skip
# The server's package adds others, also to these groups.
_GROUPS = {
    "adapters": "Show and control adapter versions.",
    "dead-letters": "Inspect and redrive records that could not be processed.",
    "ingest": "Receive traces of agents.",
    "topics": "Describe the topics of a broker.",
}
_COMMANDS: dict[str, Callable[..., None]] = {
    "health": lore.health, "patterns": lore.patterns, "items": lore.items, "places": adapters.places,
    "adapters list": adapters.list_, "adapters show": adapters.show,
    "dead-letters list": dead_letters.list_, "dead-letters show": dead_letters.show,
    "import": transcripts.import_logs, "ingest otel": transcripts.otel, "install": install.install,
    "relay": relay.relay, "mcp": relay.mcp, "mcp-proxy": relay.mcp_proxy, "topics schema": relay.schema,
}  # fmt: skip
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_OTHERS = "Commands"
_WIDTH = 100

_NO_BROKER = "; name one by --broker or FLEETLORE_BROKER, or run `fleetlore up --data DIR` and give --data DIR"


def _choices(argument: TyperArgument, ctx: Any) -> str | None:
    return argument.display_type(ctx) if argument.type_descriptor.is_choice else None


TyperArgument.display_type_rich = _choices  # type: ignore[assignment, method-assign]


class _Commands(TyperGroup):
    """Groups commands by purpose. A name may be two words: `import lore` beside `import`. An expected error exits with
    1.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)

    def list_commands(self, ctx: Any) -> list[str]:
        order = list(_PANEL_OF)
        return sorted(self.commands, key=lambda name: order.index(name) if name in order else len(order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names))
        for panel, some in groupby(names, lambda name: _PANEL_OF.get(name, _OTHERS)):
            with formatter.section(panel):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(room)) for name in some])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
        except FleetloreError as error:
            advised = _NO_BROKER if isinstance(error, BrokerUnavailable) else ""
            typer.echo(f"fleetlore: {safe(str(error))}{advised}", err=True)
            raise typer.Exit(1) from error


def build_app() -> typer.Typer:
    app = typer.Typer(
        cls=_Commands,
        name="fleetlore",
        help="One agent's failure becomes every agent's lesson.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # tracebacks of typer print local variables
        rich_markup_mode=None,  # rich is slow to import
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH},
    )
    app.callback()(_root)
    for name, help in _GROUPS.items():
        group(app, name).info.help = help
    for name, function in _COMMANDS.items():
        _parent(app, name).command(name.split()[-1])(function)
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            register = entry.load()
        except (ImportError, ModelUnavailable) as error:
            _stand_in(app, entry.name, str(error))
        else:
            register(app)
    for group_ in app.registered_groups:
        if group_.typer_instance is not None:
            group_.typer_instance.rich_markup_mode = None
    return app


def _version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        number = version("fleetlore")
    except PackageNotFoundError:
        number = "(run from its source, not installed)"
    typer.echo(f"fleetlore {number}")
    raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


def _parent(app: typer.Typer, name: str) -> typer.Typer:
    parent, _, _ = name.rpartition(" ")
    return group(app, parent) if parent else app


def _stand_in(app: typer.Typer, name: str, reason: str) -> None:

    def unavailable(rest: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise ModelUnavailable(
            f"`fleetlore {name.replace('.', ' ')}` is not installed here: {reason}; "
            "pip install fleetlore-server from your index"
        )

    _parent(app, name.replace(".", " ")).command(
        name.rpartition(".")[2],
        help="Needs an extra that is not installed.",
        context_settings={"ignore_unknown_options": True},
    )(unavailable)
