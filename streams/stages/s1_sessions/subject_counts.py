"""Count the calls of one subject in an open session."""

from __future__ import annotations

import msgspec

from models.memory.pattern_state import Observation, Subject

__all__ = ["SubjectCounts"]


class SubjectCounts(msgspec.Struct, gc=False):
    """Counts of one subject; mutable, because every call changes two to five of them."""

    subject: Subject
    first: float
    last: float
    arrived: float
    calls: int = 0
    failures: int = 0
    reported: bool = False
    ended: int = 0
    again: int = 0

    def add(self, subject: Subject, time: float, calls: int, failures: int) -> None:
        if subject is not self.subject and subject.words < self.subject.words:
            self.subject = subject
        self.calls += calls
        self.failures += failures
        self.reported = False
        if time > self.last:
            self.last = time
        if time < self.first:
            self.first = time

    def observation(self, session: int, agent: int, principal: str, ended: int) -> Observation:
        name = principal if self.subject.level == "tool" else ""
        counts = self.calls, self.failures, self.first, self.last
        return Observation(self.subject, session, agent, *counts, ended, name, self.arrived, self.again)
