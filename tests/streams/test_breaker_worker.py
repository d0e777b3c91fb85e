"""The breaker in a real worker: it stops, stops again where it stopped, and goes on once that is allowed."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetlore.wire.topics import topic
from tests.streams.broker_pipeline import LonePipeline
from tests.streams.conftest import end, guarded, worker_environ

GARBAGE = 150
GARBAGE_OF = (b'{"agent":"alice"}', b'{"agent":"bob"}')
EXIT_SECONDS = 120.0


@pytest.mark.slow
async def test_a_worker_stops_at_garbage_and_again_and_goes_on_when_it_may(
    lone_pipeline: LonePipeline, milvus: str, tmp_path: Path
) -> None:
    pipeline = await lone_pipeline(milvus, partitions=1, breaker_run_records=GARBAGE - 20)
    name, log = topic(pipeline.tenant, "events"), tmp_path / "worker.log"
    began = time.time() - 2 * GARBAGE
    for number in range(GARBAGE):
        # The embedded broker keeps the producer's time, so two seconds pass from one record to the next.
        await pipeline.send_raw(GARBAGE_OF[number % 2], key=None, timestamp_ms=int(1000 * (began + 2 * number)))

    def worker(most: int) -> subprocess.Popen[bytes]:
        settings = pipeline.settings.with_(breaker_run_records=most)
        command = (sys.executable, "-m", "fleetlore.cli.main", "worker")
        with log.open("wb") as output:
            return guarded(*command, environ=worker_environ(settings), stderr=output)

    async def committed() -> list[tuple[int, int]]:
        return list((await pipeline.committed_offsets("events")).values())

    for _ in range(2):
        child = worker(GARBAGE - 20)
        assert await asyncio.to_thread(child.wait, EXIT_SECONDS) == 1, log.read_text()
        end(child)
        said = log.read_text()
        assert "records were refused, every one of them (" in said
        assert name in said and "FLEETLORE_BREAKER_RUN_RECORDS" in said
        assert await committed() == [(0, GARBAGE)]
    child = worker(10 * GARBAGE)
    async with asyncio.timeout(EXIT_SECONDS):
        while await committed() != [(GARBAGE, GARBAGE)]:
            await asyncio.sleep(0.2)
    assert len(await pipeline.dead_letters()) >= GARBAGE
    end(child)
    assert child.returncode == 0, log.read_text()
