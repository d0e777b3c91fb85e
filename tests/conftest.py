"""Servers for tests: `tansu` or Apache Kafka and Milvus Lite as child processes, and librdkafka's mock cluster."""

import asyncio
import contextlib
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from hypothesis import HealthCheck, settings

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.agent.session_parts import Guard
from fleetlore.errors import StackError
from fleetlore.recall.search import connect
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from streams.embedded import broker as embedded
from streams.embedded.broker import java_command
from tests.cluster.kafka_cluster import KafkaBroker, KafkaCluster
from tests.doubles.mock_cluster import MockCluster

# How long an input takes, to make or to test, says how busy the machine is, and nothing of the code.
settings.register_profile(
    "patient", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", parent=settings.get_profile("patient"), max_examples=25)
settings.load_profile("patient")


# Epochs that one test has seen must not refuse the versions of the next.
os.environ["FLEETLORE_STATE_DIR"] = ""
# jsonschema would build a grammar of IRIs in each process, for seconds. It does without, and no test asks for IRIs.
sys.modules["rfc3987_syntax"] = None
# LiteLLM fetches the prices of models when it is imported, otherwise.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kafka", action="store_true", help="Apache Kafka instead of tansu, wherever a test takes either")


def pytest_configure(config: pytest.Config) -> None:
    """`make test` tries fewer examples of a property than `make test-all`, and both the same ones each time.

    With `ARGS=--hypothesis-seed=n` they try others.
    """
    profile = "quick" if "not long" in config.option.markexpr else "patient"
    if config.getoption("--hypothesis-seed") is None:
        settings.register_profile("repeated", parent=settings.get_profile(profile), derandomize=True)
        profile = "repeated"
    settings.load_profile(profile)


@pytest.fixture(autouse=True)
def fetch_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded broker holds a fetch for its whole time, whatever comes: five seconds by default."""
    of_kafka = request.config.getoption("--kafka") or request.node.get_closest_marker("cluster")
    if not of_kafka and not request.node.get_closest_marker("chaos"):
        monkeypatch.setenv("FLEETLORE_FETCH_WAIT_MS", "50")


@pytest.fixture(autouse=True)
def defects_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "raises", True)


# Fixtures that take seconds: a worker waits for its partitions, Milvus has to listen, and a base model needs PyTorch.
LONG = {"base_folder", "broker_pipeline", "lone_pipeline", "milvus", "own_milvus", "prometheus", "start_worker"}
# Tests of the benchmarks, which are no part of fleetlore.
LABORATORY = Path(__file__).parent / "benchmarks"
# Folders whose tests all have one mark.
MARKED = {LABORATORY: "long", LABORATORY.parent / "chaos": "chaos", LABORATORY.parent / "cluster": "cluster"}
# These folders hold the files that take longest. They begin first, so no process is left alone with one at the end.
BEGIN_FIRST = ("security", "streams", "benchmarks")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a folder whose mark is left out: to import its modules, and PyTorch with them, takes seconds."""
    mark = MARKED.get(collection_path)
    if mark is None or f"not {mark}" not in config.option.markexpr:
        return None
    named = [config.invocation_params.dir / each.partition("::")[0] for each in config.args]
    return None if any(collection_path in (path, *path.parents) for path in named) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if LONG & set(getattr(item, "fixturenames", ())) or LABORATORY in item.path.parents:
            item.add_marker(pytest.mark.long)
    folders = {folder: place for place, folder in enumerate(BEGIN_FIRST)}
    items.sort(key=lambda item: folders.get(item.path.relative_to(LABORATORY.parent).parts[0], len(folders)))
    if config.getoption("--kafka"):
        other = pytest.mark.skip(reason="a test of the embedded broker")
        for item in items:
            if item.get_closest_marker("tansu"):
                item.add_marker(other)


def pytest_collectstart() -> None:
    """What is collected stays: to look through it for garbage takes each process seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


MakeTopics = Callable[..., Awaitable[None]]


def _require_tansu() -> None:
    try:
        embedded.broker_command(0)
    except StackError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker | KafkaBroker]:
    """One broker for the whole run; keep tests apart by `tenant`."""
    if request.config.getoption("--kafka"):
        java_command()  # says what is missing: who asks for Kafka is not served with a skip
        with KafkaCluster(tmp_path_factory.mktemp("kafka")) as cluster:
            yield cluster.brokers[0]
        return
    _require_tansu()
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker that the test may kill, pause and restart. A cluster that has not started."""
    _require_tansu()
    mine = EmbeddedBroker()
    yield mine
    mine.resume()
    mine.kill()


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def unused_address() -> str:
    """An address without a broker."""
    return f"127.0.0.1:{embedded.free_port()}"


@pytest.fixture
def make_topics() -> MakeTopics:
    """`await make_topics(address, tenant, "events", "patterns", partitions=4)`: create topics of a tenant."""

    async def make(address: str, tenant: str, *names: str, partitions: int = 4) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            # Records of adapters are in one order.
            counts = {name: 1 if name in ADAPTER_TOPICS else partitions for name in names}
            topics = [NewTopic(topic(tenant, name), count, 1) for name, count in counts.items()]
            await admin.create_topics(topics)
            while not {each.name for each in topics} <= set(await admin.list_topics()):
                await asyncio.sleep(0.01)
        finally:
            await admin.close()
            await asyncio.sleep(0)  # lets the closed transport's callbacks run before the loop ends

    return make


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[str]:
    """Bootstrap address of librdkafka's mock cluster: creates topics on demand, with four partitions."""
    pytest.importorskip("confluent_kafka", reason="the mock cluster is in the confluent-kafka wheel")
    with MockCluster(brokers=1) as cluster:
        yield cluster.address


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one Milvus Lite server for the whole run; keep tests apart by tenant."""
    with _milvus(tmp_path_factory.mktemp("milvus")) as address:
        yield address


@pytest.fixture(scope="session")
def spare_milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a second Milvus Lite server for the whole run. Use it through `own_milvus`."""
    folder = tmp_path_factory.mktemp("spare")
    with _milvus(folder) as address:
        yield address, folder


@pytest.fixture
def own_milvus(spare_milvus: tuple[str, Path]) -> str:
    """An empty Milvus Lite server whose collections the test may drop and rename. End its workers in the test."""
    with contextlib.closing(connect(spare_milvus[0], "", 30.0)) as client:
        for name in client.list_collections():
            client.drop_collection(name)
    return spare_milvus[0]


@pytest.fixture
def milvus_folder(own_milvus: str, spare_milvus: tuple[str, Path]) -> Path:
    """The folder in which `own_milvus` keeps its files."""
    return spare_milvus[1]


@contextlib.contextmanager
def _milvus(folder: Path) -> Iterator[str]:
    pytest.importorskip("milvus_lite", reason="Milvus Lite is in the extra [embedded]")
    port = embedded.free_port()
    # The supervisor ends it with the test run, however that ends.
    program = ["-m", "streams.embedded.milvus_server"]
    options = ["server", "--data-dir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, "-m", "streams.embedded.supervisor", sys.executable, *program, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            break
        assert server.poll() is None and time.monotonic() < deadline, f"Milvus Lite does not listen on port {port}"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(120)
    if server.stdin is not None:
        server.stdin.close()


# A trainer is of the lowest priority: on a busy machine it starts late, and takes more than a second to answer a
# scrape.
PATIENCE_SECONDS = 400.0
SCRAPE = "2s"


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Callable[[str], list[dict[str, Any]]]]]:
    """Start a real Prometheus on jobs `NAME=host:port`; get its query function once it has scraped all of them."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with contextlib.ExitStack() as stack:

        def start(**targets: str) -> Callable[[str], list[dict[str, Any]]]:
            return stack.enter_context(_prometheus(tmp_path_factory.mktemp("prometheus"), targets))

        yield start


@contextlib.contextmanager
def _prometheus(folder: Path, targets: dict[str, str]) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    jobs = [
        {
            "job_name": f"fleetlore-{name}",
            "scrape_interval": SCRAPE,
            "scrape_timeout": SCRAPE,
            "static_configs": [{"targets": [target]}],
        }
        for name, target in targets.items()
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
    address = f"127.0.0.1:{embedded.free_port()}"
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]

    def ask(expression: str) -> list[dict[str, Any]]:
        with urlopen(f"http://{address}/api/v1/query?query={quote(expression)}", timeout=120) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def scraped() -> bool:
        try:
            return len(ask("fleetlore_build_info")) == len(targets)
        except (URLError, ConnectionError):
            return False

    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not scraped():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            yield ask
        finally:
            process.terminate()
