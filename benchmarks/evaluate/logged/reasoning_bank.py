"""Follow ReasoningBank: distil each session into at most three items, append them, recall the nearest one by embedding.

As published one record is recalled for a whole session, by the nearest goal; that suits a task of a few steps. `steps`
recalls an item for each proposal instead, by goal and proposal. Nothing is merged, weighed or forgotten. Judge and
distiller are fleetlore's own, so that the arms differ in what becomes of an item and not in who wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.evaluate.arms.memory import Note, Recall
from benchmarks.evaluate.arms.reasoning_bank import KINDS, MOST_ITEMS, item_text
from benchmarks.evaluate.logged.memories import Memory
from benchmarks.evaluate.logged.world import LoggedTask
from fleetlore.retrieval.encoder import StaticEncoder, Vectors
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.trajectory import Judgment
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from streams.offline.memory_pipeline import BATCH_SESSIONS, MemoryPipeline, events_of


class ReasoningBank(Memory):
    """See the module."""

    def __init__(self, encoder: StaticEncoder, *, steps: bool) -> None:
        self._encoder = encoder
        self._steps = steps
        self._pipeline = MemoryPipeline(learn=False)
        self._judge = JudgeChain()
        self._keys: list[str] = []
        self._records: list[str] = []
        self._vectors: Vectors | None = None

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        for start in range(0, len(past), BATCH_SESSIONS):
            batch = past[start : start + BATCH_SESSIONS]
            events = [event for each in batch for event in events_of(each, self._pipeline.clock)]
            for trajectory in await self._pipeline.take(events):
                told = distil(Judgment(trajectory=trajectory, verdict=self._judge.judge(trajectory)))
                # A remedy that is counted over sessions is nothing that an append-only bank could use.
                items = [each for each in told if each.cause is None and each.title and each.kind in KINDS]
                items.sort(key=lambda item: (KINDS.index(item.kind), item.item_id))
                texts = [item_text(each) for each in items[:MOST_ITEMS]]
                if self._steps:
                    self._keys += [f"{trajectory.goal} {text}" for text in texts]
                    self._records += texts
                elif texts:
                    self._keys.append(trajectory.goal)
                    self._records.append("\n".join(texts))
        self._vectors = self._encoder.encode(self._keys) if self._keys else None

    def recall(self, task: LoggedTask) -> Recall:
        if self._vectors is None:
            return Recall()
        asked = [f"{task.goal} {text}" for text in task.replies] if self._steps else [task.goal]
        nearest = np.argmax(self._encoder.encode(asked) @ self._vectors.T, axis=1)
        return Recall([Note(self._records[int(each)]) for each in nearest])
