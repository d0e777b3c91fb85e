"""Send dead letters back to their source topics after the cause is fixed. Sending one twice does no harm."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from fleetlore.cluster import Bootstrap
from fleetlore.errors import RecordsRefused
from fleetlore.kafka.read import observer, partitions_of, read_dead_letters, record_at
from fleetlore.wire.dead_letter import REDRIVEN, ROW_REFUSED, UNREADABLE, DeadLetterRecord, Mark, RawRecord, mark
from fleetlore.wire.topics import TOPICS, topic
from sinks.producer import BatchProducer

__all__ = ["redrive"]

# The topic sets the limit.
_MAX_REQUEST_BYTES = 64 * 1024 * 1024
# A dead letter that came back this often would come back again.
_MOST_RETURNS = 3
_READ_SECONDS = 60.0
# Topics that the pipeline reads. Old results on a compacted topic could overwrite newer ones.
READ = frozenset(spec.name for spec in TOPICS if not spec.compacted) - {"dead-letters", "adapters.acks"}


@dataclass(slots=True)
class Redriven:
    sent: list[DeadLetterRecord] = field(default_factory=list)
    refused: list[tuple[DeadLetterRecord, str]] = field(default_factory=list)
    before: int = 0
    beyond: int = 0


async def redrive(
    bootstrap: Bootstrap,
    tenant: str,
    *,
    send: bool,
    reasons: Collection[str] = (),
    places: Collection[str] = (),
    limit: int = 1_000,
    at_once: int = 100,
    self_declared: bool = True,
) -> Redriven:
    """Send dead letters back, the oldest of each partition first. Without `send`, only list them."""
    marks = {each.place async for each in read_dead_letters(bootstrap, tenant, _READ_SECONDS) if isinstance(each, Mark)}
    done = Redriven()
    seen: set[tuple[str, int, int, str]] = set()
    partitions: dict[str, int] = {}
    producer = BatchProducer(bootstrap, _MAX_REQUEST_BYTES)
    async with producer if send else nullcontext(), observer(bootstrap) as consumer:
        chunk: list[tuple[DeadLetterRecord, RawRecord]] = []
        # Returning dead letters lie beyond this read's end, so the loop ends.
        async for letter in read_dead_letters(bootstrap, tenant, _READ_SECONDS):
            if isinstance(letter, Mark) or letter.identity in seen:
                continue
            if (reasons and letter.reason not in reasons) or (places and letter.place not in places):
                continue
            seen.add(letter.identity)
            if letter.place in marks:
                done.before += 1
            elif len(done.sent) == limit:
                done.beyond += 1
            else:
                record = await _record(consumer, tenant, letter, partitions)
                if not self_declared and letter.reason == "unsigned":
                    record = "no principal signed it"
                listed = replace(letter, value=b"")  # a thousand values take 250 MB
                if isinstance(record, str):
                    done.refused.append((listed, record))
                else:
                    done.sent.append(listed)
                    chunk.append((letter, record))
            if len(chunk) == at_once:
                await _send(producer, tenant, chunk, send, done)
                chunk = []
        await _send(producer, tenant, chunk, send, done)
    return done


async def _send(
    producer: BatchProducer,
    tenant: str,
    chunk: Sequence[tuple[DeadLetterRecord, RawRecord]],
    send: bool,
    done: Redriven,
) -> None:
    if not send or not chunk:
        return
    try:
        await producer.send([record for _, record in chunk])
    except RecordsRefused as error:  # all others are sent
        values = {(name, value) for name, value in error.values}
        refused = {letter.place for letter, each in chunk if (each.topic, each.value or b"") in values}
        chunk = [each for each in chunk if each[0].place not in refused]
        done.refused += [
            (each, f"the broker refuses it: {error.detail}") for each in done.sent if each.place in refused
        ]
        done.sent = [each for each in done.sent if each.place not in refused]
    await producer.send([mark(letter, topic(tenant, "dead-letters")) for letter, _ in chunk])


async def _record(consumer: Any, tenant: str, letter: DeadLetterRecord, partitions: dict[str, int]) -> RawRecord | str:
    if letter.reason == ROW_REFUSED:
        return "it is a row that the store refused, and no record; a backfill writes rows again"
    if letter.reason == UNREADABLE and not letter.value:
        return f"no client could read it; its bytes lie at {letter.topic}[{letter.partition}]@{letter.offset}"
    if letter.topic not in {topic(tenant, each) for each in READ}:  # its headers may be forged
        return f"{letter.topic} is no topic that the workers of tenant {tenant} read"
    if letter.topic not in partitions:
        partitions[letter.topic] = len(await partitions_of(consumer, letter.topic))
    if letter.partition >= partitions[letter.topic]:
        return f"{letter.topic} has no partition {letter.partition} any more"
    if letter.redriven >= _MOST_RETURNS:
        return f"it was sent back {letter.redriven} times and came here again"
    key, value, headers = letter.key, letter.value, letter.headers
    if letter.cut:
        place = f"{letter.topic}[{letter.partition}]@{letter.offset}"
        original = await record_at(consumer, letter.topic, letter.partition, letter.offset)
        if original is None:
            return f"only a part of it is kept here, and the original at {place} is deleted"
        if letter.value not in (original.value or b""):
            return f"only a part of it is kept here, and at {place} lies another record by now"
        # Send the whole record even for one of its events: the others change nothing.
        key, value, headers = original.key, original.value, tuple(original.headers or ())
    sent = [(name, content) for name, content in headers if name != REDRIVEN]
    return RawRecord(letter.topic, letter.partition, key, value, [*sent, (REDRIVEN, b"%d" % (letter.redriven + 1))])
