"""Name the author of a decision, and find the id that a beginning means."""

from __future__ import annotations

import getpass
from collections.abc import Iterable
from typing import Annotated

import typer

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import MAX_WHY


def _why(text: str) -> str:
    if not text.strip() or len(text) > MAX_WHY:
        raise typer.BadParameter(f"say why, in 1 to {MAX_WHY} characters")
    return text.strip()


Why = Annotated[str, typer.Option("--why", help="Reason; it is kept with the decision.", callback=_why)]
By = Annotated[
    str, typer.Option("--by", help="Author, on a cluster without logins. Default: your login, else your user name.")
]


def author(settings: Settings, by: str) -> str:
    """Return the login that the broker proves, or else `by` or the name of this user.

    Raises:
        BadParameter: `by` is not the login, or this user has no name.
    """
    if login := settings.kafka_sasl_username:
        if by not in ("", login):
            raise typer.BadParameter(f"the broker knows you as {login}: leave --by out")
        return login
    try:
        return by or getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user id may have no name
        raise typer.BadParameter("you have no name on this machine: give --by") from None


def whole(beginning: str, known: Iterable[str], what: str) -> str:
    """Return the id that begins so. Raises ConfigError if none or several do."""
    known = list(known)
    found = [beginning] if beginning in known else [id for id in known if id.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError(f"{f'{len(found)} {what}s begin' if found else f'no {what} begins'} with {beginning!r}")
    return found[0]
