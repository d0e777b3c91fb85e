"""List what a session can be told when it is made: the one list of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from fleetlore.agent.attempts import AttemptOf
from fleetlore.watch.watchdog import STALL_SECONDS, Budget

__all__ = ["SessionOptions", "arguments_of"]

Arguments = ParamSpec("Arguments")
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The arguments of `Fleet.session`.

    Attributes:
        goal: what is to be done, in words.
        task: name of the kind of task; sessions of one task are compared with each other.
        session_id: 1–256 printable characters, unique in the tenant; made up if not given. One that this fleet has
            entered already is refused with ConfigError.
        budget: what it may use; advice warns at 80 % and when it is used up, and nothing is ever stopped.
        stall_seconds: after this long without an event advice says that the session stands still.
        attempt, earlier: which of several attempts at this goal it is, and how the last one went; `parallel` and
            `sequential` see to both.
        place: where it acts: a database, a repository, a host, an account. What calls there can refer to is remembered
            under this name, 1–256 printable characters.
        user: whom it acts for, by any name that stays the same. Only a hash of it is sent, so that `fleetlore erase
            --user` finds the session.
        system, tools: what the model is given besides: its system text and the definitions of its tools, as its API
            takes them. They are sent once a day, named by a hash, for the datasets of `fleetlore export`; the pipeline
            learns nothing of them.
        resume: `session_id` may have begun elsewhere or before: this is a further part of it, with an id of its own
            that begins with `session_id`, and names it as its conversation.
    """

    goal: str
    task: str = ""
    session_id: str | None = None
    _: KW_ONLY
    budget: Budget | None = None
    stall_seconds: float = STALL_SECONDS
    attempt: AttemptOf | None = None
    earlier: str = ""
    place: str = ""
    user: str = ""
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    resume: bool = False


def arguments_of(
    made: Callable[Arguments, object],
) -> Callable[[Callable[..., Given]], Callable[Concatenate[Any, Arguments], Given]]:
    """Give a method the arguments of a class, so that the two cannot differ."""

    def decorate(method: Callable[..., Given]) -> Callable[Concatenate[Any, Arguments], Given]:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        returned = inspect.signature(method).return_annotation
        parameters = [own, *inspect.signature(made).parameters.values()]
        method.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
        return method

    return decorate
