"""Run a Faust agent that does nothing with a record: `BROKER TOPIC RECORDS`. Faust as it comes, values left as
bytes.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import faust
from stopwatch import Stopwatch

watch = Stopwatch(int(sys.argv[3]))
app = faust.App(
    "with-faust",
    broker=f"kafka://{sys.argv[1]}",
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_rebalance_timeout=6.0,
    consumer_auto_offset_reset="earliest",
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
    store="memory://",
    datadir=str(Path(tempfile.gettempdir()) / "with-faust"),
)
source = app.topic(sys.argv[2], value_type=bytes, key_type=bytes, value_serializer="raw", key_serializer="raw")


@app.agent(source)  # type: ignore[untyped-decorator]
async def nothing(stream: Any) -> None:
    async for _ in stream:
        watch.begin()
        watch.count(1)


faust.Worker(app, loglevel=logging.WARNING, quiet=True, redirect_stdouts=False).execute_from_commandline()
