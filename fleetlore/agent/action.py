"""Hold one tool call of an agent: it says what came of it, and the session records that."""

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

# A framework copies the context into the tasks and threads in which it runs tools. So a tool finds the session and the
# call of the agent that started it.
OPEN_SESSION: ContextVar[Session | None] = ContextVar("fleetlore_session", default=None)
OPEN_ACTION: ContextVar[Action | None] = ContextVar("fleetlore_action", default=None)


def current_session() -> Session | None:
    """The innermost session that this code runs in, or None outside of any session."""
    session = OPEN_SESSION.get()
    # A task may outlive the session that it was started in.
    return session if session is not None and session.is_open else None


class BegunCall(NamedTuple):
    """A call under way. `followed`: the advice, what was withheld, and the adapter that its outcome names."""

    made: MadeCall
    recorded: object
    followed: dict[str, Any]
    started: float


class Action:
    """One tool call: a context manager, `with` or `async with`. `Session.begin` returns one that lasts until `end`.

    Set `result`, or report an error that the tool gave without raising with `fail`. An exception inside is recorded as
    the call's error (its class and its text) and goes on to the agent. A cancelled call has not failed, so its end is
    not recorded.

    Attributes:
        error: kind and text of the error, as reported or raised.
        raised: exception that the tool's own function raised. Its caller may have turned it into a text.
        rule: name of the rule that the call broke.
    """

    # Until it is made: an action that is refused was not forgotten.
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
        """Its arguments as events hold them, without quotations of advice, or None before it begins."""
        return self._call.recorded if self._call is not None else None

    def fail(self, error_type: str, message: str = "") -> None:
        """Record that the tool reported an error: its kind (`error.type`, few distinct values) and its text."""
        if self._phase == "over":
            self._session.warn(f"an action of {self.tool} is said to have failed after its end: it is not recorded")
            return
        self.error = (str(error_type) or names.OTHER_ERROR, str(message))

    def forbid(self, rule: str) -> None:
        """Record that the call broke a rule, whatever it returned.

        The call counts as failed and the session as no success, so no agent learns from it. The rule's name has few
        distinct values.
        """
        self.rule = str(rule)[: names.MAX_RULE]

    def begin(self) -> Self:
        """Record that the call begins. From any thread; once."""
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
        """Record how the call ended. From any thread; only the first time counts.

        Args:
            result: the tool's result, if it worked.
            error: the exception that it raised. A cancellation or an interrupt is no fault of the tool, so the end of
                the call is not recorded.
            error_text: the text of a failure without an exception. The kind of error is found in it.
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
            self.error, self.raised = _as_error(self.raised), None  # its traceback would keep the call's frames
        unknown = error is not None and self.error is None
        self._session.end_call(self, call, cancelled=unknown, duration_seconds=duration_seconds)

    def abandon(self) -> None:
        """Record nothing of how it ended: it was put off, handed to somebody else or never made."""
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
        """Whether it has begun and not ended."""
        return self._phase == "open"

    def belongs_to(self, session: Session) -> bool:
        """Whether it is a call of that session."""
        return self._session is session

    def __enter__(self) -> Self:
        self._token = OPEN_ACTION.set(self)
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            with suppress(ValueError):  # left in another context than it was entered in
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
        match error:  # the text of a `KeyError` is the `repr` of its argument, which is good for a key only
            case KeyError(args=(str(said),)) if text == repr(said) and is_sentence(said):
                text = said
        return type(error).__name__, text
    except Exception:  # an exception whose own text fails must not hide the error that is on its way
        return type(error).__name__, ""
