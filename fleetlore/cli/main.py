"""Run the command `fleetlore`.

Other packages add commands through the entry-point group `fleetlore.commands`, so this package imports none of them. An
entry point has the name of its command (`up`, or `adapters.rollback` in a group) and is a function

    def register(app: typer.Typer) -> None

that adds the command to `app` (or to `fleetlore.cli.app.group(app, "adapters")`). Every start calls it, so it must
import heavy modules inside the command. If an extra is not installed, the command names it when called.

Exit codes: 0 done, 1 an error that is explained in one line, 2 wrong usage, 3 differences remain (`topics apply`), 130
interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. It always ends in SystemExit. `arguments`: default: those of the process."""
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
