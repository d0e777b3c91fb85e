"""One tool call, as an agent holds it: it says what came of it, and the session records that."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fleetlore.wire import events as names

if TYPE_CHECKING:
    from fleetlore.agent.recording import Recording

__all__ = ["CONTROL", "Action", "BegunCall"]

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BegunCall(NamedTuple):
    """A call under way.

    Attributes:
        text: its arguments as text.
        recorded: its arguments as the events have them.
        followed: what its outcome names: advice, what was withheld or cited, and the adapter.
    """

    text: str
    recorded: object
    followed: dict[str, Any]
    started: float


class Action:
    """One tool call. Set `result`, or report an error that the tool gave without raising with `fail`.

    An exception inside is recorded as the call's error (its class and its text) and goes on to the agent. A call that
    is cancelled has not failed: nothing is recorded of how it ended.

    Attributes:
        error: kind and text of the error, as reported or raised.
        rule: name of the rule that the call broke.
    """

    def __init__(self, session: Recording, tool: str, arguments: object, call_id: str = "") -> None:
        self.tool = CONTROL.sub(" ", tool)[: names.MAX_ID_LENGTH] or "unnamed"
        self.arguments = arguments
        self.call_id = call_id
        self.result: object = None
        self.error: tuple[str, str] | None = None
        self.rule = ""
        self._session = session
        self._call: BegunCall | None = None

    def fail(self, error_type: str, message: str = "") -> None:
        """Record that the tool reported an error: its kind (`error.type`, few distinct values) and its text."""
        self.error = (str(error_type), str(message))

    def forbid(self, rule: str) -> None:
        """Record that the call broke a rule, whatever it returned: for whoever checks the agent, not for the agent
        itself.

        It then counts as failed and the session as no success, so nobody learns to do it. The rule's name has few
        distinct values.
        """
        self.rule = str(rule)[: names.MAX_RULE]

    async def __aenter__(self) -> Self:
        self._call = self._session.begin_call(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.error = (type(error).__name__, _message(error))
        if self._call is not None:
            self._session.end_call(self, self._call, cancelled=error is not None and self.error is None)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception whose own text fails must not hide the error that is on its way
        return ""
