"""Sending dead letters back where they came from, once what was wrong is put right.

A letter goes to the topic and partition that it names, with its bytes and its key. All the pipeline's effects are
idempotent, so a letter that is sent back twice, because this was killed before it could say so, does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlore.errors import ConfigError
from fleetlore.kafka.dead_letter_log import read_letters
from fleetlore.kafka.read import observer, partitions_of, record_at
from fleetlore.wire.dead_letter import REDRIVEN, ROW_REFUSED, Letter, Mark, RawRecord, mark
from fleetlore.wire.topics import TOPICS, tenant_of, topic
from sinks.producer import BatchProducer

CHUNK = 100
# A record that lies in a topic was small enough for it; so the topic decides and not this side.
MAX_REQUEST_BYTES = 64 * 1024 * 1024
# What the pipeline reads. A compacted topic holds results: an old one sent back would undo a newer one.
READ = frozenset(spec.name for spec in TOPICS if not spec.compacted) - {"dead-letters", "adapters.acks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which letters to send back; what is empty allows all.

    Attributes:
        places: ids of letters.
        limit: the most letters to send back; the oldest of each partition are first.
        again: also those that were sent back before.
        max_returns: a letter that had been sent back so often and came here again is refused.
    """

    reasons: frozenset[str] = frozenset()
    topic: str | None = None
    places: frozenset[str] = frozenset()
    limit: int = 1_000
    again: bool = False
    max_returns: int = 3

    def allows(self, letter: Letter) -> bool:
        return (
            (not self.reasons or letter.reason in self.reasons)
            and self.topic in (None, letter.topic)
            and (not self.places or letter.place in self.places)
        )


@dataclass(slots=True)
class Redriven:
    """What was done, or would be.

    Attributes:
        letters: sent back.
        refused: (letter, why) of those that cannot be.
        before: how many had been sent back before and were passed over.
        beyond: how many more there are than the limit.
    """

    letters: list[Letter] = field(default_factory=list)
    refused: list[tuple[Letter, str]] = field(default_factory=list)
    before: int = 0
    beyond: int = 0


async def redrive(
    bootstrap: str, tenant: str, choice: Choice, *, send: bool, timeout_seconds: float = 60.0
) -> Redriven:
    """Send the chosen letters back, or only say which those are.

    Raises:
        BrokerUnavailable: nobody answers, or a record was not acknowledged. What was sent until then is marked.
    """
    marks: set[str] = set()
    if not choice.again:
        marks = {
            each.place async for each in read_letters(bootstrap, tenant, timeout_seconds) if isinstance(each, Mark)
        }
    done = Redriven()
    seen: set[tuple[str, int, int, str]] = set()
    partitions: dict[str, int] = {}
    outbox = BatchProducer(bootstrap, MAX_REQUEST_BYTES)
    if send:
        await outbox.start()
    try:
        async with observer(bootstrap) as consumer:
            chunk: list[tuple[Letter, RawRecord]] = []
            # Letters that come back meanwhile lie beyond the end that is read to, so this does end.
            async for letter in read_letters(bootstrap, tenant, timeout_seconds):
                if isinstance(letter, Mark) or not choice.allows(letter) or letter.identity in seen:
                    continue
                seen.add(letter.identity)
                if letter.place in marks:
                    done.before += 1
                elif len(done.letters) == choice.limit:
                    done.beyond += 1
                else:
                    record = await _record(consumer, tenant, letter, choice.max_returns, partitions)
                    told = replace(letter, value=b"")  # a thousand values are a quarter of a gigabyte
                    if isinstance(record, str):
                        done.refused.append((told, record))
                    else:
                        done.letters.append(told)
                        chunk.append((letter, record))
                if len(chunk) == CHUNK:
                    await _send(outbox, tenant, chunk, send)
                    chunk = []
            await _send(outbox, tenant, chunk, send)
    finally:
        await outbox.stop()
    return done


async def _send(outbox: BatchProducer, tenant: str, chunk: Sequence[tuple[Letter, RawRecord]], send: bool) -> None:
    """Marked only when they have arrived: sent twice is better than not at all."""
    if send and chunk:
        await outbox.post([record for _, record in chunk])
        await outbox.post([mark(letter, topic(tenant, "dead-letters")) for letter, _ in chunk])


async def _record(
    consumer: Any, tenant: str, letter: Letter, max_returns: int, partitions: dict[str, int]
) -> RawRecord | str:
    """The record to send for a letter, or why there is none. `partitions` of topics are asked for once."""
    if letter.reason == ROW_REFUSED:
        return "it is a row that the store refused, and no record; a backfill writes rows again"
    if not _reads(tenant, letter.topic):
        return f"{letter.topic} is no topic that the workers of tenant {tenant} read"
    if letter.topic not in partitions:
        partitions[letter.topic] = len(await partitions_of(consumer, letter.topic))
    if letter.partition >= partitions[letter.topic]:
        return f"{letter.topic} has no partition {letter.partition} any more"
    if letter.redriven >= max_returns:
        return f"it was sent back {letter.redriven} times and came here again; more with --max-returns"
    key, value, headers = letter.key, letter.value, letter.headers
    if letter.cut:
        place = f"{letter.topic}[{letter.partition}]@{letter.offset}"
        original = await record_at(consumer, letter.topic, letter.partition, letter.offset)
        if original is None:
            return f"only a part of it is kept here, and the original at {place} is deleted"
        if letter.value not in (original.value or b""):
            return f"only a part of it is kept here, and at {place} lies another record by now"
        # The record as a whole, also for one event out of it: the others were seen before and change nothing.
        key, value, headers = original.key, original.value, tuple(original.headers or ())
    sent = [(name, content) for name, content in headers if name != REDRIVEN]
    return RawRecord(letter.topic, letter.partition, key, value, [*sent, (REDRIVEN, b"%d" % (letter.redriven + 1))])


def _reads(tenant: str, name: str) -> bool:
    """Whether it is a topic of this tenant that the pipeline reads: a letter's headers are only as good as its writer."""
    try:
        return tenant_of(name) == tenant and name in {topic(tenant, each) for each in READ}
    except ConfigError:
        return False
