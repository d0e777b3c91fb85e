"""Record one tool call of an agent."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from fleetlore.agent.lifetime import passes_over
from fleetlore.calls.call import MadeCall
from fleetlore.fingerprint.normal_form import is_sentence
from fleetlore.wire import events as names

if TYPE_CHECKING:
    from fleetlore.agent.session import Session

# Frameworks copy the context into the tasks and threads of tools, so a tool finds the session and the call that started
# it.
OPEN_SESSION: ContextVar[Session | None] = ContextVar("fleetlore_session", default=None)
OPEN_ACTION: ContextVar[Action | None] = ContextVar("fleetlore_action", default=None)


def current_session() -> Session | None:
    """Return the innermost session that this code runs in, or None."""
    session = OPEN_SESSION.get()
    # A task may outlive the session that it was started in.
    return session if session is not None and session.is_open else None


class BegunCall(NamedTuple):
    """A call under way. `followed`: what its outcome names: shown and withheld ids, and the adapter."""

    made: MadeCall
    recorded: object
    followed: dict[str, Any]
    started: float


class Action:
    """One tool call: a context manager, `with` or `async with`. `Session.begin` returns one that lasts until `end`.

    Set `result`, or call `fail` for an error that the tool did not raise. An exception inside is recorded and goes on
    to the agent. The end of a cancelled call is not recorded.

    Attributes:
        error: kind and text of the error, as reported or raised.
        raised: exception of the tool's own function. Its caller may have turned it into a text.
        rule: name of the rule that the call broke.
    """

    # An action that is refused before `__init__` sets this was not forgotten.
    _phase: Literal["new", "open", "over"] = "over"

    def __init__(self, session: Session, tool: str, arguments: object, call_id: str = "") -> None:
        self._session = session
        self.tool = names.fitting_name(tool)
        self.arguments = arguments
        self.call_id = call_id
        self.result: object = None
        self.error: tuple[str, str] | None = None
        self.raised: Exception | None = None
        self.rule = ""
        self._call: BegunCall | None = None
        self._token: Token[Action | None] | None = None
        self._phase = "new"

    def __repr__(self) -> str:
        state = f"failed: {self.error[0]}" if self.error is not None else self._phase
        return f"<Action {self.tool} of session {self._session.id}, {state}>"

    def __del__(self) -> None:
        if self._phase == "new":
            self._session.warn(f"an action of {self.tool} was made and never entered: it is not recorded")

    @property
    def recorded(self) -> object:
        return self._call.recorded if self._call is not None else None

    def fail(self, error_type: str, message: str = "") -> None:
        """Record an error that the tool reported: its kind (`error.type`, few distinct values) and text."""
        if self._phase == "over":
            self._session.warn(f"an action of {self.tool} is said to have failed after its end: it is not recorded")
            return
        self.error = (str(error_type) or names.OTHER_ERROR, str(message))

    def forbid(self, rule: str) -> None:
        """Record that the call broke a rule, whatever it returned.

        The call counts as failed and the session as no success, so no agent learns from it. Rules have few distinct
        names.
        """
        self.rule = str(rule)[: names.MAX_RULE]

    def begin(self) -> Self:
        """Record that the call begins, once, from any thread."""
        if self._phase == "over":
            self._session.warn(f"an action of {self.tool} is begun again after its end: make one for each call")
        elif self._phase == "new":
            self._call, self._phase = self._session.begin_call(self), "open"
        return self

    def end(
        self,
        result: object = None,
        *,
        error: BaseException | None = None,
        error_text: str | None = None,
        duration_seconds: float | None = None,
    ) -> None:
        """Record how the call ended, once, from any thread.

        Args:
            error: the exception that it raised. The end of a cancelled or interrupted call is not recorded.
            error_text: a failure without an exception. The kind of error is found in the text.
            duration_seconds: since the beginning by default.
        """
        call = self._closed()
        if call is None:
            return
        if result is not None:
            self.result = result
        if isinstance(error, Exception):
            self.error = _as_error(error)
        elif error_text is not None:
            self.error = names.OTHER_ERROR, error_text
        if self.raised is not None:
            self.error, self.raised = _as_error(self.raised), None  # free the frames of its traceback
        unknown = error is not None and self.error is None
        self._session.end_call(self, call, cancelled=unknown, duration_seconds=duration_seconds)

    def abandon(self) -> None:
        call = self._closed()
        if call is not None:
            self._session.end_call(self, call, cancelled=True)

    def _closed(self) -> BegunCall | None:
        call, self._call = self._call, None
        if call is not None:
            self._phase = "over"
        return call

    @property
    def is_open(self) -> bool:
        return self._phase == "open"

    def belongs_to(self, session: Session) -> bool:
        return self._session is session

    def __enter__(self) -> Self:
        self._token = OPEN_ACTION.set(self)
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            with suppress(ValueError):  # left in another context
                OPEN_ACTION.reset(self._token)
        with suppress(*passes_over(error)):
            self.end(error=error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def _as_error(error: Exception) -> tuple[str, str]:
    try:
        text = str(error)
        match error:
            case KeyError(args=(str(said),)) if text == repr(said) and is_sentence(said):
                text = said
        return type(error).__name__, text
    except Exception:  # its own text fails
        return type(error).__name__, ""
