"""All stages in one process without topics between them: what a stage hands on is the next one's batch.

A backfill derives everything anew. By way of the topics its values would mix with those of the live workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from fleetlore.errors import RowRefused
from fleetlore.wire.topics import topic
from sinks.producer import json_arrays
from streams.stage.base import Effects, Outgoing, Record, Stage, Store

log = logging.getLogger(__name__)


class Chain:
    """Runs stages, given in the order of the flow, and writes their rows.

    What they have for the compacted topics and the dead letters is left out: the live workers see to those.
    """

    def __init__(self, stages: Sequence[Stage], store: Store) -> None:
        self._stages = stages
        self._store = store
        self._read = {stage.reads for stage in stages}
        self._writes: list[asyncio.Task[None]] = []

    async def run(self, batch: Sequence[Record]) -> Effects:
        """Work in a batch of the first stage's topic and return that stage's effects.

        The rows of the batch are still being written then, beside the next batch's first stage; those of all batches before it
        are acknowledged.

        Raises:
            StoreUnavailable: nothing after the last batch whose rows are known to be acknowledged may be counted on.
        """
        first, *later = self._stages
        effects = await first.process(batch)
        await self.settle()  # the later stages read what they wrote
        waiting: dict[str, list[Record]] = {}
        self._hand_on(effects.outgoing, waiting)
        self._write(effects)
        for stage in later:
            records = waiting.pop(stage.reads, None)
            if records:
                made = await stage.process(records)
                self._hand_on(made.outgoing, waiting)
                self._write(made)
            if stage.holds:
                self._write(await stage.process([]))
        return effects

    async def settle(self) -> None:
        """Wait until all rows are acknowledged.

        Raises:
            StoreUnavailable: some are not.
        """
        writes, self._writes = self._writes, []
        if writes:
            await asyncio.wait(writes)
            for write in writes:
                write.result()

    def _write(self, effects: Effects) -> None:
        if effects.rows:
            self._writes.append(asyncio.create_task(self._upsert(effects)))

    async def _upsert(self, effects: Effects) -> None:
        for collection, rows in effects.rows.items():
            try:
                await self._store.upsert(collection, rows)
            except RowRefused as error:
                # The live workers have it among their dead letters.
                log.warning("%s", error)
        if effects.acknowledged is not None:
            effects.acknowledged()

    def _hand_on(self, values: Sequence[Outgoing], waiting: dict[str, list[Record]]) -> None:
        """Pack values as the topics would have carried them, so that the next stage reads them as ever."""
        packed: dict[tuple[str, str], list[bytes]] = {}
        for value in values:
            if value.topic in self._read and value.value is not None:
                packed.setdefault((value.tenant, value.topic), []).append(value.value)
        for (tenant, name), parts in packed.items():
            records = waiting.setdefault(name, [])
            records.extend(Record(topic(tenant, name), 0, 0, None, array, {}) for array in json_arrays(parts))
