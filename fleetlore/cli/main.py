"""Run the command `fleetlore`.

Other packages add commands through the entry-point group `fleetlore.commands`: `up`, or `adapters.rollback`, is a
function `register(app: typer.Typer) -> None`. Every start calls it, so heavy imports belong in the command.

Exit codes: 0 done, 1 an error explained in one line, 2 wrong usage, 3 differences remain, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> None:
    for package in ("typer", "rich"):
        if find_spec(package) is None:
            needed = f"the command line needs {package}: pip install 'fleetlore[cli]' from your index"
            print(f"fleetlore: {needed}", file=sys.stderr)
            raise SystemExit(1)
    from fleetlore.cli.app import build_app
    from fleetlore.loopback import past_proxies

    os.environ |= past_proxies(os.environ)

    build_app()(args=None if arguments is None else list(arguments), prog_name="fleetlore")


if __name__ == "__main__":
    main()
