"""The embedded stack as a user runs it: real processes, really killed."""

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from benchmarks.replay import ReplayReport, interleave, replay
from benchmarks.rollouts import logged, rollouts
from fleetlore.cluster import STACK_FILE
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError, StackError
from fleetlore.transcripts.session import LoggedSession
from streams.commands.run import _up
from streams.embedded import stack as stack_module
from streams.embedded.stack import Stack
from streams.runtime import lifecycle
from tests.streams.broker_pipeline import Reference

Query = Callable[[str], list[dict[str, Any]]]
END_TIME = 1_760_000_000.0  # before the start of the clock that the reference runs by


def world_sessions(count: int) -> list[LoggedSession]:
    """Sessions of random agents in the tool world, as they would lie in a log."""
    return list(map(logged, rollouts(5, count)))


async def run(stack: Stack, sessions: list[LoggedSession], seed: int) -> ReplayReport:
    return await replay(sessions, stack.settings, tenant="default", seed=seed, timeout_seconds=240)


async def test_what_is_known_does_not_follow_from_the_time_between_two_calls(reference: Reference) -> None:
    """Interleaved otherwise, a call and the same call again lie a second apart, or less."""
    sessions = world_sessions(24)
    orders = [list(interleave(sessions, "default", seed, END_TIME)) for seed in (1, 9)]
    orders = [[each._replace(time=END_TIME - 10 * (END_TIME - each.time)) for each in order] for order in orders]
    first, second = [(await reference("default", order)).state_hash for order in orders]
    assert first == second


@pytest.mark.timeout(900)
async def test_prometheus_scrapes_worker_and_trainer(tmp_path: Path, prometheus: Callable[..., Query]) -> None:
    async with Stack(tmp_path) as stack:
        await run(stack, world_sessions(20), seed=1)
        targets = {name.partition("-")[0]: url.removeprefix("http://") for name, url in stack.metrics.items()}
        query = await asyncio.to_thread(prometheus, **targets)

        def figures(expression: str) -> dict[str, float]:
            return {row["metric"]["job"]: float(row["value"][1]) for row in query(expression)}

        # The trainer has the lowest priority: a two-hundredth of a core on a busy machine. A scrape that comes while
        # it starts may miss, and then its figures are unknown for a while.
        async with asyncio.timeout(800):
            while figures('fleetlore_trainer_sessions_total{adapter="calls"}').get("fleetlore-trainer") != 20:
                await asyncio.sleep(0.2)
        judged = figures('sum by (job) (fleetlore_processed_events_total{stage="judgments"})')
        assert judged["fleetlore-worker"] == 20
        assert figures("sum by (job) (fleetlore_sink_rows_total)")["fleetlore-worker"] > 20


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_stack(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "fleetlore.cli.main", "up", "--data", str(data), "--no-trainer"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stack:
        assert stack.stderr is not None
        said = []
        for line in stack.stderr:
            said.append(line)
            if "Ctrl-C" in line:
                break
        assert "Ctrl-C" in said[-1], said  # else it has ended
        settings = Settings.from_data_dir(data)
        tree = psutil.Process(stack.pid)
        for _ in range(2_000):  # the page comes last
            if len(children := tree.children(recursive=True)) >= 8:
                break
            signal.sigtimedwait([], 0.1)
        stack.send_signal(number)
        code = stack.wait(120)
    assert f'agents join with Fleet("my-agent", data="{data}")\n' in said
    assert settings.broker
    worker_log = (data / "logs" / "worker-0.log").read_bytes()
    assert b" UTC: worker of fleetlore " in worker_log and b"\x1b" not in worker_log
    assert len(children) == 8  # broker, Milvus, worker and console, each under a supervisor
    assert code == (0 if number == signal.SIGINT else -signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=200)
    assert not alive
    if number == signal.SIGINT:
        with pytest.raises(ConfigError, match="no stack runs"):
            Settings.from_data_dir(data)


async def test_a_signal_does_not_cut_the_stop_of_a_stack_that_failed_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals, stopped = list[Callable[[], object]](), list[Stack]()

    class Failing(Stack):
        async def __aenter__(self) -> Self:
            self._fail(StackError("the broker is gone"))
            return self

        async def stop(self) -> None:
            signals[0]()
            await asyncio.sleep(0)
            await super().stop()
            stopped.append(self)

    monkeypatch.setattr(stack_module, "Stack", Failing)
    monkeypatch.setattr(lifecycle, "at_first_signal", lambda loop, stop, seconds: signals.append(stop))
    with pytest.raises(StackError, match="the broker is gone"):
        await _up(tmp_path, 1, ("default",), False, False, "", "")
    assert len(stopped) == 1


async def test_one_stack_on_a_folder(tmp_path: Path) -> None:
    first = Stack(tmp_path)
    first._lock_folder()
    with pytest.raises(StackError, match="another stack runs"):
        async with Stack(tmp_path):
            pass
    first._write_stack_file()
    with pytest.raises(StackError, match=rf"broker {first.settings.broker}, process {os.getpid()}$"):
        async with Stack(tmp_path):
            pass
    await first.stop()


async def test_a_stack_stops_where_its_folder_lets_no_file_be_removed(tmp_path: Path) -> None:
    (tmp_path / STACK_FILE).mkdir()  # cannot be removed as a file, as on a file system that became read-only
    for _ in range(2):
        stack = Stack(tmp_path)
        stack._lock_folder()
        await stack.stop()


async def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot be used"):
        async with Stack(tmp_path / "file"):
            pass


@pytest.mark.parametrize("name", ["logs", "keys"])
async def test_a_part_of_the_folder_that_cannot_be_used_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(StackError, match=f"cannot start on {tmp_path}: .*{name}"):
        async with Stack(tmp_path):
            pass


async def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StackError, match=f"cannot listen on {address} .* --http"):
            async with Stack(tmp_path, http=address):
                pass
    assert not (tmp_path / "logs").exists()


