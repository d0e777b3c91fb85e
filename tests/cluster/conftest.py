"""Fixtures of the tests on Apache Kafka, which all are of the marker `cluster`."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetlore.config import Settings
from streams.embedded.broker import KafkaMissing, java_command
from tests.cluster.kafka_cluster import KafkaCluster
from tests.cluster.secured import Secured, secured_cluster
from tests.streams.conftest import end, guarded, reference, start_worker, wait_ready, worker_environ

__all__ = ["reference", "start_worker"]

HERE = Path(__file__).parent
USERS = (
    *(
        f"fleetlore-{each}"
        for each in ("agent-a", "agent-ab", "agent-b", "reviewer-a", "author-a", "worker", "trainer", "operator")
    ),
    "nobody",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1_200))


@pytest.fixture(scope="session", autouse=True)
def kafka() -> None:
    """Skip where Apache Kafka cannot run."""
    try:
        java_command()
    except KafkaMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def three(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for the whole run, that no test may leave with one of them away; keep tests apart by `tenant`."""
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Three brokers with SASL_SSL, mTLS and ACLs; users are `root` and those of `USERS`."""
    made = secured_cluster(tmp_path_factory.mktemp("secured"), USERS)
    with made.cluster:
        yield made


@pytest.fixture
def start_ahead() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a worker, whose clock may be hours ahead."""
    running: list[subprocess.Popen[bytes]] = []

    def start(settings: Settings, clock_hours: int = 0) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "tests.streams.ahead_worker", str(clock_hours))
        running.append(guarded(*command, environ=worker_environ(settings)))
        wait_ready(f"http://127.0.0.1:{settings.metrics_port}", running[-1])
        return running[-1]

    yield start
    for each in running:
        end(each)
