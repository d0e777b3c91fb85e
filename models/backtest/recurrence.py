"""How many of the errors of the test sessions had been met before, by another agent: what a fleet could have told them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from models.backtest.cases import Case


def recurrence(train: Sequence[Case], test: Sequence[Case]) -> dict[str, dict[str, float | None]]:
    """By source, at each level of the pattern: the share of failed calls met earlier by another agent.

    Earlier: in training, or in a test session before it in the order given.
    """
    levels = ("family", "class", "exact")
    agents: dict[str, set[str]] = defaultdict(set)
    met: dict[tuple[str, str], int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for number, case in enumerate((*train, *test)):
        ids = [(step.family, step.pattern, step.exact) for step in case.trajectory.calls if step.failed]
        if number >= len(train):
            total[case.source] += len(ids)
            for each in ids:
                for level, id in zip(levels, each, strict=True):
                    met[case.source, level] += bool(id is not None and agents[id] - {case.agent})
        for each in ids:
            for id in each:
                if id is not None:
                    agents[id].add(case.agent)
    return {
        source: {level: met[source, level] / total[source] if total[source] else None for level in levels}
        for source in sorted({case.source for case in test})
    }
