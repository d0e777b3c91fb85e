"""Hold a call that failed, and what its session knows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleetlore.calls.objects import Mark
from fleetlore.fingerprint.fingerprint import Failure


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what its session knows.

    Attributes:
        text: of the arguments (`fleetlore.calls.context.text_of`).
        error: what the environment said.
        session: its id; what it alone has taught the fleet is left out.
        seen: lower-case names in its results and in its calls so far.
        cause: id of what made it fail (`fleetlore.fingerprint.fingerprint.cause_of`).
        arguments: as they were sent; `marks`: what was known of the things that they name.
        times: how often this very call has failed in its session since it last worked.
    """

    text: str
    error: str
    failure: Failure
    goal: str = ""
    session: str = ""
    seen: Collection[str] = ()
    cause: str = ""
    arguments: str = ""
    marks: tuple[Mark, ...] = ()
    times: int = 1
