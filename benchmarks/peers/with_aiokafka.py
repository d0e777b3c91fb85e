"""Decode with aiokafka and orjson, nothing else: `BROKER TOPIC EVENTS`."""

from __future__ import annotations

import asyncio
import sys

import orjson
from aiokafka import AIOKafkaConsumer
from stopwatch import Stopwatch


async def main(broker: str, topic: str, events: int) -> None:
    watch = Stopwatch(events)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker,
        group_id="with-aiokafka",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    while True:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            for record in records:
                watch.begin()
                watch.count(len(orjson.loads(record.value)))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
