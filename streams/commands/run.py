"""Run `up`, `worker`, `trainer` and `doctor`. Each is an entry point (see `fleetlore.cli.main`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.relay import address
from fleetlore.cli.shared import Broker, Json, Milvus, Stack, ask, command, folder, moment, print_json, print_table
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.loopback import is_loopback

if TYPE_CHECKING:
    from streams.embedded.stack import Stack as Embedded

__all__ = ["register_doctor"]

TO_BE_SEEN_TO = 3
# Seconds for the stack to end before its processes are killed: two groups with 30 s each.
_STOP_SECONDS = 60.0
# `up` warns below this: Milvus needs tens of MiB at start.
_LITTLE_SPACE_BYTES = 500 * 2**20

_Tenants = Annotated[list[str] | None, typer.Option("--tenant", help="Tenant to serve; repeat for several.")]
_MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65_535, help="Port of the metrics endpoint; 0 picks a free one.")
]

_Policy = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="Also train a LoRA of this language model of the agents: a folder, or a name on the hub. Needs the extra "
        "`policy` and FLEETLORE_WEIGHTS_STORAGE.",
    ),
]


def _settings(broker: str | None, milvus: str | None, tenants: list[str] | None, metrics_port: int | None) -> Settings:
    return Settings.from_env(
        broker=broker, milvus=milvus, tenants=tuple(tenants) if tenants else None, metrics_port=metrics_port
    )


async def _reach(settings: Settings) -> None:
    """Raise BrokerUnavailable now, because Faust would print a traceback."""
    from fleetlore.kafka.read import observer

    async with observer(settings.cluster):
        pass


def _say_start(role: str, settings: Settings) -> None:
    from sinks.health_endpoint import package_version

    served = ", ".join(settings.tenants[:5]) + (", ..." if len(settings.tenants) > 5 else "")
    typer.echo(
        f"{moment(time.time())} UTC: {role} of fleetlore {package_version()} serves {served}; "
        f"broker {settings.cluster}, process {os.getpid()}",
        err=True,
    )


@command
def worker(
    broker: Broker = None, milvus: Milvus = None, tenant: _Tenants = None, metrics_port: _MetricsPort = None
) -> None:
    """Run one worker with all stages of the pipeline.

    It runs until SIGTERM.
    """
    settings = _settings(broker, milvus, tenant, metrics_port)
    asyncio.run(_reach(settings))
    _say_start("worker", settings)
    from streams.runtime.worker import run_worker

    run_worker(settings)


@command
def trainer(
    broker: Broker = None, tenant: _Tenants = None, metrics_port: _MetricsPort = None, policy: _Policy = ""
) -> None:
    """Train adapters from judged sessions and publish versions.

    Versions are signed. It runs until SIGTERM.
    """
    settings = _settings(broker, None, tenant, metrics_port)
    _say_start("trainer", settings)
    from streams.runtime.lifecycle import at_first_signal, leave
    from streams.training.trainer import run_trainer

    async def train() -> None:
        training = asyncio.create_task(run_trainer(settings, policy=policy))
        at_first_signal(asyncio.get_running_loop(), training.cancel, settings.drain_seconds)
        with contextlib.suppress(asyncio.CancelledError):
            await training
        leave(0)  # closing the loop would wait for an abandoned update

    asyncio.run(train())


@command
def doctor(stack: Stack, json: Json = False) -> None:
    """Check what fleetlore runs on, and say what to do.

    Each line is a check: broker, topics, replicas, clock, lag, Milvus, keys and, with --data, the roles.

    Exit code: 0 if all checks pass, 3 if one needs attention, 1 if one is broken.
    """
    settings = stack.settings
    from fleetlore.cluster import roles_of
    from streams.offline.doctor import examine

    found = ask(examine(settings, roles=roles_of(stack.data) if stack.data is not None else None))
    if json:
        print_json([asdict(each) for each in found])
    else:
        columns = ["CHECK", "STATE", "~FOUND", "~TO DO"]
        print_table(columns, [(each.check, each.state, each.said, each.todo or "-") for each in found])
    states = {each.state for each in found}
    raise typer.Exit(1 if "broken" in states else TO_BE_SEEN_TO if "look" in states else 0)


@command
def up(
    data: Annotated[Path, typer.Option(metavar="DIR", parser=folder, help="Folder of the stack; created if missing.")],
    workers: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 1,
    tenant: _Tenants = None,
    trainer: Annotated[bool, typer.Option(help="Also train adapters.")] = True,
    console: Annotated[bool, typer.Option(help="Also serve the page of `fleetlore console`.")] = True,
    http: Annotated[str, typer.Option(metavar="HOST:PORT", help="Also run a relay there, for agents over HTTP.")] = "",
    policy: _Policy = "",
) -> None:
    """Run broker, Milvus, workers, trainer and page on one folder.

    It runs until Ctrl-C. The folder keeps the event log and all lore.
    """
    if http:
        address(http)
    asyncio.run(_up(data, workers, tuple(tenant or (DEFAULT_TENANT,)), trainer, console, http, policy))


def _adding(function: Callable[..., None]) -> Callable[[typer.Typer], None]:
    def register(app: typer.Typer) -> None:
        app.command()(function)

    return register


register_worker, register_trainer, register_up = _adding(worker), _adding(trainer), _adding(up)
register_doctor = _adding(doctor)


async def _up(
    data: Path, workers: int, tenants: tuple[str, ...], trainer: bool, page: bool, http: str, policy: str
) -> None:
    from rich.console import Console

    from streams.commands.console import DEFAULT_PORT as CONSOLE_PORT
    from streams.embedded.broker import DEFAULT_PORT
    from streams.embedded.stack import Stack as Embedded
    from streams.runtime.lifecycle import at_first_signal

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    status = console.status("starting")

    def show(line: str, whole: bool) -> None:
        if console.is_terminal:
            status.update(line)
        elif whole:
            console.print(line, markup=False)

    stack = Embedded(
        data, workers=workers, trainer=trainer, keep_log=True, tenants=tenants, http=http, policy=policy,
        console_port=CONSOLE_PORT if page else None, broker_port=DEFAULT_PORT, progress=show,
    )  # fmt: skip
    running, failure = asyncio.current_task(), None
    assert running is not None
    # A stack that failed stops already.
    at_first_signal(asyncio.get_running_loop(), lambda: failure or running.cancel(), _STOP_SECONDS)
    with contextlib.suppress(asyncio.CancelledError):
        with status if console.is_terminal else contextlib.nullcontext():
            await stack.__aenter__()
        try:
            for line in _greeting(stack, data, tenants, http):
                console.print(line, markup=False)
            failure = await stack.failed()
        finally:
            await stack.stop()
            stays = (
                "log and lore stay" if stack.keeps_log else "the event log was in memory and is gone; the lore stays"
            )
            console.print(f"stopped; {stays} in {data}", markup=False)
    if failure is not None:
        raise failure


def _greeting(stack: Embedded, data: Path, tenants: tuple[str, ...], http: str) -> Iterator[str]:
    yield f"broker {stack.settings.cluster} · milvus {stack.settings.milvus} · addresses in {data}/stack.json"
    yield from (f"{name} metrics {url}/metrics" for name, url in stack.metrics.items())
    if stack.console:
        yield f"console {stack.console}"
    if http:
        here = is_loopback(http.rpartition(":")[0].strip("[]"))
        how = "each line is TOKEN AGENT TENANT: add one for each agent, as agents that share a token are one agent"
        tokens = "" if here else f"; tokens for its agents are in {data}/tokens ({how})"
        yield f"relay http://{http}{tokens}"
    tenant = "" if DEFAULT_TENANT in tenants else f", tenant={tenants[0]!r}"
    yield f'agents join with Fleet("my-agent", data={json.dumps(str(data))}{tenant})'
    if stack.settings.quorum == 1:
        yield "one owner: what one agent used in a call that worked is shown to the others (FLEETLORE_QUORUM=1)"
    if (free := shutil.disk_usage(data).free) < _LITTLE_SPACE_BYTES:
        yield f"only {free // 2**20} MiB are free on the disk of {data}: where none is left, the stack stops"
    yield "Ctrl-C stops it."
