"""Run `import` and `ingest otel`: logs and traces become events, as if their agents had joined the fleet."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from enum import StrEnum
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.mcp import serve_http
from fleetlore.cli.options import Broker, Data, Json, Tenant, connection
from fleetlore.cli.output import moment, print_json
from fleetlore.config import check_tenant
from fleetlore.errors import BrokerUnavailable, ModelUnavailable
from fleetlore.transcripts.read import FORMS, files_of, read_files

if TYPE_CHECKING:
    from fleetlore.config import Settings
    from fleetlore.transcripts.send import Found

# A process of its own takes half a second to start; so much takes as long to import.
_PART_BYTES = 8_000_000

_FormName = StrEnum("_FormName", {name.replace("-", "_"): name for name in FORMS})  # type: ignore[misc]


def register(app: typer.Typer) -> None:
    app.command("import")(import_logs)
    ingest = typer.Typer(no_args_is_help=True, help="Receive what agents are observed by.")
    ingest.command()(otel)
    app.add_typer(ingest, name="ingest")


def import_logs(
    form: Annotated[_FormName, typer.Argument(help="Form of the logs.")],
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", exists=True, help="Files, or folders of them.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Agent of all sessions, in place of the log's.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Task of all sessions, in place of the log's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is found; send nothing.")] = False,
    broker: Broker = None,
    data: Data = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant that the events are sent for.")] = "default",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Seconds for the broker to take the rest.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """Send logged sessions through the pipeline.

    At their own times; importing them again changes nothing.
    """
    from fleetlore.wire.events import checked_name

    if agent is not None:
        checked_name("agent", agent)
    check_tenant(tenant)
    _, endings = FORMS[form.value]
    files = files_of(paths, endings)
    started = time.monotonic()
    settings = None if dry_run else connection(broker, data)
    size = sum(file.stat().st_size for file in files)
    found = _import_in_parts(size, files, partial(_import, form.value, settings, tenant, agent, task, timeout))
    seconds = time.monotonic() - started
    if json:
        counted = {name: getattr(found, name) for name in found.__slots__}
        print_json({**counted, "files": len(files), "bytes": size, "seconds": round(seconds, 3)})
        return
    _show(found, len(files), size, seconds, sent=not dry_run)


def _import_in_parts(size: int, files: list[Path], work: Callable[[list[Path]], Found]) -> Found:
    """Have `work` done on parts of the files, each in a process, where they are large enough for several.

    Sessions do not depend on each other: what becomes of them is the same in any order.
    """
    parts = min(os.cpu_count() or 1, len(files), size // _PART_BYTES)
    if parts <= 1:
        return work(files)
    shares = [files[start::parts] for start in range(parts)]
    with ProcessPoolExecutor(parts, mp_context=get_context("spawn")) as pool:
        first, *others = pool.map(work, shares)
    for other in others:
        first.merge(other)
    return first


def _import(
    form: str,
    settings: Settings | None,
    tenant: str,
    agent: str | None,
    task: str | None,
    timeout: float,
    files: list[Path],
) -> Found:
    return asyncio.run(_send(form, settings, tenant, agent, task, timeout, files))


async def _send(
    form: str,
    settings: Settings | None,
    tenant: str,
    agent: str | None,
    task: str | None,
    timeout: float,
    files: list[Path],
) -> Found:
    from fleetlore.emit.emitter import Emitter
    from fleetlore.emit.encode import personal_data_of
    from fleetlore.transcripts.send import send

    sessions, now = read_files(form, files), time.time()
    if settings is None:
        return await send(sessions, None, tenant, end_time=now, agent=agent, task=task)
    emitter = Emitter(settings.cluster, tenant, personal=personal_data_of(settings.mask_personal))
    await emitter.start()
    try:
        found = await send(sessions, emitter, tenant, end_time=now, agent=agent, task=task)
        taken = await emitter.flush(timeout) and not emitter.dropped
        found.masked = emitter.masked
        if not taken:
            raise BrokerUnavailable(
                f"broker {settings.broker} took {emitter.sent} of {found.events} events; import them again"
            )
        return found
    finally:
        await emitter.close(0.0)


def _show(found: Found, files: int, size: int, seconds: float, *, sent: bool) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(found.outcomes.items()))
    masked = ", ".join(f"{count} {name}" for name, count in found.masked.most_common())
    typer.echo(f"{found.sessions} sessions in {files} files ({size / 1e6:.1f} MB): {outcomes or 'none'}")
    typer.echo(f"{found.calls} calls, {found.failed} failed; {found.messages} messages")
    if found.first:
        typer.echo(f"from {moment(found.first)} to {moment(found.last)} (UTC)")
    typer.echo(f"masked: {masked or 'nothing'}")
    if found.unanswered:
        typer.echo(f"{found.unanswered} calls have no result in the log and are left out")
    if found.unreadable:
        typer.echo(f"{found.unreadable} parts hold no session and are left out")
    if sent:
        typer.echo(f"{found.events} events sent in {seconds:.1f} s ({size / 1e6 / seconds:.0f} MB/s)")


def otel(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1.")] = 4318,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", min=1, max=65535, help="Take OTLP over gRPC too; usual is 4317.")
    ] = None,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
) -> None:
    """Receive OpenTelemetry traces.

    OTLP over HTTP, protobuf and JSON, and over gRPC where asked for, until Ctrl-C.
    """
    connection(broker, data, unknown_refused=False)
    from fleetlore.agent.fleet import Fleet

    try:
        from fleetlore.join.otlp import Traces, receiving_app, serving

        if grpc_port is not None:
            import_module("grpc")
    except ImportError as error:
        extra = "otel-grpc" if error.name == "grpc" else "otel"
        raise ModelUnavailable(f"`ingest otel` needs {error.name}: pip install 'fleetlore[{extra}]'") from None

    async def receive() -> None:
        async with Fleet("otel", broker=broker, data=data, tenant=tenant) as fleet, AsyncExitStack() as stack:
            traces = Traces(fleet)
            if grpc_port is not None:
                await stack.enter_async_context(serving(traces, f"127.0.0.1:{grpc_port}"))
            await serve_http(receiving_app(traces), port)

    asyncio.run(receive())
