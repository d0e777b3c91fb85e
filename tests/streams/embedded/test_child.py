"""Children of a stack: their ports, their logs, and their end together with a supervisor."""

import asyncio
import contextlib
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from streams.embedded.broker import free_port, held_port
from streams.embedded.child import Child
from streams.embedded.stack import Stack

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


@pytest.mark.long
async def test_a_role_that_ignores_the_signal_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    child = Child("deaf", (sys.executable, "-c", DEAF), tmp_path, stop_seconds=0.2)
    await child.start()
    while not (tmp_path / "deaf.log").read_text():
        await asyncio.sleep(0.01)
    (role,) = psutil.Process(child.pid).children()
    await child.stop()
    _, alive = psutil.wait_procs([role], timeout=120)
    assert not alive


async def ended(data: Path, says: str) -> str:
    (data / "logs").mkdir()
    (data / "kafka").mkdir()
    child = Child("broker", (sys.executable, "-c", f"print({says!r}); raise SystemExit(1)"), data / "logs")
    await child.start()
    return str(child.failure(await child.ended()))


async def test_a_full_disk_is_named_by_its_folder_and_not_by_the_trace_of_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=4096 if folder.name == "kafka" else 1 << 30)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    said = await ended(tmp_path, "Shutdown broker because all log dirs in /x have failed")
    assert f"the disk of {tmp_path / 'kafka'} is full (4 KiB free)" in said and "log dirs" not in said
    assert "acknowledged" in said and f"`fleetlore up --data {tmp_path}`" in said


NO_ROOM = "java.io.IOException: No space left on device\n" + "  at org.apache.kafka.X.y(X.java:1)\n" * 100


@pytest.mark.parametrize(("trace", "said"), [(NO_ROOM, "is full"), ("one\n\ntwo", "says: one | two")])
async def test_a_role_that_ends_is_reported_by_its_last_lines(tmp_path: Path, trace: str, said: str) -> None:
    assert said in await ended(tmp_path, trace)


@pytest.mark.parametrize(
    "line", ["bind: Address already in use.", "[Errno 98] address already in use", 'Os { message: "Address in use" }']
)
async def test_a_taken_port_is_reported_at_once_and_not_after_restarts(tmp_path: Path, line: str) -> None:
    (tmp_path / "logs").mkdir()
    stack = Stack(tmp_path, trainer=False)
    program = f"print({line!r}); print('  at X.java:1\\n' * 99); raise SystemExit(1)"
    broker = Child("broker", (sys.executable, "-c", program), tmp_path / "logs")
    await broker.start()
    await stack._watch(broker, restarts=10)
    shown = str(stack._failed.result())
    assert shown.startswith("broker cannot listen, because another process took its port; the data is safe.")
    assert f"`fleetlore up --data {tmp_path}` again" in shown and shown.endswith(f"broker.log says: {line}")


def test_what_it_is_started_with_is_in_no_message(tmp_path: Path) -> None:
    assert "s3cret" not in repr(Child("worker-0", ["true"], tmp_path, {"FLEETLORE_LLM_KEY": "s3cret"}))


TALKS = "import itertools, time\nfor line in itertools.count(): print(line, flush=True); time.sleep(0.001)"


@pytest.mark.long
async def test_a_log_is_bounded_while_the_role_goes_on(tmp_path: Path) -> None:
    child = Child("talks", (sys.executable, "-c", TALKS), tmp_path, most_log_bytes=1_000)
    now, before = tmp_path / "talks.log", tmp_path / "talks.log.1"
    await child.start()
    for _ in range(3):
        while now.stat().st_size <= 1_000:
            child.cut_log()
            await asyncio.sleep(0.01)
        (role,) = psutil.Process(child.pid).children()
        role.suspend()  # between the cut and the look at it nothing is written
        while role.status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        child.cut_log()
        assert now.stat().st_size < 1_000 < before.stat().st_size
        assert before.stat().st_mode & 0o077 == 0
        role.resume()
    while not now.stat().st_size:
        await asyncio.sleep(0.01)
    await child.stop()
    assert b"\0" not in now.read_bytes(), "it goes on at the beginning"
    assert int(now.read_text().split()[-1]) > int(before.read_text().split()[-1])


@pytest.mark.parametrize(
    ("written", "said"), [(None, "nothing"), (b"x" * 100_000 + b"\nno room left\n", "no room left")]
)
def test_its_last_words_are_few_whatever_became_of_its_log(tmp_path: Path, written: bytes | None, said: str) -> None:
    if written is not None:
        (tmp_path / "broker.log").write_bytes(written)
    failure = str(Child("broker", ["true"], tmp_path).failure(1))
    assert said in failure and len(failure) < 20_000


@pytest.mark.parametrize("gone", ["lore", "lore/logs"])
async def test_a_role_that_cannot_be_started_again_fails_the_stack(tmp_path: Path, gone: str) -> None:
    """A dead worker is restarted even if the folder of its log was deleted, or the whole folder of the stack."""
    logs = tmp_path / "lore" / "logs"
    logs.mkdir(parents=True)
    stack = Stack(logs.parent, trainer=False)
    worker = Child("worker-0", ["true"], logs)
    await worker.start()
    shutil.rmtree(tmp_path / gone)
    await stack._watch(worker, restarts=3)
    assert "worker-0 cannot be started again" in str(stack._failed.result())


async def test_a_stack_ends_that_is_not_watched_any_more(tmp_path: Path) -> None:
    async def fails() -> None:
        raise ZeroDivisionError("a defect")

    stack = Stack(tmp_path, trainer=False)
    stack._keep_watching(fails())
    assert "not watched any more: ZeroDivisionError('a defect')" in str(await stack.failed())


def test_the_preferred_port_is_taken_if_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert free_port(taken) not in (0, taken)
        with socket.create_connection(("127.0.0.1", taken)):
            server.accept()[0].close()  # the side that closes first keeps the port for a while
    assert free_port(taken) == taken


def test_two_that_start_at_once_take_different_ports() -> None:
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        stack.callback(lambda: [each.close() for each in held])
        wanted = free_port()
        assert held_port(wanted, held) == wanted
        assert held_port(wanted, held) not in (0, wanted), "nothing listens yet on the port that the first one took"
        held.pop().close()
        assert held_port(wanted, held) == wanted
