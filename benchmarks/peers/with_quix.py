"""Decode with Quix Streams, and nothing more: `BROKER TOPIC EVENTS`."""

from __future__ import annotations

import sys
from typing import Any

import orjson
from quixstreams import Application
from stopwatch import Stopwatch

watch = Stopwatch(int(sys.argv[3]))


def decode(value: bytes) -> Any:
    watch.begin()
    return orjson.loads(value)


app = Application(
    broker_address=sys.argv[1],
    consumer_group="with-quix",
    auto_offset_reset="earliest",
    auto_create_topics=False,
    consumer_extra_config={"session.timeout.ms": 6000},
    loglevel="ERROR",
)
frame = app.dataframe(app.topic(sys.argv[2], value_deserializer="bytes"))
frame.apply(decode).update(lambda events: watch.count(len(events)))
app.run()
