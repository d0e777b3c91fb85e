"""Watch a session for a loop, standstill or dwindling budget. It warns and never blocks."""

import re
from dataclasses import dataclass, fields
from math import inf

from fleetlore.advice.gate import Tip
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.fingerprint.loops import Loop, LoopDetector

__all__ = ["Budget", "Watchdog"]

STALL_SECONDS = 120.0
_WARN_SHARE = 0.8
_LOOP_CAUTION = "guard:loop"
_FIGURES = re.compile(r"[\d.,%]+")
# By a part of a loop's template.
_OUT_OF_LOOPS = {
    "the same call": "Use that result, or ask something else; to wait for a change, wait longer between the calls.",
    " calls in turn": "Take a step that is not one of them.",
    "small changes": "Small changes do not help: look up what the tool takes, or use another tool.",
}
_WAIT_LONGER = "Wait longer between the calls, or use another way: the fault passes by itself."
_OUT_OF_FAILURES = "It will fail again: change what the error is about, or do something else."


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a session, or None for no limit. `money`: in any currency. `seconds`: from its start.

    Raises ConfigError: a limit is not above 0.
    """

    tokens: float | None = None
    money: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            limit = getattr(self, each.name)
            if limit is not None and not 0 < limit < inf:
                raise ConfigError(f"a budget of {each.name} must be above 0 and finite, not {limit}")


_UNLIMITED = Budget()


class Watchdog:
    """Times are of one monotonic clock, in seconds. `stall_seconds`: silence that counts as a standstill. Raises
    ConfigError: it is not above 0.
    """

    def __init__(self, started: float, budget: Budget | None = None, stall_seconds: float = STALL_SECONDS) -> None:
        if not stall_seconds > 0:
            raise ConfigError(f"a session cannot stand still after {stall_seconds} seconds")
        self._budget = budget or _UNLIMITED
        self._stall_seconds = stall_seconds
        self._started = self._last_event = started
        self._tokens = 0.0
        self._money = 0.0
        self._detector = LoopDetector()
        self._transient = False
        self.loop: Loop | None = None
        self.loops = 0

    def saw_event(self, now: float) -> None:
        self._last_event = now

    def took_place(self, tool: str, arguments: object, result: object, failure: Failure | None) -> None:
        self._transient = failure is not None and failure.transient
        loop = self._detector.add(tool, arguments, result, failure and failure.class_)
        if loop is not None and (self.loop is None or loop.id != self.loop.id):
            self.loops += 1
        self.loop = loop

    def spend(self, tokens: float, money: float) -> None:
        if not (0 <= tokens < inf and 0 <= money < inf):
            raise ConfigError(f"what was spent cannot be negative or endless: {tokens} tokens, {money} money")
        self._tokens += tokens
        self._money += money

    def cautions(self, now: float) -> tuple[Tip, ...]:
        budget = self._budget
        if budget is _UNLIMITED and self.loop is None and now - self._last_event < self._stall_seconds:
            return ()
        found = [
            caution
            for name, used, limit, unit in (
                ("tokens", self._tokens, budget.tokens, "tokens"),
                ("money", self._money, budget.money, "of the money"),
                ("time", now - self._started, budget.seconds, "seconds"),
            )
            if limit is not None and (caution := _of_budget(name, used, limit, unit)) is not None
        ]
        if self.loop is not None:
            is_alone, helps = len(self.loop.around) == 1, _WAIT_LONGER
            if not (self._transient and is_alone):
                helps = _way_out(self.loop.pattern.template, failed=self.loop.failed)
            caution = _caution(_LOOP_CAUTION, f"{helps} This session goes in circles: {self.loop}", "loop")
            found.insert(0, caution._replace(pattern=self.loop.around[0].pattern if is_alone else None))
        silent = now - self._last_event
        if silent >= self._stall_seconds:
            text = f"Nothing has happened in this session for {silent:.0f} seconds; what it waits for may not come."
            found.append(_caution("guard:stall", text))
        return tuple(found)


def _way_out(template: str, *, failed: bool) -> str:
    kind = next((kind for kind in _OUT_OF_LOOPS if kind in template), "small changes")
    return _OUT_OF_FAILURES if failed and kind == "the same call" else _OUT_OF_LOOPS[kind]


def _caution(id: str, text: str, source: str = "budget") -> Tip:
    # Other figures are no news.
    return Tip(id, source, (text,), key=f"{id}\x1f{_FIGURES.sub('', text)}", tried=False, text=text)


def _of_budget(name: str, used: float, limit: float, unit: str) -> Tip | None:
    if used >= limit:
        what = f"The session's budget is used up: {used:g} of {limit:g} {unit}."
        advice = "Finish with what there is, or say what is missing."
    elif used >= _WARN_SHARE * limit:
        what = f"{used / limit:.0%} of the session's budget is used: {used:g} of {limit:g} {unit}."
        advice = "Leave out what is not needed."
    else:
        return None
    return _caution(f"guard:{name}", f"{what} {advice}")
