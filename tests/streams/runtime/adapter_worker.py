"""A Faust worker that reads one topic through the adapter and commits what it is told on its standard input.

`python adapter_worker.py BOOTSTRAP TOPIC GROUP FETCH_WAIT_MS`; output lines are JSON. Input lines are `commit PARTITION
OFFSET`, `hold` (read no further), `go` (read on), `stop` (fetch no more of the topic) and `state`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from typing import Any

import faust

from streams.runtime import faust_adapter
from streams.runtime.faust_consumer import FleetTransport
from streams.runtime.lease import Lease
from streams.stage.base import TopicPartition

SESSION_TIMEOUT_SECONDS = 6.0
REQUEST_TIMEOUT_SECONDS = 8.0
BUFFER_PLACES = 64  # 1 MiB


# Faust's worker writes escape sequences to a standard output of its own accord; the answers keep theirs.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(**fields: Any) -> None:
    print(json.dumps(fields), file=ANSWERS, flush=True)


class AdapterApp(faust.App):  # type: ignore[misc]
    fetch_wait_ms = 0

    def FlowControlQueue(self, maxsize: int | None = None, *, clear_on_resume: bool = False) -> faust_adapter.Buffer:
        return faust_adapter.Buffer(maxsize or 0, flow_control=self.flow_control, clear_on_resume=clear_on_resume)

    def _new_transport(self) -> Any:
        return FleetTransport(self, self.fetch_wait_ms, Lease(5.0))


def main(bootstrap: str, topic: str, group: str, fetch_wait_ms: str) -> None:
    AdapterApp.fetch_wait_ms = int(fetch_wait_ms)
    app = AdapterApp(
        group,
        broker=[f"kafka://{host}" for host in bootstrap.split(",")],
        broker_session_timeout=SESSION_TIMEOUT_SECONDS,
        broker_heartbeat_interval=1.0,
        broker_rebalance_timeout=SESSION_TIMEOUT_SECONDS,
        broker_request_timeout=REQUEST_TIMEOUT_SECONDS,
        # Were Faust to commit anything by itself, it would do so within this time.
        broker_commit_interval=0.1,
        broker_commit_every=1,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
        stream_buffer_maxsize=BUFFER_PLACES,
        store="memory://",
        datadir=f"{tempfile.gettempdir()}/fleetlore-adapter",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    source = app.topic(
        topic, value_type=bytes, key_type=bytes, value_serializer="raw", key_serializer="raw", acks=False
    )

    positions: dict[TopicPartition, int] = {}
    going = asyncio.Event()
    going.set()

    @app.agent(source)
    async def read(stream: Any) -> None:
        async for events in faust_adapter.batches(stream, 16, linger_seconds=0.01):
            await going.wait()
            for record in faust_adapter.current(app, events):
                positions[record.tp] = record.offset + 1
                say(partition=record.partition, offset=record.offset, value=record.value[:16].decode())

    @app.on_partitions_assigned.connect(weak=False)
    async def assigned(app: Any, assigned: set[Any], **_: Any) -> None:
        fetcher = app.consumer._thread._consumer._fetcher
        say(assigned=sorted(tp.partition for tp in assigned), fetch_wait_ms=fetcher._fetch_max_wait_ms)

    @app.task
    async def obey() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            match line.decode().split():
                case ["hold"]:
                    going.clear()
                case ["go"]:
                    going.set()
                case ["stop"]:
                    faust_adapter.pause(app, {topic})
                    say(stopped=topic)
                case ["state"]:
                    lags = await faust_adapter.lags(app, positions)
                    buffer = next(iter(app.topics)).queue
                    say(paused=faust_adapter.paused(app), lag=sum(lags.values()), buffered=buffer.qsize())
                case ["commit", partition, offset]:
                    done = await faust_adapter.commit(app, {TopicPartition(topic, int(partition)): int(offset)})
                    say(committed=done)

    faust.Worker(app, loglevel=logging.WARNING, quiet=True, redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(*sys.argv[1:])
