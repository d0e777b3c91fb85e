"""Retrieve raw episodes: what AdMem calls its baseline, RAG with an episodic memory.

Every session is cut into overlapping windows of steps, as they were: calls, arguments, results and errors. Before each
step the windows nearest to the situation (goal, aim, the last step) are read, as many as an agent may read. Nothing is
judged, distilled, merged or forgotten. Nearness is the cosine of the house's static encoder, the same that every other
arm uses.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from benchmarks.evaluate.arms.memory import READ_CHARACTERS, Memory, Note, Recall, Situation
from benchmarks.evaluate.arms.texts import action_text, outcome_text
from benchmarks.evaluate.worlds.recorded import Recorded
from fleetlore.retrieval.encoder import StaticEncoder, Vectors
from fleetlore.wire.trajectory import Step

WINDOW = 6
STRIDE = 3
MAX_ERROR = 120


class RawEpisodes(Memory):
    """See the module."""

    def __init__(self, encoder: StaticEncoder) -> None:
        self.encoder = encoder
        self._texts: list[str] = []
        self._vectors: Vectors = np.zeros((1024, encoder.dimensions), dtype=np.float32)

    def recall(self, situation: Situation) -> Recall:
        known = len(self._texts)
        if not known:
            return Recall()
        last = situation.steps[-1:]
        query = " ".join([situation.aim, *(_words(step) for step in last)])
        nearness = self._vectors[:known] @ self.encoder.encode([query])[0]
        some = min(known, 16)
        nearest = np.argpartition(-nearness, some - 1)[:some]
        best_first = sorted(nearest.tolist(), key=lambda each: (-nearness[each], each))
        return Recall([Note(self._texts[place]) for place in best_first])

    async def twin(self) -> RawEpisodes:
        return copy.deepcopy(self, {id(self.encoder): self.encoder})

    async def learn(self, recorded: Recorded) -> None:
        steps = recorded.trajectory().calls
        for start in range(0, max(1, len(steps) - STRIDE), STRIDE):
            window = steps[start : start + WINDOW]
            self._add(render(window), " ".join(_words(step) for step in window))

    def _add(self, text: str, words: str) -> None:
        place = len(self._texts)
        if place == len(self._vectors):
            self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        self._vectors[place] = self.encoder.encode([words])[0]
        self._texts.append(text[:READ_CHARACTERS])


def render(steps: Sequence[Step]) -> str:
    """Steps as they were, one line each."""
    return "\n".join(
        f"{step.tool}({step.arguments}) -> "
        + (f"error {step.error_type}: {(step.error_message or '')[:MAX_ERROR]}" if step.failed else "ok")
        for step in steps
    )


def _words(step: Step) -> str:
    return f"{action_text(step.tool, step.arguments)} {outcome_text(step.error_type, step.error_message)}"
