"""Record one tool call of an agent, or each call of a function (`@fleetlore.tool`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import wraps
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast, overload
from uuid import UUID

from fleetlore.agent.session_parts import passes_over
from fleetlore.calls.call import MadeCall
from fleetlore.errors import CallHeld, ConfigError
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.fingerprint.normal_form import is_sentence
from fleetlore.transcripts.calls import Verdict, verdict_of
from fleetlore.wire import events as names

if TYPE_CHECKING:
    from fleetlore.agent.session import Session

__all__ = ["OPEN_ACTION", "Action", "current_session", "tool"]

# Frameworks copy the context into tools' tasks and threads, so a tool finds its session and call.
OPEN_SESSION: ContextVar[Session | None] = ContextVar("fleetlore_session", default=None)
OPEN_ACTION: ContextVar[Action | None] = ContextVar("fleetlore_action", default=None)


def current_session() -> Session | None:
    """Return the innermost open session that this code runs in, or None."""
    session = OPEN_SESSION.get()
    # A task may outlive the session.
    return session if session is not None and session.is_open else None


class BegunCall(NamedTuple):
    """A call under way. `followed`: advice ids and the adapter."""

    made: MadeCall
    recorded: object
    followed: dict[str, Any]
    started: float


class Action:
    """One tool call: a context manager, `with` or `async with`. `Session.begin` returns one that lasts until `end`.

    Set `result`, or call `fail` for an error that the tool did not raise. An exception inside is recorded and raised.
    The end of a cancelled or interrupted call is not recorded.

    Attributes:
        error: kind and text.
        raised: exception of the tool's own function, which its caller may have turned into a text.
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
        # A plain function, such as a decorator's, may return the coroutine of the call.
        self.is_awaited = False
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
        """Record an error that the tool reported: its kind (`error.type`, few values) and text."""
        if self._phase == "over":
            self._session.warn(f"an action of {self.tool} is said to have failed after its end: it is not recorded")
            return
        self.error = (str(error_type) or names.OTHER_ERROR, str(message))

    def returned(self, result: object, *, failed: bool | None = None) -> None:
        """Note a tool's result, which may say that the call failed or was never made."""
        verdict = Verdict()
        with suppress(Exception):  # a value cannot be read, as an array that is asked if it is true
            parts = result if isinstance(result, list) else [result]
            if len(parts) <= _MOST_PARTS:
                read = [each if isinstance(each, _COLLECTIONS) else _data_of(each, each) for each in parts]
                verdict = verdict_of(read if isinstance(result, list) else read[0], failed)
        if not verdict.made:
            self.abandon()
        elif verdict.error is not None:
            self.fail("", verdict.error)
        else:
            self.result = result

    def forbid(self, rule: str) -> None:
        """Record that the call broke a rule, whatever it returned.

        The call counts as failed and the session as no success. Rules have few distinct names.
        """
        self.rule = str(rule)[: names.MAX_RULE]

    def begin(self) -> Self:
        if self._phase == "over":
            self._session.warn(f"an action of {self.tool} is begun again after its end: make one for each call")
        elif self._phase == "new":
            with self._session.fleet.guard:
                self._call = self._session.begin_call(self)
            self._phase = "over" if self._call is None else "open"
        return self

    def change(self, arguments: object) -> None:
        """Replace the arguments of an open call, which keeps its advice."""
        self.arguments = arguments
        if self._call is not None:
            with self._session.fleet.guard:
                self._call = self._session.begin_call(self, self._call)

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
            error: raised exception.
            error_text: a failure without an exception.
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
            self.error = names.OTHER_ERROR, ""
            with self._session.fleet.guard:
                self.error = names.OTHER_ERROR, str(error_text)
        if self.raised is not None:
            self.error, self.raised = _as_error(self.raised), None
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

    def __enter__(self) -> Self:
        self._token = OPEN_ACTION.set(self)
        return self.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if self._token is not None and OPEN_ACTION.get() is self:
            with suppress(ValueError):  # left in another context
                OPEN_ACTION.reset(self._token)
        if self.is_awaited and error is None:
            return
        with suppress(*passes_over(error)):
            self.end(error=error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *left: Any) -> None:
        self.__exit__(*left)


def _as_error(error: Exception) -> tuple[str, str]:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    try:
        text = str(error)
        match error:
            case KeyError(args=(str(said),)) if text == repr(said) and is_sentence(said):
                text = said
        return type(error).__name__, text
    except Exception:
        return type(error).__name__, ""


AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_MAX_DEPTH = 8
# Parts of a message: a longer list is data.
_MOST_PARTS = 64
_COLLECTIONS = (str, dict, list, tuple, set, frozenset)
_MOST_VALUES = 20_000


@overload
def tool(function: AnyFunction) -> AnyFunction: ...
@overload
def tool(*, name: str) -> Callable[[AnyFunction], AnyFunction]: ...
def tool(function: Callable[..., Any] | None = None, *, name: str = "") -> Any:
    """Record each call of a function, `def` or `async def`, in the current session, if any.

    A call that is sure to fail is held once (`Session.hold`). Arguments without data, such as a client, are not
    recorded. Put it under the framework's own decorator, which turns exceptions into texts.

    Raises:
        ConfigError: it has no name, or is a generator, whose call has no end; use `session.begin`.
        CallHeld: its text is the answer to the model.
    """
    if function is None:
        return lambda given: _recorded(given, name)
    return _recorded(function, name)


def _recorded(function: AnyFunction, name: str) -> AnyFunction:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function!r} is a generator; record its calls with session.begin and action.end")
    named = name or getattr(function, "__name__", "")
    if not named:
        raise ConfigError(f"{function!r} has no name: give one by fleetlore.tool(name=...)")
    signature = inspect.signature(function)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            action = _action(named, signature, args, kwargs)
            if action is None:
                return await function(*args, **kwargs)
            with action:
                action.returned(result := await function(*args, **kwargs))
            return result

        return cast(AnyFunction, call_async)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        action = _action(named, signature, args, kwargs)
        if action is None:
            return function(*args, **kwargs)
        with action:
            result = function(*args, **kwargs)
            action.is_awaited = inspect.iscoroutine(result)
            if not action.is_awaited:
                action.returned(result)
        return _awaited(action, result) if action.is_awaited else result

    return cast(AnyFunction, call)


async def _awaited(action: Any, result: Any) -> Any:
    action.is_awaited = False
    with action:
        action.returned(found := await result)
    return found


def _action(tool: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session = current_session()
    if session is None:
        return None
    arguments = _arguments(signature, args, kwargs)
    begun = OPEN_ACTION.get()
    if (
        begun is not None
        and begun.is_open
        and begun._session is session
        and (begun.tool == tool or arguments_text(begun.arguments) == arguments_text(arguments))
    ):
        return _Witness(begun)
    # The caller expects the function's own type of result.
    if (held := session.hold(tool, arguments)) is not None:
        raise CallHeld(held.text)
    return session.action(tool, arguments)


class _Witness:
    is_awaited = False

    def __init__(self, action: Action) -> None:
        self._action = action

    def returned(self, result: object) -> None:
        pass

    def __enter__(self) -> None:
        self._action.raised = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        self._action.raised = error if isinstance(error, Exception) else None


def _arguments(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        given: dict[str, Any] = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:  # the call will fail with this error
        given = dict(kwargs)
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            given |= given.pop(each.name, {})
    return {name: data for name, value in given.items() if (data := _data_of(value, _NO_DATA)) is not _NO_DATA}


_NO_DATA = object()


def _data_of(value: Any, otherwise: Any) -> Any:
    try:
        data = _data(value, 0, iter(range(_MOST_VALUES)))
    except Exception:  # reading a field may fail, such as of a row whose database session is over
        return otherwise
    return otherwise if data is _NO_DATA else data


def _data(value: Any, depth: int, left: Iterator[int]) -> Any:
    if next(left, None) is None:
        return _NO_DATA
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if isinstance(value, Enum) else value
    if depth == _MAX_DEPTH:
        return _NO_DATA
    if isinstance(value, dict):
        pairs = ((str(key), _data(each, depth + 1, left)) for key, each in value.items())
        return {key: each for key, each in pairs if each is not _NO_DATA}
    if isinstance(value, list | tuple | set | frozenset):
        return [each for each in (_data(each, depth + 1, left) for each in value) if each is not _NO_DATA]
    if isinstance(value, PurePath | UUID | Decimal | date | time | Enum):
        return str(value.value if isinstance(value, Enum) else value)
    names = [each.name for each in fields(value)] if is_dataclass(value) else getattr(type(value), "model_fields", None)
    if not isinstance(names, list | dict):
        return _NO_DATA
    data = {name: _data(getattr(value, name, None), depth + 1, left) for name in names}
    return _NO_DATA if any(each is _NO_DATA for each in data.values()) else data  # a handle, such as a context
