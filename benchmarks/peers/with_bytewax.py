"""Decode with Bytewax, and nothing more: `BROKER TOPIC EVENTS`."""

from __future__ import annotations

import sys
from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main
from stopwatch import Stopwatch

watch = Stopwatch(int(sys.argv[3]))


def decode(message: Any) -> list[Any]:
    watch.begin()
    events: list[Any] = orjson.loads(message.value)
    watch.count(len(events))
    return []


flow = Dataflow("with_bytewax")
messages = op.input("events", flow, KafkaSource([sys.argv[1]], [sys.argv[2]], batch_size=1000))
op.output("nowhere", op.flat_map("decode", messages, decode), StdOutSink())
run_main(flow)
