"""Script agents for the tool world: habits, recovery after an error, and advice from a memory.

An agent prefers some calls over others by its seed, and does not know the world's rules. Its knowledge comes from its
:class:`Adviser`: its own journal, or the fleet's memory (:mod:`benchmarks.demo.advisers`). Apart from that every agent
is the same, so a difference between two runs is the memory's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from benchmarks.demo.world import NETWORK, Call, Environment, Reply, Step

# Transient errors: every agent makes the same call again.
RETRIED = frozenset({"502", "503", "504", "TimeoutError", "ConnectionResetError"})

# How much lower the risk of another call must be before an agent leaves its habit. A critic of mediocre skill that is
# always obeyed costs success ("Accurate Failure Prediction in Agents Does Not Imply Effective Failure Prevention",
# 2026).
CAUTION = 0.2


@dataclass(frozen=True, slots=True)
class Tip:
    """Advice on one call: its risk (0..1), and calls that helped after such a call had failed, best first."""

    risk: float = 0.0
    remedies: tuple[Call, ...] = ()


class Adviser(Protocol):
    """Memory of an agent."""

    def advise(self, call: Call) -> Tip:
        """Return what is known of `call` before it is made."""

    def predict(self, calls: Sequence[Call]) -> Sequence[float | None]:
        """Return the probability that each call fails, by the call model; A probability is None without a model, or if
        it abstains."""

    async def perform(self, call: Call, environment: Environment) -> Reply:
        """Perform `call` and record its result."""


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one session. `faults` names the broken rules in order, without network errors."""

    succeeded: bool
    calls: int
    faults: tuple[str, ...]


async def no_pause() -> None:
    """Act at once."""


def look_away(call: Call, reply: Reply) -> None:
    """Watch nothing."""


async def attend(
    agent: str,
    environment: Environment,
    adviser: Adviser,
    *,
    pause: Callable[[], Awaitable[None]] = no_pause,
    watch: Callable[[Call, Reply], None] = look_away,
) -> Run:
    """Let `agent` work on a session until it is done. Await `pause` before every call, and call `watch` after it."""
    mind = Mind(agent, adviser)
    faults = []
    while not environment.done:
        await pause()
        step, reached = environment.step, environment.reached
        call = mind.choose(step)
        reply = await adviser.perform(call, environment)
        watch(call, reply)
        if reply.fault is not None and reply.fault != NETWORK:
            faults.append(reply.fault)
        mind.take_in(step, call, reply, progress=environment.reached > reached)
    return Run(environment.succeeded, environment.calls, tuple(faults))


def repeated(faults: Iterable[str]) -> int:
    """Count the faults that any agent of the run had met before: all but the first of each kind."""
    met = list(faults)
    return len(met) - len(set(met))


class Mind:
    """Decisions of an agent within one session: advice first, then habit; after an error any other call."""

    def __init__(self, agent: str, adviser: Adviser) -> None:
        self.agent = agent
        self.adviser = adviser
        self._prepared: set[str] = set()  # preparations that went through in this session
        self._tried: set[str] = set()  # preparations made for this subgoal
        self._failed: set[str] = set()  # attempts that failed since the last preparation
        self._errors: list[Call] = []  # attempts that failed for this subgoal
        self._again: Call | None = None  # what to call next without further thought

    def choose(self, step: Step) -> Call:
        if self._again is not None:
            return self._again
        attempts = self._by_habit(step.attempts)
        preparations = self._by_habit(step.preparations)
        fresh = [call for call in attempts if call.key not in self._failed]
        advised = self._advised((fresh or attempts)[0], fresh, preparations)
        if advised is not None:
            return advised
        untried = [call for call in preparations if call.key not in self._tried]
        # An error may mean another argument, or something missing first; agents differ in what they suspect.
        suspects_missing = _draw(self.agent, attempts[0].tool, str(len(self._errors))) < 0.5
        if untried and self._failed and (suspects_missing or not fresh):
            return untried[0]
        calls = fresh or attempts
        safest = _clearly_least([self.adviser.advise(call).risk for call in calls])
        # The call model may tell apart calls that the memory cannot.
        return calls[safest or _clearly_least(self.adviser.predict(calls))]

    def take_in(self, step: Step, call: Call, reply: Reply, *, progress: bool) -> None:
        """Remember the result of `call` for the rest of the session; `progress`: it reached the subgoal."""
        self._again = call if reply.error_type in RETRIED else None
        if self._again is not None:
            return
        if progress:
            self._failed, self._tried, self._errors = set(), set(), []
        elif any(call.key == attempt.key for attempt in step.attempts):
            self._failed.add(call.key)
            self._errors.append(call)
        else:
            self._tried.add(call.key)
            if not reply.failed:
                self._prepared.add(call.key)
                self._failed = set()  # something changed: every attempt may work now
                self._again = self._errors[-1] if self._errors else None

    def _advised(self, first: Call, fresh: Sequence[Call], preparations: Sequence[Call]) -> Call | None:
        remedies = self.adviser.advise(first).remedies
        for remedy in remedies:
            call = closest(remedy, preparations)
            # Before an error a preparation made earlier in the session still counts; after one it may have worn off.
            if call is not None and call.key not in (self._tried if self._errors else self._tried | self._prepared):
                return call
        for remedy in remedies:
            call = closest(remedy, fresh)
            if call is not None:
                return call
        return None

    def _by_habit(self, calls: Sequence[Call]) -> list[Call]:
        """Sort the calls by this agent's preference, which depends only on the arguments that differ between them."""
        values: dict[tuple[str, str], set[str]] = defaultdict(set)
        for call in calls:
            for name, value in call.arguments.items():
                values[call.tool, name].add(repr(value))

        def preference(call: Call) -> float:
            apart = [repr(value) for name, value in call.arguments.items() if len(values[call.tool, name]) > 1]
            return _draw(self.agent, call.tool, *apart)

        return sorted(calls, key=preference)


def closest(remedy: Call, calls: Sequence[Call]) -> Call | None:
    """Return the call most like a remedy from another session, with other names and numbers. The result is None if no
    remedy is alike."""
    alike = [call for call in calls if call.tool == remedy.tool and call.arguments.keys() == remedy.arguments.keys()]
    if not alike:
        return None

    def agreement(call: Call) -> int:
        return sum(call.arguments[name] == value for name, value in remedy.arguments.items())

    best = max(alike, key=agreement)
    return best if len(alike) == 1 or agreement(best) > 0 else None


def _clearly_least(risks: Sequence[float | None]) -> int:
    """Return the index of the least risk if it is clearly below the first one; else 0, the agent's own habit."""
    own = risks[0]
    if own is None:
        return 0
    least, index = min((risk, index) for index, risk in enumerate(risks) if risk is not None)
    return index if own - least >= CAUTION else 0


def _draw(*parts: str) -> float:
    """Draw a number in [0, 1) that depends on `parts` alone."""
    return int.from_bytes(blake2b("\x1f".join(parts).encode(), digest_size=8).digest()) / 2**64
