"""Import generated chat transcripts into a broker of their own: `python -m benchmarks.imports`.

The limit is one core that does nothing but `orjson.loads` on the same bytes. By the clock an import is as fast as the
cores that it gets. So the row shows how much of them other processes took. Memory is that of the largest process, for a
quarter of the transcripts and for all of them.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import orjson
import psutil
import typer

from benchmarks.command import command_app
from benchmarks.cpu import cores, cpu_by_role
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.traffic import publish
from fleetlore.errors import StackError

BAR = 20.0
# One file a core at the least, so that all of them can work.
FILES = 8
BODIES = 500
CALLS = 5
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Imported:
    """One import: seconds by the clock, of its CPU and the broker's, and of all other processes; MB of memory."""

    megabytes: float
    events: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float
    others_cpu_seconds: float
    memory_megabytes: float


def imports(
    megabytes: Annotated[int, typer.Option(min=1, help="Of transcripts.")] = 1000,
    json: Annotated[bool, typer.Option("--json", help="End with one JSON line.")] = False,
) -> None:
    """Print MB/s by the clock and per CPU second."""
    with tempfile.TemporaryDirectory(prefix="transcripts-") as folder:
        quarter, whole = Path(folder) / "quarter", Path(folder) / "whole"
        _write(quarter, megabytes / 4)
        _write(whole, megabytes)
        limit = _parsing_alone(quarter)
        part, done = _imported(quarter), _imported(whole)
    rate = done.megabytes / done.seconds
    others = done.others_cpu_seconds / done.seconds
    typer.echo(f"{limit:7.1f} MB/s  orjson.loads alone, one core")
    typer.echo(f"{rate:7.1f} MB/s  by the clock, bar {BAR:.0f}: {'met' if rate >= BAR else 'MISSED'}")
    typer.echo(f"{done.megabytes / done.cpu_seconds:7.1f} MB  a CPU second of the import")
    typer.echo(f"{1e3 * done.broker_cpu_seconds / done.megabytes:7.1f} ms  of the broker's CPU a MB")
    typer.echo(f"{others:7.1f} of {cores()} cores were taken by other processes meanwhile")
    typer.echo(f"{part.memory_megabytes:7.1f} MB  of memory for {part.megabytes:.0f} MB, ", nl=False)
    typer.echo(f"{done.memory_megabytes:.1f} for {done.megabytes:.0f}")
    if json:
        typer.echo(orjson.dumps({"orjson": limit, "quarter": asdict(part), "whole": asdict(done)}).decode())


def _write(folder: Path, megabytes: float) -> None:
    folder.mkdir()
    random = Random(0)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9))) for _ in range(2000)]
    bodies = [orjson.dumps(_messages(random, words)) for _ in range(BODIES)]
    session = 0
    for number in range(FILES):
        size = 0
        with (folder / f"{number}.jsonl").open("wb") as file:
            while size < megabytes * 1e6 / FILES:
                size += file.write(
                    b'{"id":"s%d","agent":"a%d","task":"t%d","reward":%d,"messages":%b}\n'
                    % (session, session % 50, session % 200, session % 2, bodies[session % BODIES])
                )
                session += 1


def _messages(random: Random, words: list[str]) -> list[dict[str, object]]:
    def said(count: int) -> str:
        return " ".join(random.choices(words, k=count))

    messages: list[dict[str, object]] = [{"role": "system", "content": said(60)}, {"role": "user", "content": said(30)}]
    for number in range(CALLS):
        function = {"name": random.choice(("sql", "shell", "search")), "arguments": f'{{"query":"{said(8)}"}}'}
        result = said(40) if random.random() < 0.8 else f"OperationalError: no such table: {said(1)}"
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": said(15), "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return messages


def _parsing_alone(folder: Path) -> float:
    """MB a CPU second."""
    size, began = 0, time.process_time()
    for path in folder.iterdir():
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)
                size += len(line)
    return size / 1e6 / (time.process_time() - began)


def _imported(folder: Path) -> Imported:
    with EmbeddedBroker() as broker:  # a new broker, because it keeps everything in memory
        publish(broker.address, [])
        command = [sys.executable, "-m", "fleetlore.cli.main", "import", "messages", str(folder), "--json"]
        busy, brokers = _busy_seconds(), cpu_by_role()["broker"]
        cpu, most = _cpu_of_children(), 0
        process = subprocess.Popen([*command, "--broker", broker.address], stdout=subprocess.PIPE, text=True)
        while process.poll() is None:
            most = max(most, _memory_of(process.pid))
            time.sleep(POLL_SECONDS)
        cpu = _cpu_of_children() - cpu
        said, _ = process.communicate()
        if process.returncode:
            raise StackError(f"`fleetlore import` ended with {process.returncode}")
        busy, brokers = _busy_seconds() - busy, cpu_by_role()["broker"] - brokers
    found = orjson.loads(said)
    return Imported(
        megabytes=found["bytes"] / 1e6,
        events=found["events"],
        seconds=found["seconds"],
        cpu_seconds=cpu,
        broker_cpu_seconds=brokers,
        others_cpu_seconds=max(0.0, busy - cpu - brokers),
        memory_megabytes=most / 1e6,
    )


def _cpu_of_children() -> float:
    """Seconds of those that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_of(pid: int) -> int:
    """Bytes of the largest process of a family; not what the kernel keeps, which counts the parent before `exec`."""
    sizes = [0]
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                sizes.append(each.memory_info().rss)
    return max(sizes)


def _busy_seconds() -> float:
    """CPU seconds of all processes of the machine so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


app = command_app(imports)

if __name__ == "__main__":
    app()