async def test_a_slow_broker_is_asked_again_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    stack = Stack(tmp_path, progress=lambda line, whole: lines.append(line) if whole else None)
    told = asyncio.Event()

    async def ask() -> list[str]:
        if not told.is_set():
            raise BrokerUnavailable("no answer")
        return []

    monkeypatch.setattr(stack_module, "_TELL_SECONDS", 0)
    telling = asyncio.create_task(stack._tell())
    asking = asyncio.create_task(stack._until("the broker", ask, "it does not answer"))
    while not lines:
        await asyncio.sleep(0)
    telling.cancel()
    told.set()
    await asking
    assert "still waiting for the broker (0 s" in lines[-1]
    told.clear()
    monkeypatch.setattr(stack_module, "_READY_SECONDS", 0)
    with pytest.raises(StackError, match=r"it does not answer: no answer \(waited"):
        await stack._until("the broker", ask, "it does not answer")


async def test_a_port_that_another_server_took_since_it_was_chosen(tmp_path: Path) -> None:
    stack = Stack(tmp_path, trainer=False)
    port = stack._ports["broker"]
    refusal = pytest.raises(StackError, match=f"broker cannot listen.*Port {port} was free")
    with socket.create_server(("127.0.0.1", port)), refusal:
        async with stack:
            pass


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_port_that_is_taken_while_the_broker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """The foreign server refuses Kafka's clients, or never answers them."""

    async def ask(restored: Path) -> None:
        if refuses:
            raise BrokerUnavailable("no Kafka broker")
        await asyncio.Event().wait()

    stack = Stack(tmp_path, trainer=False)
    monkeypatch.setattr(stack, "_make_topics", ask)
    monkeypatch.setattr(stack, "_launch_store", lambda *child, **options: stack._launch(*child, **options))
    refusal = pytest.raises(StackError, match=r"broker cannot listen.*in use")
    with socket.create_server(("127.0.0.1", stack._ports["broker"])), refusal:
        async with stack:
            pass
    assert not stack.children


@pytest.mark.long
async def test_a_broker_in_memory_that_was_killed_ends_the_stack(tmp_path: Path) -> None:
    async with Stack(tmp_path, trainer=False) as stack:
        supervisor = next(child for child in stack.children if child.name == "broker").pid
        (broker,) = psutil.Process(supervisor).children()
        broker.kill()
        assert "broker ended with exit code 137" in str(await stack.failed())


@pytest.mark.parametrize("part", ["sinks.collections", "fleetlore.fingerprint.fingerprint", "fleetlore_encoder"])
def test_a_release_with_another_schema_version_of_patterns_or_encoder_looks_at_the_folder_again(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code.py"
    code.write_text("VERSION = 1\n")
    find_spec = importlib.util.find_spec
    moved = importlib.util.spec_from_file_location(part, code)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: moved if name == part else find_spec(name))
    before = stack_module._collections_digest(tmp_path)
    code.write_text("VERSION = 10\n")
    assert stack_module._collections_digest(tmp_path) != before
