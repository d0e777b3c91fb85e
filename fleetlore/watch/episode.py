"""Keep the agent's own last steps and their results: the episodic buffer. Bounded, in memory, never sent."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fleetlore.fingerprint.fingerprint import arguments_text

__all__ = ["RecentStep", "RecentSteps"]

KEPT_MOMENTS = 64
MAX_TEXT = 2000


class RecentStep(NamedTuple):
    """One call that ended, or one message.

    Attributes:
        number: its place among the session's moments, from 1.
        tool: the tool that was called; empty for a message.
        did: what the agent did, as text: the call's arguments, or what it said; empty where another spoke.
        came: what came of it, as text: the result, the error, or what another said.
        error: kind of error; None where there was none.
    """

    number: int
    tool: str
    did: str
    came: str
    error: str | None = None

    def __str__(self) -> str:
        if not self.tool:
            return f"said: {self.did[:200]}" if self.did else f"heard: {self.came[:200]}"
        came = f"failed: {self.error}: {self.came[:200]}" if self.error else "worked"
        return f"{self.tool}({self.did[:200]}) {came}"


class RecentSteps:
    """The last moments of one session.

    Attributes:
        moments: the last `KEPT_MOMENTS`, oldest first.
        calls, errors: of the whole session, those that were forgotten included.
    """

    def __init__(self) -> None:
        self.moments: deque[RecentStep] = deque(maxlen=KEPT_MOMENTS)
        self.calls = 0
        self.errors = 0
        self._seen = 0

    def record(self, tool: str, arguments: object, result: object, error: tuple[str, str] | None) -> None:
        """Take in a call that ended. `error`: its kind and text."""
        self.calls += 1
        self.errors += error is not None
        came = error[1] if error is not None else arguments_text(result)
        self._add(tool, arguments_text(arguments), came, error[0] if error is not None else None)

    def said(self, role: str, text: str) -> None:
        """Take in a message: the agent's own, or (`user`) another's."""
        self._add("", *(("", text) if role == "user" else (text, "")), None)

    def _add(self, tool: str, did: str, came: str, error: str | None) -> None:
        self._seen += 1
        self.moments.append(RecentStep(self._seen, tool, did[:MAX_TEXT], came[:MAX_TEXT], error))
