"""Run `import` and `ingest otel`."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.relay import serve_here
from fleetlore.cli.shared import Asked, Joined, command, moment, print_json
from fleetlore.errors import BrokerUnavailable, ConfigError, extra
from fleetlore.transcripts.read import FORMS, Form, files_of, groups_of, read_files
from fleetlore.transcripts.session import SEEN, LoggedSession, timed_events
from fleetlore.wire import events as ev
from fleetlore.wire.events import MAX_EVENTS, Event, checked_name

if TYPE_CHECKING:
    from fleetlore.config import Settings
    from fleetlore.kafka.emitter import Emitter

# Importing so many bytes takes half a second, as starting a process does.
_PART_BYTES = 8_000_000
_FULL_SECONDS = 0.005


@command
def import_logs(
    asked: Asked,
    form: Annotated[Form, typer.Argument(help="Form of the logs.")],
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", exists=True, help="Files, or folders of them.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Agent of all sessions, in place of the log's.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Task of all sessions, in place of the log's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the contents; send nothing.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Seconds for the broker to take the rest.")
    ] = 60.0,
) -> None:
    """Send logged sessions through the pipeline.

    Events keep their logged times. Importing them again changes nothing.
    """
    if agent is not None:
        checked_name("agent", agent)
    _, endings = FORMS[form]
    files = files_of(paths, endings)
    started = time.monotonic()
    settings = None if dry_run else asked.settings
    size = sum(file.stat().st_size for file in files)
    named = {name: given for name, given in (("agent", agent), ("task", task)) if given}
    work = partial(_import, form, settings, asked.tenant, named, timeout)
    found = _import_in_parts(size, files, work)
    if not found.sessions:
        raise ConfigError(
            f"no session of the form `{form}` was found in {len(files)} files, and nothing was sent; "
            f"the forms are {', '.join(FORMS)}"
        )
    seconds = time.monotonic() - started
    if asked.json:
        counted = {name: getattr(found, name) for name in found.__slots__}
        print_json({**counted, "files": len(files), "bytes": size, "seconds": round(seconds, 3)})
        return
    _show(found, len(files), size, seconds, sent=not dry_run)


@dataclass(slots=True)
class _Found:
    sessions: int = 0
    events: int = 0
    calls: int = 0
    failed: int = 0
    messages: int = 0
    unanswered: int = 0
    unreadable: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    first: float = 0.0
    last: float = 0.0

    def add(self, session: LoggedSession, events: list[Event]) -> None:
        self.sessions += 1
        self.events += len(events)
        self.unanswered += session.unanswered
        self.outcomes[session.outcome] += 1
        for event in events:
            self.calls += event.kind == "outcome"
            self.failed += event.kind == "outcome" and ev.ERROR_MESSAGE in event.data
            self.messages += event.kind == "message"
        self.first = min(self.first or events[0].time, events[0].time)
        self.last = max(self.last, events[-1].time)

    def merge(self, other: _Found) -> None:
        for name in set(self.__slots__) - {"first", "last"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = min(self.first or other.first, other.first or self.first)
        self.last = max(self.last, other.last)


def _import_in_parts(size: int, files: list[Path], work: Callable[[list[Path]], _Found]) -> _Found:
    groups = groups_of(files)
    parts = min(os.cpu_count() or 1, len(groups), size // _PART_BYTES)
    if parts <= 1:
        return work(files)
    shares = [[file for group in groups[start::parts] for file in group] for start in range(parts)]
    with ProcessPoolExecutor(parts, mp_context=get_context("spawn")) as pool:
        first, *others = pool.map(work, shares)
    for other in others:
        first.merge(other)
    return first


def _import(
    form: Form, settings: Settings | None, tenant: str, named: dict[str, Any], seconds: float, files: list[Path]
) -> _Found:
    from fleetlore.kafka.emitter import Emitter
    from fleetlore.kafka.encode import personal_data_of

    send_to = partial(_send_sessions, read_files(form, files), tenant, named)

    async def send() -> _Found:
        if settings is None:
            return await send_to(None)
        emitter = Emitter(settings.cluster, tenant, personal=personal_data_of(settings.mask_personal))
        await emitter.start()
        try:
            found = await send_to(emitter)
            taken = await emitter.flush(seconds) and not emitter.dropped
            found.masked = emitter.masked
            if not taken:
                raise BrokerUnavailable(
                    f"broker {settings.broker} took {emitter.sent} of {found.events} events; import them again"
                )
            return found
        finally:
            await emitter.close(0.0)

    return asyncio.run(send())


async def _send_sessions(
    sessions: Iterable[LoggedSession | None], tenant: str, named: dict[str, Any], emitter: Emitter | None
) -> _Found:
    from fleetlore.kafka.encode import Encoded, encode, mask, masks_of

    found = _Found()
    looked_at: list[Encoded] = []
    for session in sessions:
        if session is None:
            found.unreadable += 1
            continue
        found.left_out += session.left_out
        if session.left_out and not session.events:
            found.unanswered += session.unanswered
            found.unreadable += session.left_out.keys() != {SEEN}
            continue
        events = list(timed_events(replace(session, **named), tenant, session.written, time.time()))
        found.add(session, events)
        if emitter is None:
            looked_at += map(encode, events)
            if len(looked_at) >= MAX_EVENTS:
                found.masked += masks_of(looked_at, mask(looked_at))
                looked_at.clear()
            continue
        for event in events:
            while emitter.full:
                await asyncio.sleep(_FULL_SECONDS)
            emitter.emit(event)
        await asyncio.sleep(0)  # let full batches be sent
    found.masked += masks_of(looked_at, mask(looked_at))
    return found


def _show(found: _Found, files: int, size: int, seconds: float, *, sent: bool) -> None:
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
    for reason, count in found.left_out.most_common():
        typer.echo(f"left out {count} times: {reason}")
    if sent:
        typer.echo(f"{found.events} events sent in {seconds:.1f} s ({size / 1e6 / seconds:.0f} MB/s)")


@command
def otel(
    joined: Joined, port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1.")] = 4318
) -> None:
    """Receive OpenTelemetry traces.

    It serves OTLP over HTTP (protobuf and JSON) until Ctrl-C.
    """
    of_fleet = joined.fleet()
    from fleetlore.agent.fleet import Fleet

    with extra("otel", "`ingest otel` needs"):
        from fleetlore.join.otlp import Traces, receiving_app

        import_module("starlette")

    async def receive() -> None:
        async with Fleet("otel", **of_fleet) as fleet:
            await serve_here(receiving_app(Traces(fleet)), port, "OTLP over HTTP at http://{}/v1/traces")

    asyncio.run(receive())
