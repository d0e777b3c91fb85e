"""A worker ends after an error, whatever its clean-up waits for."""

import subprocess
import sys

import pytest

from streams.embedded.broker import free_port

# The clean-up waits as for the answer of a broker that was made anew.
CODE = """
import asyncio, sys
from fleetlore.config import Settings
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime import app, worker

class Failing(app.FleetApp):
    async def on_start(self):
        if sys.argv[1] == "starting":
            raise OSError("broken")
        self.add_future(self._end("commit", OSError("broken")))

    async def on_stop(self):
        await asyncio.Event().wait()

worker.FleetApp = Failing
nowhere = Settings(broker="127.0.0.1:1", milvus="http://127.0.0.1:1", drain_seconds=1, metrics_port=int(sys.argv[2]))
worker.run_worker(nowhere)
"""


@pytest.mark.parametrize("moment", ["starting", "running"])
def test_it_ends_where_its_clean_up_hangs(moment: str) -> None:
    command = sys.executable, "-c", CODE, moment, str(free_port())
    ended = subprocess.run(command, capture_output=True, timeout=100, check=False)
    assert ended.returncode == 1 and b"broken" in ended.stderr
