"""Record the calls of a function wherever a framework runs it: `@fleetlore.tool`.

    @fleetlore.tool
    def search(query: str) -> list[str]: ...

At the function the exception is still itself; further out most frameworks have turned it into a text, and some into a
result like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import wraps
from pathlib import PurePath
from typing import Any, TypeVar, cast, overload
from uuid import UUID

from fleetlore.agent.action import OPEN_ACTION, Action, current_session
from fleetlore.errors import CallHeld, ConfigError
from fleetlore.fingerprint.fingerprint import arguments_text

__all__ = ["tool"]

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_MAX_DEPTH = 8


@overload
def tool(function: AnyFunction) -> AnyFunction: ...
@overload
def tool(*, name: str) -> Callable[[AnyFunction], AnyFunction]: ...
def tool(function: Callable[..., Any] | None = None, *, name: str = "") -> Any:
    """Record each call of a function, `def` or `async def`, in the current session, if any.

    Only a call that is sure to fail differs: it is held once (`Session.hold`). Arguments without data, such as a
    client, are not recorded. Put it under the framework's own decorator.

    Args:
        name: the function's own by default.

    Raises:
        ConfigError: it is a generator, whose call has no end; use `session.begin`.
        CallHeld: its text is the answer to the model.
    """
    if function is None:
        return lambda given: _recorded(given, name)
    return _recorded(function, name)


def _recorded(function: AnyFunction, name: str) -> AnyFunction:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__qualname__} is a generator; record its calls with session.begin and action.end")
    named = name or function.__name__
    signature = inspect.signature(function)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            action = _action(named, signature, args, kwargs)
            if action is None:
                return await function(*args, **kwargs)
            with action:
                action.result = result = await function(*args, **kwargs)
            return result

        return cast(AnyFunction, call_async)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        action = _action(named, signature, args, kwargs)
        if action is None:
            return function(*args, **kwargs)
        with action:
            action.result = result = function(*args, **kwargs)
        return result

    return cast(AnyFunction, call)


def _action(tool: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session = current_session()
    if session is None:
        return None
    arguments = _arguments(signature, args, kwargs)
    begun = OPEN_ACTION.get()
    if (
        begun is not None
        and begun.is_open
        and begun.belongs_to(session)
        and (begun.tool == tool or arguments_text(begun.arguments) == arguments_text(arguments))
    ):
        return _Witness(begun)
    # The caller expects the function's own type of result, and an error from a call that fails.
    if (held := session.hold(tool, arguments)) is not None:
        raise CallHeld(held.text)
    return session.action(tool, arguments)


class _Witness:
    """Sees what a recorded call really raised, before the framework makes a text of it."""

    result: object = None

    def __init__(self, action: Action) -> None:
        self._action = action

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
    return {name: data for name, value in given.items() if (data := _data(value, 0)) is not _NO_DATA}


_NO_DATA = object()


def _data(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if isinstance(value, Enum) else value
    if depth == _MAX_DEPTH:
        return _NO_DATA
    if isinstance(value, dict):
        pairs = ((str(key), _data(each, depth + 1)) for key, each in value.items())
        return {key: each for key, each in pairs if each is not _NO_DATA}
    if isinstance(value, list | tuple | set | frozenset):
        return [each for each in (_data(each, depth + 1) for each in value) if each is not _NO_DATA]
    if isinstance(value, PurePath | UUID | Decimal | date | time | Enum):
        return str(value.value if isinstance(value, Enum) else value)
    parts = _parts(value)
    if parts is None:
        return _NO_DATA
    data = {name: _data(each, depth + 1) for name, each in parts.items()}
    return _NO_DATA if any(each is _NO_DATA for each in data.values()) else data  # a handle, such as a context


def _parts(value: Any) -> dict[str, Any] | None:
    if is_dataclass(value):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    of_model = getattr(type(value), "model_fields", None)
    return {name: getattr(value, name, None) for name in of_model} if isinstance(of_model, dict) else None
