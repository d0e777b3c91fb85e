"""Recall failures that others met: which of all that the fleet ran into is this one most like?

What is like another failure is told first by the ids of its pattern, then by its tool, and among equals by meaning: the
goal, the call, what the session did just before, and the words of both, rare ones above all. One entry is one failure
(class level) at one task, whoever met it, so that a failure which a hundred sessions met does not crowd out the others.
A few examples of it are kept, of different agents, since two agents word the same call differently. What is kept
depends on the set of failures alone, never on their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.foresight.word_bags import WORD_DIMENSIONS, Bag, WordBags
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import Trajectory

__all__ = ["FailureRecall", "MetFailure", "SimilarFailure", "failures_of"]

# Of one failure at one task, examples of so many agents.
EXAMPLES = 8
CONTEXT_STEPS = 6
CONTEXT_CHARACTERS = 700
# How much a likeness counts, each a cosine. A goal names the task; a call of a few words says less than what led to it;
# and a vector of meaning blurs the names that a task is about, which the words keep.
GOAL, CALL, CONTEXT, WORDS = 2.0, 1.0, 2.0, 2.0

Vectors = npt.NDArray[np.float32]


class TextEncoder(Protocol):
    """As `fleetlore.retrieval.encoder.StaticEncoder`."""

    dimensions: int

    def encode(self, texts: Sequence[str]) -> Vectors: ...


@dataclass(frozen=True, slots=True)
class MetFailure:
    """One failed call, where and how it was met.

    Attributes:
        family, pattern: ids of its pattern; `pattern` is the class level.
        call: arguments and error, as text.
        context: what the session did just before, a text a step.
        goal: empty in a query that does not know it.
    """

    session: str
    agent: str
    task: str
    tool: str
    family: str
    pattern: str
    call: str
    context: tuple[str, ...]
    goal: str = ""


@dataclass(frozen=True, slots=True)
class SimilarFailure:
    """A failure at a task that is like the one asked for; a higher `score` is more alike."""

    task: str
    pattern: str
    score: float


def failures_of(trajectory: Trajectory) -> list[MetFailure]:
    """The first of each of the session's failures (class level); not those that pass by themselves."""
    found: dict[str, MetFailure] = {}
    # What a user said states the goal: a session that is asked without its goal is asked without it.
    steps = [step for step in trajectory.steps if step.role != "user"]
    for place, step in enumerate(steps):
        if step.pattern is None or step.family is None or step.transient or step.pattern in found:
            continue
        before = steps[max(0, place - CONTEXT_STEPS) : place]
        found[step.pattern] = MetFailure(
            trajectory.session,
            trajectory.agent,
            trajectory.task,
            step.tool,
            step.family,
            step.pattern,
            # The error first: what is long is cut.
            f"{step.error_message or step.error_type or ''}\n{step.arguments}",
            tuple((each.arguments or each.result)[:CONTEXT_CHARACTERS] for each in before),
            trajectory.goal,
        )
    return list(found.values())


class FailureRecall:
    """Failures of the past, asked by a new one. In memory: 7 kB an example."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        # A row: goal, call, context and words, one after the other. Grown by doubling.
        self._rows: Vectors = np.zeros((1024, 3 * encoder.dimensions + WORD_DIMENSIONS), np.float32)
        self._bags: list[Bag] = []
        self._words = WordBags()
        # (task, class) → examples by agent: (hash of the session, row).
        self._met: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
        self._near: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)  # class, family or tool → (task, class)

    def add(self, failure: MetFailure) -> None:
        """Remember a failure; the same one again changes nothing."""
        key = (failure.task, failure.pattern)
        examples = self._met[key]
        rank = stable_hash(failure.session)
        known = examples.get(failure.agent)
        if known is not None and known[0] <= rank:
            return
        if known is None and len(examples) == EXAMPLES:
            last = max(examples, key=_agent_rank)
            if _agent_rank(failure.agent) > _agent_rank(last):
                return
            known = examples.pop(last)
        examples[failure.agent] = (rank, self._write(failure, None if known is None else known[1]))
        for name in (failure.pattern, failure.family, f"tool {failure.tool}"):
            self._near[name][key] = None

    def met_by_others(self, failure: MetFailure) -> bool:
        """Whether another agent met the same failure (class level) at the same task."""
        return any(agent != failure.agent for agent in self._met.get((failure.task, failure.pattern), ()))

    def similar(self, failure: MetFailure, most: int) -> list[SimilarFailure]:
        """What *other* agents met that is most like it, the likest first, ties by task and pattern."""
        query = self._query(failure)
        found: dict[tuple[str, str], SimilarFailure] = {}
        # Coarser only where the finer level has too few: its patterns always come first.
        for name in (failure.pattern, failure.family, f"tool {failure.tool}"):
            keys = [key for key in self._near.get(name, ()) if key not in found]
            ranked = sorted(self._scored(keys, query, failure), key=lambda each: (-each.score, each.task, each.pattern))
            found |= {(each.task, each.pattern): each for each in ranked[: most - len(found)]}
            if len(found) == most:
                break
        return list(found.values())

    def _scored(self, keys: Sequence[tuple[str, str]], query: Vectors, failure: MetFailure) -> list[SimilarFailure]:
        rows: list[int] = []
        starts: list[int] = []
        others = []
        for key in keys:
            own = [row for agent, (_, row) in self._met[key].items() if agent != failure.agent]
            if own:
                starts.append(len(rows))
                rows += own
                others.append(key)
        if not rows:
            return []
        best = np.maximum.reduceat(self._rows[rows] @ query, starts)
        return [
            SimilarFailure(task, pattern, float(score)) for (task, pattern), score in zip(others, best, strict=True)
        ]

    def _write(self, failure: MetFailure, row: int | None) -> int:
        bag = self._words.bag(_words_of(failure))
        if row is None:
            row = len(self._bags)
            if row == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._bags.append(bag)
        else:
            self._words.forget(self._bags[row])
            self._bags[row] = bag
        self._words.count(bag)
        self._rows[row] = np.concatenate([*self._meanings(failure), self._words.plain(bag)])
        return row

    def _query(self, failure: MetFailure) -> Vectors:
        goal, call, context = self._meanings(failure)
        words = self._words.weighted(self._words.bag(_words_of(failure)))
        return np.concatenate([GOAL * goal, CALL * call, CONTEXT * context, WORDS * words])

    def _meanings(self, failure: MetFailure) -> tuple[Vectors, Vectors, Vectors]:
        goal, call, *steps = self._encoder.encode([failure.goal, failure.call, *failure.context])
        context = np.sum(steps, axis=0, dtype=np.float32) if steps else np.zeros_like(goal)
        return goal, call, context / np.maximum(np.linalg.norm(context), np.float32(1e-9))


def _words_of(failure: MetFailure) -> str:
    return " ".join([failure.call, *failure.context])


def _agent_rank(agent: str) -> tuple[int, str]:
    return stable_hash(agent), agent
