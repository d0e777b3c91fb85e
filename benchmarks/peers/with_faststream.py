"""Decode with FastStream, a batch of records a call: `BROKER TOPIC EVENTS`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
from faststream import FastStream
from faststream.kafka import KafkaBroker
from stopwatch import Stopwatch

watch = Stopwatch(int(sys.argv[3]))
broker = KafkaBroker(sys.argv[1], logger=None)


async def decode(message: Any) -> list[Any]:
    watch.begin()
    return [orjson.loads(value) for value in message.body]


@broker.subscriber(  # type: ignore[untyped-decorator]
    sys.argv[2],
    batch=True,
    max_records=1000,
    group_id="with-faststream",
    auto_offset_reset="earliest",
    session_timeout_ms=6000,
    decoder=decode,
)
async def count(records: list[Any]) -> None:
    watch.count(sum(len(events) for events in records))


asyncio.run(FastStream(broker).run())
