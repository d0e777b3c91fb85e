"""Run the command `fleetlore`.

Other packages add commands through the entry-point group `fleetlore.commands`: `up`, or `adapters.rollback`, is a
function `register(app: typer.Typer) -> None`. Every start calls it, so heavy imports belong in the command.

Exit codes: 0 done, 1 an error explained in one line, 2 wrong usage, 3 differences remain, 130 interrupted.
"""

import errno
import io
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # its encoding may lack a letter of a hint
    try:
        from fleetlore.cli.app import build_app
        from fleetlore.loopback import past_proxies

        os.environ |= past_proxies(os.environ)
        try:
            build_app()(args=None if arguments is None else list(arguments), prog_name="fleetlore")
        finally:
            if sys.stdout is not None:  # a parent may have closed it
                sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError:
        _check_output()
        raise


def _check_output() -> None:
    """Exit with one line if the output cannot be written (the disk is full). A pipe's reader that left is no error."""
    try:
        print(flush=True)
    except OSError as error:
        sys.stdout = None  # the interpreter would report it again
        if error.errno != errno.EPIPE:
            what = "what it holds is not whole"
            print(f"fleetlore: the output cannot be written, {what}: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
