"""Stage 4: judgments → candidates: what each session contributes to which memory item.

A stage of its own, because what it makes is keyed by item and what it reads by session: the topic between them brings all
contributions to one item together on one partition, where a single writer merges them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.topics import tenant_of
from fleetlore.trajectory import Judgment
from models.distiller import distil
from streams.decode import decode_values
from streams.stage import Effects, Outgoing, Record, Stage


class CandidatesStage(Stage):
    """See the module."""

    name = "candidates"
    reads = "judgments"

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record, judgment in decode_values(batch, Judgment.from_dict, effects):
            for candidate in distil(judgment):
                effects.outgoing.append(
                    Outgoing(tenant_of(record.topic), "candidates", candidate.item_id, candidate.to_json())
                )
        return effects
