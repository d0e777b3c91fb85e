"""A Faust worker that reads one topic through the pump and commits the offsets that it reads from its standard input.

`python pump_worker.py BOOTSTRAP TOPIC GROUP`; output lines are JSON. Input lines are `commit PARTITION OFFSET`.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Collection
from typing import Any

import faust
from faust.app.base import BootStrategy

from fleetlore.config import Settings
from streams.runtime import pump
from streams.runtime.ledger import Lease
from streams.runtime.pump import Pump
from streams.stage.base import TopicPartition

SESSION_TIMEOUT_SECONDS = 6.0
FEED_PLACES = 64  # 1 MiB
FETCH_BYTES = 1024 * 1024


# Faust's worker writes escape sequences to standard output, so the answers use a duplicate of it.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(**fields: Any) -> None:
    print(json.dumps(fields), file=ANSWERS, flush=True)


class Boot(BootStrategy):  # type: ignore[misc]
    enable_kafka = False


class PumpApp(faust.App):  # type: ignore[misc]
    BootStrategy = Boot

    async def on_start(self) -> None:
        await self.pump.start()
        self.flow_control.resume()
        await super().on_start()

    async def on_assigned(self, assigned: Collection[TopicPartition]) -> None:
        say(assigned=sorted(tp.partition for tp in assigned))

    async def on_revoked(self) -> None: ...


def main(bootstrap: str, topic: str, group: str) -> None:
    pump._FEED_PLACES, pump._RESUME_PLACES, pump._BATCH_PLACES = FEED_PLACES, 25, 16
    pump._MAX_FETCH_BYTES = FETCH_BYTES
    app = PumpApp(group, web_enabled=False, worker_redirect_stdouts=False)
    settings = Settings(broker=bootstrap, group=group, session_timeout_seconds=SESSION_TIMEOUT_SECONDS)
    app.pump = Pump(settings, app, Lease(5.0))
    channel = app.channel(maxsize=1)
    feed = app.pump.feed(channel, [topic], 0.01)

    @app.agent(channel)
    async def read(batches: Any) -> None:
        async for batch in batches:
            for record in batch.records if batch.generation == app.pump.generation else ():
                say(partition=record.partition, offset=record.offset, value=record.value[:16].decode())
            feed.free.set()

    @app.task
    async def run() -> None:
        try:
            await app.pump.run()
        except Exception as error:
            say(ended=repr(error))

    @app.task
    async def obey() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            match line.decode().split():
                case ["commit", partition, offset]:
                    done = await app.pump.commit({TopicPartition(topic, int(partition)): int(offset)})
                    say(committed=done)

    faust.Worker(app, loglevel=logging.WARNING, quiet=True, redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(*sys.argv[1:])
