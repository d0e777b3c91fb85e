"""List the pipeline's stages in the order of an event, and run them in one process without topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent, RowRefused
from fleetlore.kafka.encode import encode_event
from fleetlore.wire.decode import FEEDBACK
from fleetlore.wire.events import Event
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import json_arrays
from streams.stage.base import Effects, Outgoing, Record, Stage, Store
from streams.stage.operators import Operators
from streams.stages.s1_sessions.parse import Arrival, clean_records, read_events
from streams.stages.s1_sessions.stage import SessionsStage
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments import JudgmentsStage
from streams.stages.s4_items import ItemsStage

if TYPE_CHECKING:
    from models.llm.questions import LanguageModel

__all__ = ["FLOW", "Chain", "language_model", "pipeline", "records_of_events"]

log = logging.getLogger(__name__)


class FeedbackStage(Stage):
    """Reads corrections from a topic with its own ACL.

    Its writers may correct any session, even against the environment's reward. A correction among agents' events is
    only a claim.
    """

    name = "feedback"
    reads = "feedback"

    def __init__(self, principals: Principals | None = None) -> None:
        self.principals = principals

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record in batch:
            events = read_events(record, effects, self.principals)
            clean_records([(record, events)], effects, self.principals)
            for event in events:
                arrival = Arrival(event, record)
                if event.type == FEEDBACK:
                    effects.outgoing += arrival.feedback(claimed=False)
                else:
                    error = InvalidEvent("unknown_type", f"{event.type} is no feedback")
                    effects.dead_letters.append(arrival.letter(error))
                    effects.processed -= 1
        return effects


# Topics that the stages read, in order. Each stage writes only to later ones.
FLOW = tuple(stage.reads for stage in (SessionsStage, FeedbackStage, PatternsStage, JudgmentsStage, ItemsStage))


def pipeline(
    store: Store,
    metrics: Metrics,
    clock: Clock,
    settings: Settings,
    model: LanguageModel | None = None,
    operators: Operators | None = None,
) -> tuple[Stage, ...]:
    operators, principals = operators or Operators(), Principals.of(settings.principal_key)
    return (
        SessionsStage(store, clock, metrics, settings.silent_seconds, operators.erased, principals),
        FeedbackStage(principals),
        PatternsStage(store, clock, metrics, operators),
        JudgmentsStage(store, metrics, model, operators.erased),
        ItemsStage(store, clock, metrics, operators, settings.review_of),
    )


def language_model(settings: Settings, metrics: Metrics) -> LanguageModel | None:
    if not settings.llm_url:
        return None
    from models.llm.questions import LanguageModel

    def observe(result: str, tokens: int) -> None:
        metrics.llm_questions.labels(result).inc()
        metrics.llm_tokens.inc(tokens)

    return LanguageModel(settings, observe)


class Chain:
    """Values for compacted topics and dead letters are left to live workers."""

    def __init__(self, stages: Sequence[Stage], store: Store) -> None:
        self._stages = stages
        self._store = store
        self._read = {stage.reads for stage in stages}
        self._writes: list[asyncio.Task[None]] = []

    async def run(self, batch: Sequence[Record]) -> Effects:
        """Process a batch of events and feedback. Return the first stage's effects, with both counts."""
        first, *later = self._stages
        came = dict(self.first_of(batch))
        waiting = {stage.reads: records for stage, records in came.items() if stage is not first}
        effects = await first.process(came.get(first, []))
        await self.settle()  # later stages read these rows
        self._hand_on(effects.outgoing, waiting)
        self._write(effects)
        for stage in later:
            records = waiting.pop(stage.reads, None)
            if records:
                made = await stage.process(records)
                if stage in came:
                    effects.processed += made.processed
                    effects.dead_letters += made.dead_letters
                self._hand_on(made.outgoing, waiting)
                self._write(made)
            if stage.holds:
                self._write(await stage.process([]))
        return effects

    async def deliver(self, values: Sequence[Outgoing]) -> None:
        """Process values as if they came from topics, and wait for their rows."""
        waiting: dict[str, list[Record]] = {}
        self._hand_on(values, waiting)
        await self.run([record for records in waiting.values() for record in records])
        await self.settle()

    def first_of(self, batch: Sequence[Record]) -> list[tuple[Stage, list[Record]]]:
        by_topic: dict[str, list[Record]] = {}
        for record in batch:
            by_topic.setdefault(record.topic.split(".", 2)[2], []).append(record)
        return [(stage, by_topic[stage.reads]) for stage in self._stages if stage.reads in by_topic]

    async def settle(self) -> None:
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
                log.warning("%s", error)  # the live workers make the dead letter
        if effects.acknowledged is not None:
            effects.acknowledged()

    def _hand_on(self, values: Sequence[Outgoing], waiting: dict[str, list[Record]]) -> None:
        packed: dict[tuple[str, str], list[bytes]] = {}
        for value in values:
            if value.topic in self._read and value.value is not None:
                packed.setdefault((value.tenant, value.topic), []).append(value.value)
        for (tenant, name), parts in packed.items():
            records = waiting.setdefault(name, [])
            records.extend(Record(topic(tenant, name), 0, 0, None, array, {}) for array in json_arrays(parts))


def records_of_events(events: Iterable[Event], offset: int = 0) -> list[Record]:
    values: dict[str, list[bytes]] = {}
    for event in events:
        name = topic(event.tenant, "feedback" if event.kind == "feedback" else "events")
        values.setdefault(name, []).append(encode_event(event))
    return [
        Record(name, 0, offset + place, None, array, {})
        for name, encoded in values.items()
        for place, array in enumerate(json_arrays(encoded))
    ]
