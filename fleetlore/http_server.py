"""Serve an ASGI application over HTTP, and bound clients' open connections and bytes, each and in total.

uvicorn waits for headers and bodies without limit. Here the largest client loses its oldest connection with an
unfinished request.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Literal

import h11
import orjson
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetlore.errors import ConfigError
from fleetlore.limits import refused
from fleetlore.loopback import Application, Message, Receive, Send

__all__ = ["PROBLEM", "Listener", "listen", "serve_http"]

_MAX_FILES = 65_536
# Connections that the event loop accepts in one go.
BACKLOG = 128
# Connections in the kernel's queue.
_QUEUE = 2048
_OTHER_FILES = 64
_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class HttpLimits:
    connections: int = 4096
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    held_bytes: int = 128 * 1024 * 1024
    request_bytes: int = 65 * 1024 * 1024

    def within_open_files(self) -> HttpLimits:
        """Raise the process' limit of open files, and lower `connections` to fit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        # The gateway opens a second connection, to the provider.
        return replace(self, connections=min(self.connections, (files - 2 * BACKLOG - _OTHER_FILES) // 2))


class Listener(socket.socket):
    gate: Gate

    def listen(self, backlog: int = _QUEUE, /) -> None:
        """The event loop would shorten the queue to its own batch size."""
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(BACKLOG):
            accepted, address = super().accept()
            slot = Slot(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
            slot.client = _client(self.family, address)
            if self.gate.admit(slot):
                return slot, address
            slot.close()
        raise BlockingIOError  # the event loop asks again


class Slot(socket.socket):
    client: str
    gate: Gate | None = None
    held = 0
    end: Callable[[HTTPStatus, str, str], None] | None = None
    timer: asyncio.TimerHandle | None = None

    def refuse(self, status: HTTPStatus, reason: str, detail: str) -> None:
        if self.end is not None:
            return self.end(status, reason, detail)
        refused(reason, detail)
        self.forget()
        with suppress(OSError):  # the client closed first
            self.shutdown(socket.SHUT_RDWR)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def forget(self) -> None:
        self.stop_timer()
        if self.gate is not None:
            self.gate.leave(self)
            self.gate = None

    def close(self) -> None:
        self.forget()
        super().close()


class _Budget:
    """A bound; one client may use `_SHARE` of it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.used: Counter[str] = Counter()

    def add(self, client: str, count: int) -> None:
        self.total += count
        self.used[client] += count
        if not self.used[client]:
            del self.used[client]

    def exceeded_by(self, client: str, more: int = 0) -> str | None:
        """Return the client that must give way before `client` uses `more`, or None."""
        if self.used[client] + more > self.limit * _SHARE:
            return client
        if self.total + more > self.limit:
            return max(self.used, key=self.used.__getitem__)
        return None


class Gate:
    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.slots: dict[int, Slot] = {}  # by file descriptor
        self.connections = _Budget(limits.connections)
        self.held = _Budget(limits.held_bytes)
        # By client, the longest waiting first: connections with an unfinished request.
        self._unfinished: dict[str, dict[Slot, None]] = {}

    def admit(self, slot: Slot) -> bool:
        while (client := self.connections.exceeded_by(slot.client, 1)) is not None:
            oldest = next(iter(self._unfinished.get(client, ())), None)
            if oldest is None:
                refused("connection_limit", "too many connections, all of them with requests under way")
                return False
            detail = "too many connections: this one waited longest for its request"
            oldest.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "connection_limit", detail)
        slot.gate = self
        self.slots[slot.fileno()] = slot
        self.connections.add(slot.client, 1)
        self.mark(slot, unfinished=True)
        late = partial(slot.refuse, HTTPStatus.REQUEST_TIMEOUT, "handshake_timeout", "the TLS handshake took too long")
        slot.timer = asyncio.get_running_loop().call_later(self.limits.header_seconds, late)
        return True

    def hold(self, slot: Slot, count: int) -> bool:
        slot.held += count
        self.held.add(slot.client, count)
        if slot.held > self.limits.request_bytes:
            detail = f"a request has at most {self.limits.request_bytes} bytes"
            slot.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request_too_large", detail)
        while slot.gate is not None and (client := self.held.exceeded_by(slot.client)) is not None:
            oldest = next((each for each in self._unfinished.get(client, ()) if each.held), slot)
            detail = "requests under way hold too much memory: send it again later"
            oldest.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "memory_limit", detail)
        return slot.gate is not None

    def release(self, slot: Slot) -> None:
        self.held.add(slot.client, -slot.held)
        slot.held = 0

    def mark(self, slot: Slot, *, unfinished: bool) -> None:
        if unfinished:
            self._unfinished.setdefault(slot.client, {})[slot] = None
        elif slot in (waiting := self._unfinished.get(slot.client, {})):
            del waiting[slot]
            if not waiting:
                del self._unfinished[slot.client]

    def leave(self, slot: Slot) -> None:
        del self.slots[slot.fileno()]
        self.mark(slot, unfinished=False)
        self.release(slot)
        self.connections.add(slot.client, -1)


def listen(host: str, port: int) -> list[Listener]:
    """Return sockets on all addresses of a host; port 0 picks a free one."""
    bound: list[Listener] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = Listener(family, kind, protocol)
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(address)
                made.listen()  # before the address is printed
            except OSError as error:
                made.close()
                if error.errno != errno.EADDRNOTAVAIL or (not bound and len(found) == 1):
                    raise
            else:
                bound.append(made)
    except OSError as error:
        for each in bound:
            each.close()
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}; choose another port") from None
    return bound


def _client(family: int, address: Any) -> str:
    if family == socket.AF_INET6:
        found = IPv6Address(address[0].partition("%")[0])
        return str(found.ipv4_mapped or int(found) >> 64)
    return str(address[0]) if family == socket.AF_INET else ""


PROBLEM = "application/problem+json"
# Slower clients are disconnected.
_LEAST_BYTES_PER_SECOND = 8 * 1024
_GRACE_SECONDS = 2
# Seconds for an answer that is under way when the server ends.
_STREAM_SECONDS = 1.5
# Seconds for a client to read its last answer.
_LINGER_SECONDS = 1.0

_Phase = Literal["new", "headers", "body", "work", "answer"]


class _Connection(H11Protocol):
    def __init__(self, gate: Gate, **given: Any) -> None:
        super().__init__(**given)
        self._gate = gate
        self._slot: Slot
        self._phase: tuple[_Phase, object] = "new", None
        self._received = self._before = 0  # bytes received, now and when the timer was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        number = transport.get_extra_info("socket").fileno()
        if number not in self._gate.slots:  # refused at this moment
            return transport.abort()
        self._slot = self._gate.slots[number]
        self._slot.end = self.refuse
        self._enter_phase()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not self.transport.is_closing() and self._gate.hold(self._slot, len(data)):
            super().data_received(data)
            self._enter_phase()

    def on_response_complete(self) -> None:
        self._gate.release(self._slot)
        super().on_response_complete()
        self._enter_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._enter_phase()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._enter_phase()

    def shutdown(self) -> None:
        if self._phase[0] == "body":
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "server_ends", "the server ends: send the request again later")
        else:
            if self.cycle is not None:
                # Before the server cancels it, which would be logged as its error.
                self.loop.call_later(_STREAM_SECONDS, self._end_stream, self.cycle)
            super().shutdown()

    def _end_stream(self, cycle: Any) -> None:
        cycle.disconnected = True
        cycle.message_event.set()
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self.refuse(HTTPStatus.BAD_REQUEST, "bad_http", msg)

    def refuse(self, status: HTTPStatus, reason: str, detail: str) -> None:
        refused(reason, detail)
        self._slot.forget()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = orjson.dumps({"title": status.phrase, "status": status, "detail": detail, "reason": reason})
            headers = [("content-type", PROBLEM), ("content-length", str(len(body))), ("connection", "close")]
            answer = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            for part in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _enter_phase(self) -> None:
        if self._slot.gate is None:  # it was refused
            return
        theirs = self.conn.their_state
        phase: _Phase = "headers" if theirs is h11.IDLE else "body" if theirs is h11.SEND_BODY else "work"
        if self.flow.write_paused:
            phase = "answer"
        if (phase, self.cycle) == self._phase:
            return
        self._phase = phase, self.cycle
        self._gate.mark(self._slot, unfinished=phase in ("headers", "body"))
        self._slot.stop_timer()
        if phase != "work":
            self._set_timer(self._gate.limits.header_seconds if phase == "headers" else self._gate.limits.body_seconds)

    def _set_timer(self, seconds: float) -> None:
        self._before = self._progress()
        self._slot.timer = self.loop.call_later(seconds, self._check_progress, seconds)

    def _progress(self) -> int:
        return -self.transport.get_write_buffer_size() if self._phase[0] == "answer" else self._received

    def _check_progress(self, seconds: float) -> None:
        phase = self._phase[0]
        is_fast = self._progress() - self._before >= seconds * _LEAST_BYTES_PER_SECOND
        if phase != "headers" and (is_fast or self.flow.read_paused):
            self._set_timer(seconds)
        elif phase == "answer":
            refused("slow_reader", "the client does not read its answer")
            self.transport.abort()
        else:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, f"{phase}_timeout", f"the {phase} of the request took too long")


def server(
    app: Application,
    listening: Sequence[Listener],
    limits: HttpLimits | None = None,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
) -> uvicorn.Server:
    gate = Gate((limits or HttpLimits()).within_open_files())
    for each in listening:
        each.gate = gate
    config = uvicorn.Config(
        _without_disconnects(app),
        http=partial(_Connection, gate),  # type: ignore[arg-type]  # uvicorn calls it and does nothing else with it
        ws="none",
        proxy_headers=False,  # a client could name any address as its own
        access_log=False,
        backlog=BACKLOG,
        log_config=None,
        log_level="error",  # clients can trigger its warnings at will
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,  # streams do not end without it
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return uvicorn.Server(config)


async def serve_http(app: Application, listening: Sequence[Listener], **options: Any) -> None:
    """Serve until a signal ends the process."""
    await server(app, listening, **options).serve(list(listening))


def _without_disconnects(app: Application) -> Application:
    from starlette.requests import ClientDisconnect

    async def quiet(scope: Message, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await app(scope, receive, send)

    return quiet
