"""SIGTERM of a worker: in order at the first, at once at the second, and nothing committed that was not processed."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from streams.embedded.broker import free_port
from tests.doubles.proxy import Proxy
from tests.streams.broker_pipeline import LonePipeline, StartWorker
from tests.streams.conftest import guarded, own_settings, unready, worker_environ
from tests.streams.log_pipeline import RIGHT, WRONG, flat

Worker = subprocess.Popen[bytes]

DRAIN_SECONDS = 2.0
LEAVE_SECONDS = 5.0  # as in streams/runtime/lifecycle.py
MARGIN_SECONDS = 100.0  # for a busy machine: what held it up would hold it for longer
KILLED_BY_SIGTERM = 143


async def readiness(settings: Settings) -> str:
    return await asyncio.to_thread(unready, f"http://127.0.0.1:{settings.metrics_port}")


async def is_retrying(pipeline: Any) -> bool:
    return await pipeline.metric("fleetlore_sink_retries_total", collection="patterns") > 0


async def is_stopping(worker: Worker, settings: Settings) -> bool:
    return worker.poll() is not None or "stopping" in await readiness(settings)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await condition():
            await asyncio.sleep(0.05)


async def code_of(process: Worker, within_seconds: float) -> int:
    return await asyncio.to_thread(process.wait, within_seconds)


async def members(settings: Settings) -> int:
    """How many workers the broker believes to be in the group."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.broker)
    await admin.start()
    try:
        [response] = await admin.describe_consumer_groups([settings.group])
        return len(response.to_object()["groups"][0]["members"])
    finally:
        await admin.close()


def sessions(pipeline: Any, count: int) -> list[Any]:
    return flat([pipeline.story.session(f"s{n}", WRONG, RIGHT, task=f"task-{n % 7}") for n in range(count)])


async def committed(pipeline: Any, name: str = "observations") -> int:
    return sum([offset for offset, _ in (await pipeline.committed_offsets(name)).values()])


@pytest.mark.slow
async def test_under_load_it_commits_what_is_done_and_leaves(
    lone_pipeline: LonePipeline, milvus: str, start_worker: StartWorker, reference: Any
) -> None:
    """One of two: aiokafka does not leave a group of generation 0, with which the embedded broker begins."""
    pipeline = await lone_pipeline(milvus, drain_seconds=DRAIN_SECONDS)
    other = pipeline.settings.with_(metrics_port=free_port())
    worker = await asyncio.to_thread(start_worker, pipeline.settings)
    await asyncio.to_thread(start_worker, other)
    assert await members(other) == 2
    events = sessions(pipeline, 12_000)
    await pipeline.send(events, per_record=8)

    async def begun() -> bool:
        return await committed(pipeline) > 0

    await until(begun)
    worker.terminate()
    behind = [end - offset for offset, end in (await pipeline.committed_offsets("events")).values()]
    assert sum(behind) > 0, "it was to be stopped in the middle of its work"
    assert await code_of(worker, DRAIN_SECONDS + LEAVE_SECONDS + MARGIN_SECONDS) == 0
    assert await members(other) == 1

    await pipeline.drain()
    assert await pipeline.knowledge() == await reference(pipeline.tenant, events)


@pytest.mark.long
async def test_a_batch_that_milvus_does_not_take_is_left_to_the_next_worker(
    lone_pipeline: LonePipeline, proxy: Proxy, start_worker: StartWorker, reference: Any
) -> None:
    pipeline = await lone_pipeline(f"http://{proxy.address}", drain_seconds=DRAIN_SECONDS)
    worker = await asyncio.to_thread(start_worker, pipeline.settings)
    await proxy.take_away()
    events = sessions(pipeline, 20)
    await pipeline.send(events)

    await until(lambda: is_retrying(pipeline))
    worker.terminate()
    await until(lambda: is_stopping(worker, pipeline.settings))
    assert await code_of(worker, DRAIN_SECONDS + LEAVE_SECONDS + MARGIN_SECONDS) == 0
    assert await committed(pipeline) == 0

    proxy.bring_back()
    await asyncio.to_thread(start_worker, pipeline.settings)
    await pipeline.drain()
    assert await pipeline.knowledge() == await reference(pipeline.tenant, events)


@pytest.mark.long
async def test_a_second_signal_ends_it_at_once(
    lone_pipeline: LonePipeline, proxy: Proxy, start_worker: StartWorker
) -> None:
    pipeline = await lone_pipeline(f"http://{proxy.address}", drain_seconds=60.0)
    worker = await asyncio.to_thread(start_worker, pipeline.settings)
    await proxy.take_away()
    await pipeline.send(sessions(pipeline, 20))

    await until(lambda: is_retrying(pipeline))
    worker.terminate()
    await until(lambda: is_stopping(worker, pipeline.settings))
    worker.terminate()
    assert await code_of(worker, MARGIN_SECONDS) == KILLED_BY_SIGTERM
    assert await committed(pipeline) == 0


async def test_while_it_waits_for_milvus_at_its_start(lone_pipeline: LonePipeline, proxy: Proxy) -> None:
    pipeline = await lone_pipeline(f"http://{proxy.address}", drain_seconds=DRAIN_SECONDS)
    await proxy.take_away()
    command = sys.executable, "-m", "fleetlore.cli.main", "worker"

    async def waiting() -> bool:
        return "milvus: Milvus at" in await readiness(pipeline.settings)

    with guarded(*command, environ=worker_environ(pipeline.settings)) as worker:
        try:
            await until(waiting)
        finally:
            worker.terminate()
        assert await code_of(worker, DRAIN_SECONDS + LEAVE_SECONDS + MARGIN_SECONDS) == 0


@pytest.mark.long
async def test_a_broker_that_hangs_does_not_hold_it(
    own_broker: EmbeddedBroker, milvus: str, tenant: str, start_worker: StartWorker, lone_pipeline: LonePipeline
) -> None:
    own_broker.start()
    pipeline = await lone_pipeline(milvus, broker=own_broker.address, drain_seconds=DRAIN_SECONDS)
    worker = await asyncio.to_thread(start_worker, pipeline.settings)
    await pipeline.send(sessions(pipeline, 20))
    await pipeline.drain()
    own_broker.pause()
    worker.terminate()
    assert await code_of(worker, DRAIN_SECONDS + LEAVE_SECONDS + MARGIN_SECONDS) in (0, 1)


def test_a_worker_starts_beside_a_server_that_hangs(
    broker: EmbeddedBroker, milvus: str, tenant: str, start_worker: StartWorker
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hanging:
        servers = f"127.0.0.1:{hanging.getsockname()[1]},{broker.address}"
        assert start_worker(own_settings(servers, milvus, tenant).with_(partitions=1)).poll() is None
