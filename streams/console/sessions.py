"""Keep the newest judged sessions in short form, and tell from them whether hints help."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from fleetlore.errors import InvalidEvent
from fleetlore.stats.intervals import newcombe
from fleetlore.wire.decode import json_reader
from fleetlore.wire.principals import session_key
from fleetlore.wire.trajectory import Moment
from fleetlore.wire.trajectory import Sequence as Number
from fleetlore.words import count
from streams.stage.base import split

__all__ = ["Effect", "SeenSession", "SeenSessions", "agents_of", "effect_of"]

# Some 500 bytes each.
_MOST_SESSIONS = 20_000
_MAX_GOAL = 200
# Share of hints that is withheld, until the log itself shows one (the default of `Fleet(holdout_share=…)`).
_HOLDOUT_SHARE = 0.05
# (z of 95 % confidence + z of 80 % power) squared: trials for a difference of rates (Fleiss 1981, equation 3.14).
_POWER = (1.96 + 0.84) ** 2
# The smallest difference that is looked for, as a rate.
_DIFFERENCE = 0.1


class _Step(msgspec.Struct, frozen=True, gc=False):
    role: str
    pattern: str | None = None
    advice: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


class _Trajectory(msgspec.Struct, frozen=True, gc=False):
    session: str
    agent: str
    task: str
    goal: str
    started: Moment
    ended: Moment
    part: Number = 0
    steps: tuple[_Step, ...] = ()


class _Verdict(msgspec.Struct, frozen=True, gc=False):
    label: str


class _Judged(msgspec.Struct, frozen=True, gc=False):
    trajectory: _Trajectory
    verdict: _Verdict


class SeenSession(NamedTuple):
    """One judged session."""

    id: str
    agent: str
    task: str
    goal: str
    started: float
    ended: float
    label: str
    calls: int
    failed: int
    shown: tuple[int, int]
    withheld: tuple[int, int]
    key: str = ""


class Agent(NamedTuple):
    name: str
    sessions: int
    failed_sessions: int
    calls: int
    failed: int
    ended: float


class Effect(NamedTuple):
    """Calls and failed calls with a hint, and with the hint withheld at random; `answer` says it in one sentence."""

    shown: tuple[int, int]
    withheld: tuple[int, int]
    answer: str


class SeenSessions:
    """The newest sessions of a tenant by key."""

    def __init__(self) -> None:
        self._sessions: dict[str, SeenSession] = {}
        self._taken = 0
        self._sorted: tuple[tuple[int, int], tuple[SeenSession, ...]] = (-1, -1), ()

    def take(self, value: bytes) -> None:
        """Add the judgments of a record. Unreadable ones are passed over."""
        self._taken += 1
        with contextlib.suppress(InvalidEvent):
            for part in split(value):
                with contextlib.suppress(ValueError):
                    seen = _seen(json_reader(_Judged)(part))
                    self._sessions.pop(seen.key, None)
                    self._sessions[seen.key] = seen
        while len(self._sessions) > _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def newest(self, erasures: int, is_erased: Callable[[SeenSession], bool]) -> tuple[SeenSession, ...]:
        """Return those that are not erased, the newest first.

        `erasures`: their number; with each one the answer is made again.
        """
        state = self._taken, erasures
        if self._sorted[0] != state:
            known = [each for each in self._sessions.values() if not is_erased(each)]
            self._sorted = state, tuple(sorted(known, key=lambda each: (-each.ended, each.id)))
        return self._sorted[1]


def _seen(judged: _Judged) -> SeenSession:
    of = judged.trajectory
    calls = [step for step in of.steps if step.role == "tool"]
    drawn: dict[str, tuple[bool, bool]] = {}
    for step in calls:
        for ids, is_shown in ((step.advice, True), (step.withheld, False)):
            for id in ids:
                drawn.setdefault(id, (is_shown, step.pattern is not None))
    shown, withheld = ([failed for was_shown, failed in drawn.values() if was_shown is side] for side in (True, False))
    return SeenSession(
        of.session if not of.part else f"{of.session}#{of.part}",
        of.agent,
        of.task,
        of.goal[:_MAX_GOAL],
        of.started,
        of.ended,
        judged.verdict.label,
        len(calls),
        sum(step.pattern is not None for step in calls),
        (len(shown), sum(shown)),
        (len(withheld), sum(withheld)),
        session_key(of.agent, of.session, of.part),
    )


def agents_of(sessions: Iterable[SeenSession]) -> list[Agent]:
    """Return the agents of these sessions, by name."""
    found: dict[str, Agent] = {}
    for each in sessions:
        known = found.get(each.agent, Agent(each.agent, 0, 0, 0, 0, 0.0))
        found[each.agent] = Agent(
            each.agent,
            known.sessions + 1,
            known.failed_sessions + (each.label == "failure"),
            known.calls + each.calls,
            known.failed + each.failed,
            max(known.ended, each.ended),
        )
    return [found[name] for name in sorted(found)]


def effect_of(sessions: Sequence[SeenSession]) -> Effect:
    """Compare calls with a hint to those from which it was withheld at random."""
    shown, withheld = (
        (sum(calls for calls, _ in side), sum(failed for _, failed in side))
        for side in ([each.shown for each in sessions], [each.withheld for each in sessions])
    )
    return Effect(shown, withheld, _answer(shown, withheld, len(sessions)))


def _answer(shown: tuple[int, int], withheld: tuple[int, int], sessions: int) -> str:
    if not shown[0]:
        return "Not known yet: no call of these sessions was given a hint."
    needed = _sessions_needed(shown, withheld, sessions)
    more = f"To see a difference of {100 * _DIFFERENCE:.0f} points takes about {count(needed, 'more session')}."
    if not withheld[0]:
        return f"Not known yet: no hint was withheld for comparison. {more}"
    low, high = newcombe(withheld, shown)
    rates = (
        f"{shown[1] / shown[0]:.0%} of the calls with a hint failed, and {withheld[1] / withheld[0]:.0%} of those from "
        f"which it was withheld at random"
    )
    between = f"95 % interval of the difference: {100 * low:.0f} to {100 * high:.0f} points"
    if low > 0:
        return f"Yes: {rates} ({between})."
    if high < 0:
        return f"No, it harms: {rates} ({between})."
    if needed:
        return f"Not known yet: {rates} ({between}). {more}"
    return f"Hardly: {rates} ({between})."


def _sessions_needed(shown: tuple[int, int], withheld: tuple[int, int], sessions: int) -> int:
    """Return how many more sessions are needed until a difference of `_DIFFERENCE` would be seen with 80 % power."""
    failed = (shown[1] + withheld[1] + 1) / (shown[0] + withheld[0] + 2)
    kept_back = withheld[0] or shown[0] * _HOLDOUT_SHARE
    trials = _POWER * failed * (1 - failed) * (1 + kept_back / shown[0]) / _DIFFERENCE**2
    return max(0, ceil((trials - withheld[0]) * sessions / kept_back))
