"""Draw reports of `evaluate`: `python -m benchmarks.plots REPORT… --out DIR`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import command_app
from fleetlore.cli.options import Json
from fleetlore.cli.output import print_json
from fleetlore.errors import ConfigError


class Form(StrEnum):
    """What is written."""

    SVG = "svg"
    PNG = "png"


def plots(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT", help="Files with what the commands printed with --json.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the figures are written.")],
    form: Annotated[Form, typer.Option("--format", help="Kind of file.")] = Form.SVG,
    as_json: Json = False,
) -> None:
    """Draw reports of `benchmarks.evaluate` (AdMem's table, learning curves, forgetting).

    The same reports give the same files. Needs matplotlib.
    """
    import orjson

    from benchmarks.evaluate.plots import plots as drawn

    if not out.is_dir():
        raise ConfigError(f"--out {out} is no folder")
    written = []
    for file in reports:
        try:
            report = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise ConfigError(f"{file} is no report: {error}") from None
        if not isinstance(report, dict):
            raise ConfigError(f"{file} is no report: it holds no object")
        try:
            for name, data in drawn(report, form.value):
                target = out / f"{name}.{form.value}"
                target.write_bytes(data)
                written.append(str(target))
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file} is no report that can be drawn: {error!r}") from None
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None
        except OSError as error:
            raise ConfigError(f"--out {out}: {error}") from None
    if as_json:
        print_json({"files": written})
    else:
        typer.echo("\n".join(written))


if __name__ == "__main__":
    command_app(plots)()
