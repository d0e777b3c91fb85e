"""Write the reference pages from the code: `python deploy/reference.py`.

`settings.md`, `metrics.md`, `cli.md`, `openapi.json` and `asyncapi.json` are written whole. In `topics.md` only the
table between `<!-- table: topics -->` and `<!-- end -->` is replaced. A test fails when a page is out of date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from fleetlore.cli.app import build_app
from fleetlore.config import describe
from fleetlore.relay.app import openapi
from fleetlore.relay.schemas import asyncapi
from fleetlore.wire.topics import TOPICS
from sinks.metrics import CATALOGUE, LABELS

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

SETTINGS_HEAD = """# Settings

Every role and every agent reads these environment variables. `make docs` makes this page from `fleetlore/config.py`. A
malformed value stops the process with one line that names the variable. `fleetlore up --data DIR` and `Fleet(data=…)`
take the addresses and the public key from the folder instead.
"""

METRICS_HEAD = """# Metrics

Every role serves Prometheus metrics on `/metrics`, with `/livez`, `/readyz` and `/version` beside it. `make docs` makes
this page from the catalogue in `sinks/metrics.py`. A role exports the metrics of its own work; the others stay at 0.
The metrics `process_*` of the Prometheus client (CPU, memory, open files) come with them.
"""

CLI_HEAD = """# Command line

This page is made from the commands themselves by `make docs`. `fleetlore COMMAND --help` prints the same, and
`fleetlore --install-completion` completes commands, options and their values in bash, zsh, fish and PowerShell. An
error is one line on stderr, with `--json` too; stdout then stays empty.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | an error, explained in one line on stderr |
| 2 | wrong usage |
| 3 | differences remain (`topics apply`), or something is to be seen to (`doctor`) |
| 130 | interrupted |
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def settings() -> str:
    """The page of environment variables."""
    rows = ((f"`{name}`", f"`{default}`" if default else "", doc) for name, default, doc in describe())
    return f"{SETTINGS_HEAD}\n{table(('variable', 'default', 'meaning'), rows)}"


def topics() -> str:
    """The table of a tenant's topics."""
    rows = (
        (f"`{spec.name}`", spec.key, spec.holds, spec.kept, str(spec.partitions or "by setting")) for spec in TOPICS
    )
    return table(("topic", "key", "value", "kept", "partitions"), rows)


def metrics() -> str:
    """The page of metrics."""
    parts = [METRICS_HEAD]
    for row, specs in groupby(CATALOGUE, key=lambda spec: spec.row):
        rows = (
            (f"`{spec.name}`", spec.kind, ", ".join(f"`{label}`" for label in spec.labels), spec.help) for spec in specs
        )
        parts.append(f"## {row.capitalize()}\n\n" + table(("metric", "kind", "labels", "meaning"), rows))
    labels = ((f"`{label}`", meaning) for label, meaning in LABELS.items())
    parts.append("## Labels\n\n" + table(("label", "values"), labels))
    return "\n".join(parts)


def cli() -> str:
    """The page of commands."""
    return "\n".join([CLI_HEAD, *_commands(typer.main.get_command(build_app()), "fleetlore")])


def _commands(command: Any, name: str) -> Iterator[str]:
    """One section a command, groups before their commands. Typer bundles its own click, so the types are its own."""
    inner = getattr(command, "commands", {})
    if name != "fleetlore":
        yield f"{'###' if name.count(' ') > 1 else '##'} {name}\n\n{_text(command.help)}\n"
    if not inner:
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        yield f"```text\n{' '.join([name, '[OPTIONS]', *map(_argument, arguments)])}\n```\n"
        rows = [(_names(each), _text(each.help) + _default(each)) for each in command.params if each.help]
        if rows:
            yield table(("argument or option", "meaning"), rows)
    for each in sorted(inner):
        yield from _commands(inner[each], f"{name} {each}")


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name += "…" if parameter.nargs != 1 and not name.endswith("…") else ""
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    if parameter.required:
        return " Required."
    default = parameter.default
    shown = default is not None and not callable(default) and str(default) not in ("", "False", "[]", "()")
    return f" Default: `{str(default).lower() if default is True else default}`." if shown else ""


def _text(text: str | None) -> str:
    """Help on one line; Typer's \\b and markup escapes are for terminals."""
    return re.sub(r"\s+", " ", (text or "").replace("\b", "").replace("\\[", "[")).strip()


def document(made: dict[str, Any]) -> str:
    """A page that programs read."""
    return f"{json.dumps(made, indent=2, ensure_ascii=False)}\n"


_TABLE = re.compile(r"(<!-- table: topics -->\n).*?(<!-- end -->)", re.DOTALL)


def render(page: str) -> str:
    """The text of a page as it should be, from the code and, for `topics.md`, from what is on disk."""
    if page == "topics.md":
        return _TABLE.sub(lambda match: f"{match[1]}\n{topics()}\n{match[2]}", (FOLDER / page).read_text())
    return PAGES[page]()


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "metrics.md": metrics,
    "cli.md": cli,
    "topics.md": topics,
    "openapi.json": lambda: document(openapi()),
    "asyncapi.json": lambda: document(asyncapi()),
}

if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(render(name))
