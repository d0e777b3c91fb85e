"""Hold a call that failed as advice after it needs it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleetlore.calls.likeness import FailureWords
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
    """

    text: str
    error: str
    failure: Failure
    goal: str = ""
    session: str = ""
    seen: Collection[str] = ()
    cause: str = ""

    @property
    def words(self) -> FailureWords:
        """By what it is compared with other failures."""
        return FailureWords.of(self.goal, self.text, self.error, self.failure)
