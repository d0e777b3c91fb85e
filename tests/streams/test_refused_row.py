"""A row that a real Milvus always refuses becomes a dead letter, and the other rows are written."""

from collections.abc import Sequence
from typing import Any

import orjson

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.read import read_dead_letters
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.testing import FakeClock
from fleetlore.wire.dead_letter import ROW_REFUSED, DeadLetterRecord
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from sinks.redrive import redrive
from streams.runtime.delivery import Delivery
from streams.runtime.ledger import Ledger
from streams.stage.base import Effects, Record, Stage, TopicPartition

TOO_LONG = "x" * 70_000


class Rows(Stage):
    """A stage that writes a row for each record."""

    name = "items"
    reads = "candidates"

    async def process(self, batch: Sequence[Record]) -> Effects:
        tenant = batch[0].topic.split(".")[1]
        rows = [
            {"id": f"{tenant}/{each.offset}", "tenant": tenant, "text": "a", "body": (each.value or b"").decode()}
            for each in batch
        ]
        return Effects(rows={"items": rows}, processed=len(rows))


async def test_a_row_that_is_too_long_is_a_dead_letter(
    broker: EmbeddedBroker, milvus: str, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "candidates", "dead-letters", partitions=1)
    metrics, clock, source = Metrics("test"), FakeClock(), topic(tenant, "candidates")
    ledger = Ledger(clock)
    store, producer = MilvusStore(milvus, "", StaticEncoder(), metrics), BatchProducer(broker.address)
    await store.open()
    await producer.start()
    try:
        delivery = Delivery(store, producer, metrics, clock, ledger)
        values = (b"{}", TOO_LONG.encode(), b"{}")
        await delivery.run(Rows(), [Record(source, 0, n, None, value, {}) for n, value in enumerate(values)])
        assert {row["id"] async for row in store.rows("items", tenant)} == {f"{tenant}/0", f"{tenant}/2"}
    finally:
        await producer.stop()
        await store.close()
    [letter] = [each async for each in read_dead_letters(broker.address, tenant, 10)]
    assert isinstance(letter, DeadLetterRecord)
    assert (letter.reason, letter.stage, letter.topic) == (ROW_REFUSED, "items", source)
    assert orjson.loads(letter.value)["id"] == f"{tenant}/1"
    assert ledger.take() == {TopicPartition(source, 0): 3}, "it holds nothing up"
    [(_, why)] = (await redrive(broker.address, tenant, send=True)).refused
    assert "backfill" in why
