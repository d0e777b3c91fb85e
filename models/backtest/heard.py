"""Hold logged sessions call by call, and what an agent that made those calls was told.

The only module of the measure that knows how advice is made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from fleetlore.advice.advice import Advice
from fleetlore.advice.sources import WAYS_OUT
from fleetlore.calls.call import text_of
from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.fingerprint.names import FailureKind, failure_kind

__all__ = ["FAILED", "WORKED", "Call", "CallLog", "Heard", "Shown", "Told", "Turn", "plain_text", "told"]


# Entries that logs hold as calls but are no calls: the end of a session, a verdict on it, a call that was never made.
PSEUDO: Final = frozenset({"submit", "blocked", "invalid_action", "propose_solution", "your_code_here"})
FIRST, WORKED, FAILED = "first", "worked", "failed"


class Shown(NamedTuple):
    """One tip of an advice. `source`: its source (`fleetlore.advice.sources.SOURCES`). `text`: its text for a model,
    without the fence. `names`: names that it brings, in lower case. `warns`: whether it speaks against the call that is
    about to be made."""

    source: str
    text: str
    names: tuple[str, ...] = ()
    warns: bool = False


class Told(NamedTuple):
    """The content of one advice. `risk`: P(the call fails), or None if it is unknown or there is no call. `warned`:
    whether it speaks against the call. `named`: the failure that it warns of. `way_out`: how others got past the last
    failure, or "". `text`: the whole text, as a model reads it. `shown`: its single tips."""

    risk: float | None
    warned: bool
    named: FailureKind | None
    way_out: str
    text: str
    shown: tuple[Shown, ...] = ()


def told(advice: Advice) -> Told:
    """Return the content of an advice."""
    warning = next((tip for tip in advice.tips if tip.chance is not None), None)
    way_out = next((tip for tip in advice.tips if tip.source in WAYS_OUT and tip.chance is None), None)
    return Told(
        advice.risk,
        warned=warning is not None,
        named=None if warning is None else FailureKind(warning.kind, warning.rejected),
        way_out="" if way_out is None else way_out.text,
        # Many calls get the same text: kept once.
        text=sys.intern(advice.text),
        shown=tuple([Shown(tip.source, tip.text, tip.brings, tip.chance is not None) for tip in advice.tips]),
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it was logged. `text`: its arguments as text. `said`: its result, or the text of its error.
    `failure`: its failure, or None if it worked. `before`: messages since the call before it, one a line."""

    tool: str
    text: str
    said: str
    failure: Failure | None
    before: str = ""

    @property
    def kind(self) -> FailureKind | None:
        """Kind of its failure and the names that it failed for, or None if it worked."""
        failure = self.failure
        return failure and failure_kind(failure.error_class, failure.template, self.said, text_of(self.text))

    @property
    def passes(self) -> bool:
        """Whether it failed for a transient reason. It is then neither a success nor a failure to warn of."""
        return self.failure is not None and self.failure.transient

    @property
    def pseudo(self) -> str:
        """Which pseudo-call it is; empty for a call."""
        for name in (self.tool, self.text):
            if (plain := plain_text(name)) in PSEUDO:
                return plain
        return ""


@dataclass(frozen=True, slots=True)
class CallLog:
    """A session with its calls. `failed` says how it ended, or is None if the log does not say."""

    session: str
    source: str
    agent: str
    task: str
    goal: str
    failed: bool | None
    calls: tuple[Call, ...]

    def turns(self) -> Iterator[Turn]:
        """The calls in order, pseudo-calls left out, each with what came before it."""
        last, number = None, 0
        for place, call in enumerate(self.calls):
            if not call.pseudo:
                yield Turn(place, call, last, number)
                last, number = call, number + 1


@dataclass(frozen=True, slots=True)
class Turn:
    """A call in its session. `place`: its index in `CallLog.calls`. `last`: the call before it. `number`: how many
    calls came before it."""

    place: int
    call: Call
    last: Call | None
    number: int

    @property
    def after(self) -> str:
        """The state before it: no call yet, or a last call that worked or failed."""
        return FIRST if self.last is None else WORKED if self.last.failure is None else FAILED


@dataclass(frozen=True, slots=True)
class Heard:
    """Advice shown in a session: at its start, before each call, and after each call that failed (by place)."""

    log: CallLog
    start: Told
    before: tuple[Told, ...]
    after: dict[int, Told]

    @property
    def characters(self) -> int:
        """Number of characters of all advice."""
        return sum(len(each.text) for each in (self.start, *self.before, *self.after.values()))


def plain_text(text: str) -> str:
    """A call's text without what makes no difference: case, white space, a semicolon at its end."""
    return " ".join(text.split()).rstrip("; ").casefold()
