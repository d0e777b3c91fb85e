"""Follow ReasoningBank: distil each session into at most three items, append, recall the one nearest task at the start.

After Ouyang et al. 2025 and the released code: one record a session, embedded by the goal; nothing is merged, weighed,
decayed or forgotten; the record with the nearest goal is given for the whole session, without a threshold. Judge and
distiller are fleetlore's own, so that this arm differs from fleetlore in what becomes of an item and not in who wrote
it.
"""

from __future__ import annotations

import copy

import numpy as np

from benchmarks.evaluate.arms.memory import Memory, Note, Recall, Situation
from benchmarks.evaluate.worlds.recorded import Recorded
from fleetlore.retrieval.encoder import StaticEncoder, Vectors
from models.distil.distiller import distil
from models.memory.candidate import Candidate

MOST_ITEMS = 3
KINDS = ("strategy", "recovery")


class ReasoningBank(Memory):
    """See the module."""

    def __init__(self, encoder: StaticEncoder) -> None:
        self.encoder = encoder
        self.records: list[str] = []
        self._goals: list[Vectors] = []
        self._given: dict[str, str] = {}

    async def begin(self, situation: Situation) -> None:
        self._given.clear()
        if self.records:
            nearness = np.stack(self._goals) @ self.encoder.encode([situation.goal])[0]
            self._given[situation.session] = self.records[int(np.argmax(nearness))]

    def recall(self, situation: Situation) -> Recall:
        record = self._given.get(situation.session)
        return Recall() if record is None else Recall((Note(record),))

    async def twin(self) -> ReasoningBank:
        return copy.deepcopy(self, {id(self.encoder): self.encoder})

    async def learn(self, recorded: Recorded) -> None:
        # A remedy that is counted over sessions is nothing that an append-only bank could use.
        told = [item for item in distil(recorded.judgment(guarded=False)) if item.cause is None and item.title]
        items = sorted(told, key=lambda item: (KINDS.index(item.kind), item.item_id))
        if items:
            self.records.append("\n".join(item_text(item) for item in items[:MOST_ITEMS]))
            self._goals.append(self.encoder.encode([recorded.goal])[0])


def item_text(item: Candidate) -> str:
    """Title, description and content, as the released code gives them to the agent."""
    lines = [item.title, item.description, item.content]
    if item.calls:
        lines += ["What worked:" if item.side == "success" else "Only in a session that failed:"]
        lines += [
            f"{number}. {call}" if item.side == "success" else f"- {call}" for number, call in enumerate(item.calls, 1)
        ]
    return "- " + "\n  ".join("\n".join(lines).splitlines())
