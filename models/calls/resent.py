"""Measure which failures pass by themselves: calls that were sent again unchanged, and how many of those worked.

What the words of an error make likely (`fleetlore.fingerprint.fingerprint.Failure.transient`) is a guess. Where enough
sessions sent the very same call again, with nothing done in between, that decides. A call that worked and brought
nothing back tells nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from fleetlore.calls.context import normal, text_of
from fleetlore.calls.document import Resent
from fleetlore.wire.trajectory import Step, Trajectory

# Sessions of one agent that count for a failure, and agents that it takes.
AGENT_SESSIONS = 5
LEAST_AGENTS = 2
MOST = 256


class ResentCalls:
    """Sessions by failure (class level) and agent: (sent again, and worked)."""

    def __init__(self) -> None:
        self._sent: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._passed: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def learn(self, session: Trajectory) -> None:
        """Take in the calls of a session: of each failure the first that was sent again, and no more of an agent."""
        met: set[str] = set()
        for failure, passed in _resent(session):
            if failure not in met and self._sent[failure][session.agent] < AGENT_SESSIONS:
                met.add(failure)
                self._sent[failure][session.agent] += 1
                self._passed[failure][session.agent] += passed

    def corrected(self, session: Trajectory) -> Trajectory:
        """The session with what was measured in place of what was guessed."""
        steps = tuple([self._corrected(step) for step in session.steps])
        return replace(session, steps=steps)

    def said(self) -> dict[str, Resent]:
        """Those that a version holds: where it is decided, those sent again most first."""
        found = [(failure, known) for failure in self._sent if (known := self._of(failure)) is not None]
        decided = [each for each in found if each[1].decided(guessed=True) == each[1].decided(guessed=False)]
        decided.sort(key=lambda each: (-each[1].sent, each[0]))
        return dict(decided[:MOST])

    def _corrected(self, step: Step) -> Step:
        known = self._of(step.pattern) if step.pattern is not None else None
        if known is None or (passes := known.decided(guessed=step.transient)) == step.transient:
            return step
        return replace(step, transient=passes)

    def _of(self, failure: str) -> Resent | None:
        sent = self._sent.get(failure)
        if sent is None or len(sent) < LEAST_AGENTS:
            return None
        return Resent(self._passed[failure].total(), sent.total())


def _resent(session: Trajectory) -> Iterator[tuple[str, bool]]:
    """Failures after which the next call of the session was the very same, and whether that one worked."""
    for step, again in zip(session.calls, session.calls[1:], strict=False):
        if step.pattern is not None and (again.failed or again.result.strip()) and _key(step) == _key(again):
            yield step.pattern, not again.failed


def _key(step: Step) -> tuple[str, str] | None:
    return None if step.is_cut else normal(step.tool, text_of(step.arguments))
