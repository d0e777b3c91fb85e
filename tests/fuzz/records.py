"""Raw Kafka records for the stages: on every topic that the workers' group reads, through the whole pipeline.

Beside the odd records of a batch lie good sessions. Every good session must be judged, every dead letter must have a
reason and be counted, and when all sessions are over nothing may hold a partition back.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

import orjson

from fleetlore.errors import RowRefused
from fleetlore.wire.dead_letter import UNREADABLE, DeadLetterRecord, read_dead_letter
from fleetlore.wire.events import BATCH_TYPE, CONTENT_TYPE, EVENT_TYPE
from fleetlore.wire.principals import SIGNED_BY
from fleetlore.wire.topics import MAX_MESSAGE_BYTES, topic
from streams.offline.memory_pipeline import MemoryStore
from streams.stages.s1_sessions.partition import TAIL_SECONDS
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, json_of, mutated, text
from tests.streams.log_pipeline import MILVUS_FIELD_BYTES, PARTITIONS, LogPipeline, Story

TENANT = "acme"
# Most records are events: every agent may write them. The rest is written by workers and operators alone.
TOPICS = ("events",) * 5 + ("feedback", "observations", "trajectories", "candidates")
_HEADERS = ("ce_specversion", "ce_type", "ce_sequence", "ce_time", "ce_", "ce_tenant", CONTENT_TYPE, SIGNED_BY)
_HEADERS += ("dlq.redriven",)
_HEADER_VALUES = (None, b"", b"1.0", b"0.3", b"\xff\xfe", b"a " + b"0" * 64, b"3", b"9" * 5_000, BATCH_TYPE, EVENT_TYPE)
_SILENT_SECONDS = 60.0
_STEP_SECONDS = 0.25


class Odd(NamedTuple):
    """One record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int


class _Store(MemoryStore):
    """Refuses the rows that do not fit a field of Milvus, and writes the others."""

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        refused = {
            row["id"]: f"{name} is too long"
            for row in rows
            for name in ("body", "state")
            if len(row.get(name, "").encode()) > MILVUS_FIELD_BYTES
        }
        await super().upsert(collection, [row for row in rows if row["id"] not in refused])
        if refused:
            raise RowRefused(collection, tuple(refused), next(iter(refused.values())))


@cache
def _samples() -> dict[str, list[Any]]:
    """Valid values of each topic, as a small fleet makes them."""

    async def run() -> dict[str, list[Any]]:
        pipeline = LogPipeline(TENANT)
        for session in pipeline.story.fleet():
            await pipeline.send(session)
        await pipeline.send([pipeline.story.feedback("good-1", "failure")])
        await pipeline.drain()
        found = {}
        for name in set(TOPICS):
            values = [orjson.loads(each.value or b"") for each in pipeline.log.read_all(topic(TENANT, name))]
            found[name] = [part for value in values for part in (value if isinstance(value, list) else [value])]
            assert found[name], f"the fleet has left nothing on {name}"
        found["trajectories"].append({"type": "forget", "id": "", "sessions": [1]})
        found["observations"].append({"type": "forget", "id": "a" * 32, "sessions": [1]})
        return found

    return asyncio.run(run())


def _value(random: Random, name: str) -> bytes:
    """One value or several, some of them odd."""
    sample = random.choice(_samples()[name])
    if name == "events" and chance(random, 3):
        sample = sample | {"session": text(random), "sequence": random.randrange(3)}
    if chance(random, 3):
        sample = [sample, random.choice(_samples()[name])]
    return json_of(random, sample)


