"""Fixtures of the pipeline: on a log in memory, and as a worker process on a real broker and Milvus."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import IO, Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.replay import Knowledge
from fleetlore.config import Settings
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.wire.events import Event
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from tests.doubles.proxy import Proxy
from tests.streams.broker_pipeline import BrokerPipeline, LonePipeline, Reference, Server, StartWorker
from tests.streams.log_pipeline import PARTITIONS, LogPipeline

START_SECONDS = 240.0


def guarded(
    *command: str, environ: Mapping[str, str] | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A child that does not outlive the test run."""
    return subprocess.Popen(
        [sys.executable, "-m", "streams.embedded.supervisor", *command],
        stdin=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
        start_new_session=True,
    )


def end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    child.wait(120)
    if child.stdin is not None:
        child.stdin.close()


def wait_ready(url: str, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while why := unready(url):
        assert child.poll() is None, f"the worker ended with {child.returncode}"
        assert time.monotonic() < deadline, f"nothing is ready at {url}: {why}"
        time.sleep(0.05)


def unready(url: str) -> str:
    """Why a role is not ready; "" if it is."""
    try:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=10):
                return ""
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.read().decode().strip()
    except OSError as error:
        return repr(error)


def worker_environ(settings: Settings) -> dict[str, str]:
    return {name: value for name, value in settings.to_env().items() if value}


@pytest.fixture(scope="session")
def start_worker() -> Iterator[StartWorker]:
    """Start a worker process and wait until it has its partitions; ended with the run unless the test ends it."""
    children: list[subprocess.Popen[bytes]] = []

    def start(settings: Settings) -> subprocess.Popen[bytes]:
        child = guarded(sys.executable, "-m", "fleetlore.cli.main", "worker", environ=worker_environ(settings))
        children.append(child)
        wait_ready(f"http://127.0.0.1:{settings.metrics_port}", child)
        return child

    yield start
    for child in children:
        end(child)


def own_settings(broker: str, milvus: str, tenant: str) -> Settings:
    """Settings of a worker that serves one tenant, alone in its group."""
    shared = Settings(broker=broker, milvus=milvus, partitions=PARTITIONS, session_timeout_seconds=6.0)
    return shared.with_(group=tenant, tenants=(tenant,), metrics_port=free_port())


@pytest.fixture(scope="session")
def server(broker: EmbeddedBroker, milvus: str, start_worker: StartWorker) -> Server:
    tenants = tuple(f"stage{number:02}" for number in range(40))
    settings = own_settings(broker.address, milvus, f"stages-{os.getpid()}").with_(tenants=tenants)
    start_worker(settings)
    store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
    return Server(settings, f"http://127.0.0.1:{settings.metrics_port}", store)


@pytest.fixture
async def broker_pipeline(request: pytest.FixtureRequest) -> AsyncIterator[BrokerPipeline]:
    pipeline = BrokerPipeline(request.getfixturevalue("server"))
    await pipeline.start()
    yield pipeline
    await pipeline.stop()


@pytest.fixture
async def lone_pipeline(broker: EmbeddedBroker, tenant: str) -> AsyncIterator[LonePipeline]:
    """Makes the pipeline of a new tenant and group. The test runs the workers."""
    async with AsyncExitStack() as stack:

        async def make(milvus: str, **changes: Any) -> BrokerPipeline:
            settings = own_settings(broker.address, milvus, tenant).with_(**changes)
            await ensure_topics(settings)
            store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
            pipeline = BrokerPipeline(Server(settings, f"http://127.0.0.1:{settings.metrics_port}", store))
            await pipeline.start()
            stack.push_async_callback(pipeline.stop)
            return pipeline

        yield make


@pytest.fixture
async def proxy(milvus: str) -> AsyncIterator[Proxy]:
    """Between a worker and Milvus."""
    async with Proxy(milvus.removeprefix("http://")) as proxy:
        yield proxy


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.long)])
async def pipeline(request: pytest.FixtureRequest) -> AsyncIterator[LogPipeline | BrokerPipeline]:
    """The pipeline, once on the in-memory log and once as a worker process."""
    if request.param == "memory":
        yield LogPipeline()
        return
    real = BrokerPipeline(request.getfixturevalue("server"))
    await real.start()
    yield real
    await real.stop()


@pytest.fixture
def reference() -> Reference:
    """The lore that an in-memory pipeline learns from events."""

    async def run(tenant: str, events: Sequence[Event]) -> Knowledge:
        pipeline = LogPipeline(tenant)
        await pipeline.send(events)
        await pipeline.drain()
        return await pipeline.knowledge()

    return run
