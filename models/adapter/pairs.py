"""Find pairs for contrastive learning: calls that failed, and calls of *other* sessions that got past such failures.

A case is a call that failed and the next call of its tool that worked, if that call holds words which the session had
not met before: the words that it lacked. Another session's case answers it if its working call holds all of these
words. A session's own call is no answer, because that would pair an error with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleetlore.calls.call import KEYWORDS, text_of
from fleetlore.retrieval.adapter import answer_text, query_text
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory
from fleetlore.words import names_of
from models.cases import worked_after

__all__ = ["Case", "Memory", "cases_of"]


class Case(NamedTuple):
    """A failed call and what got its session past it."""

    session: str
    agent: str
    task: str
    tool: str
    query: str
    answer: str
    lacked: frozenset[str]
    words: frozenset[str]


def cases_of(session: Trajectory) -> Iterator[Case]:
    """The cases of a session, each working call once."""
    seen = names_of(session.goal)
    steps = [step for step in session.steps if not step.is_cut]
    taken: set[int] = set()
    for place, step in enumerate(steps):
        call, said = text_of(step.arguments), step.error_message or step.result
        seen |= names_of(call) | names_of(said)
        if step.role != "tool" or not step.failed or step.transient:
            continue
        past = next(worked_after(steps, place, step.tool), None)
        if past is None or past in taken:
            continue
        taken.add(past)
        worked = text_of(steps[past].arguments)
        words = names_of(worked)
        if lacked := words - seen - KEYWORDS:
            yield Case(
                session.id,
                principal_of(session.agent),
                session.task or session.goal,
                step.tool,
                query_text(said, call, session.goal),
                answer_text(said, call, worked),
                frozenset(lacked),
                frozenset(words),
            )


class Memory:
    """Cases by the words of their working calls: which of them hold what another case lacked."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self._holding: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for place, case in enumerate(cases):
            for word in case.words:
                self._holding[case.tool, word].add(place)

    def holding(self, case: Case) -> set[int]:
        """Places of the cases that hold the lacked words, the case itself included if it is in the list."""
        return set.intersection(*(self._holding.get((case.tool, word), set()) for word in case.lacked))

    def answers(self, case: Case) -> set[int]:
        return {place for place in self.holding(case) if is_other(self.cases[place], case)}


def is_other(candidate: Case, case: Case) -> bool:
    """Whether a case may serve another as a way out: of its tool, of another session and of another task."""
    return candidate.tool == case.tool and candidate.session != case.session and candidate.task != case.task
