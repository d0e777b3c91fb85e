"""Run the command `fleetlore`.

Commands of higher floors join through the entry-point group `fleetlore.commands`, so nothing here imports upward. An
entry point is named like the command it brings (`up`, or `adapters.rollback` for a command of a group) and is a
function

    def register(app: typer.Typer) -> None

that adds it to `app` (or to `fleetlore.cli.app.group(app, "adapters")`). It is called at every start, so its module
imports what is heavy inside the command, after the arguments have been checked. Where its imports fail because an extra
is not installed, the command says which one when it is called.

Exit codes: 0 done, 1 an error that is explained in one line, 2 wrong usage, 3 differences remain (`topics apply`), 130
interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; always ends in SystemExit.

    Args:
        arguments: without the program's name; those of the process by default.
    """
    for package in ("typer", "rich"):
        if find_spec(package) is None:
            print(f"fleetlore: the command line needs {package}: pip install 'fleetlore[cli]'", file=sys.stderr)
            raise SystemExit(1)
    from fleetlore.cli.app import build_app
    from fleetlore.loopback import past_proxies

    os.environ |= past_proxies(os.environ)

    build_app()(args=None if arguments is None else list(arguments), prog_name="fleetlore")


if __name__ == "__main__":
    main()