def make(random: Random) -> Odd:
    name = random.choice(TOPICS)
    value: bytes | None = any_bytes(random, lambda random: _value(random, name))
    headers: list[tuple[str, bytes | None]] = []
    if name == "events" and chance(random, 12):  # CloudEvents' binary mode
        attributes = {key: each for key, each in random.choice(_samples()[name]).items() if key != "data"}
        headers = [(f"ce_{key}", str(each).encode()) for key, each in attributes.items()]
        value = json_of(random, random.choice(_samples()[name]).get("data"))
    for _ in range(random.randrange(3) if chance(random, 4) else 0):
        odd_name = text(random).encode("utf-8", "replace").decode()
        headers.append((random.choice(_HEADERS) if chance(random, 2) else odd_name, random.choice(_HEADER_VALUES)))
    key = random.choice((None, b"", b"s", mutated(random, b"session"), text(random).encode("utf-8", "surrogatepass")))
    if chance(random, 100):
        value = None
    odd = Odd(name, key, value, tuple(headers), random.randrange(PARTITIONS))
    # A broker takes no larger record.
    return odd if size(odd) <= MAX_MESSAGE_BYTES else Odd(name, None, None, (), odd.partition)


def size(odd: Odd) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in odd.headers)
    return len(odd.key or b"") + len(odd.value or b"") + headers


async def check(records: Sequence[Odd]) -> Counter[str]:
    pipeline = LogPipeline(TENANT, batch_records=512, silent_seconds=_SILENT_SECONDS)
    pipeline.store = _Store()
    pipeline.start()
    story, log = Story(TENANT), pipeline.log
    good = [story.session(f"good#{number}", agent=f"good-{number}") for number in range(4)]
    await pipeline.send([event for session in good[:2] for event in session])
    for each in records:
        given: Any = {"key": each.key or b"", "partition": each.partition, "headers": each.headers}
        log.append(topic(TENANT, each.topic), each.value, **given)
    await pipeline.send([event for session in good[2:] for event in session])
    await _drain(pipeline)
    for _ in range(2):  # time goes on: sessions that were left open are silent for too long, then those that wait
        pipeline.clock.advance(3_600)
        pipeline.broker_clock.advance(3_600)
        now = pipeline.broker_clock.now()
        last = [story.session(f"{now:.0f}-{number}", start=now) for number in range(4 * PARTITIONS)]
        await pipeline.send([event for session in last for event in session])
        await _drain(pipeline)
        good += last
    for name in sorted(set(TOPICS)):
        stuck = {part: place for part, place in pipeline.committed(name).items() if place[0] != place[1]}
        assert not stuck, f"{name} is committed up to another offset than its end: {stuck}"
    judged = {each[0] for each in (await pipeline.knowledge()).judgments}
    expected = {session[0].session for session in good}
    assert expected <= judged, f"good sessions that nobody judged: {sorted(expected - judged)}"
    return await _answers(pipeline, records)


async def _drain(pipeline: LogPipeline) -> None:
    """Work until nothing moves, and then on for what waits for time: tails, and commits of a run of bad records."""
    steps = 0
    for _ in range(3):
        while await pipeline.step():
            pipeline.clock.advance(_STEP_SECONDS)
            pipeline.commit()
            steps += 1
            assert steps < 20_000, "the pipeline does not come to rest"
        pipeline.clock.advance(2 * TAIL_SECONDS)
        pipeline.commit()


async def _answers(pipeline: LogPipeline, records: Sequence[Odd]) -> Counter[str]:
    """Each record is taken, or has at least one dead letter; every dead letter is counted under its reason."""
    by_place: dict[tuple[str, int, int], str] = {}
    written: Counter[str] = Counter()
    for record in pipeline.log.read_all(topic(TENANT, "dead-letters")):
        letter = read_dead_letter(record)
        assert isinstance(letter, DeadLetterRecord), f"no dead letter that its reader knows: {record}"
        assert letter.reason and letter.detail, f"a dead letter without reason or detail: {letter}"
        assert letter.reason != UNREADABLE, f"a stage raised what no reason names: {letter}"
        written[letter.reason] += 1
        by_place[letter.topic, letter.partition, letter.offset] = letter.reason
    for reason, count in written.items():
        counted = await pipeline.metric("fleetlore_dead_letters_total", reason=reason)
        assert counted >= count, f"{count} dead letters are {reason!r}, and {counted} are counted"
    refused = Counter(by_place.values())
    refused["taken"] = len(records) - refused.total()
    return refused


RECORDS = Boundary("records", make, check, size, full=1_000_000, batch=1_000)
