"""Serve an ASGI application over HTTP, with a limit for everything that a client can hold open.

Every ASGI listener is made here, because uvicorn waits for headers and bodies without limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import h11
import orjson
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetlore.http_server.gate import BACKLOG, Gate, HttpLimits, Listener, Slot
from fleetlore.loopback import Application, Message, Receive, Send
from fleetlore.refusals import refused

__all__ = ["PROBLEM", "serve_http", "server"]

PROBLEM = "application/problem+json"
# A client that sends a body or reads an answer more slowly is disconnected.
_LEAST_BYTES_PER_SECOND = 8 * 1024
_GRACE_SECONDS = 2
# Seconds to wait for a client that does not read its last answer.
_LINGER_SECONDS = 1.0

_Phase = Literal["new", "headers", "body", "work", "answer"]


class _Connection(H11Protocol):
    """uvicorn's connection with a time limit for each phase in which the client must act."""

    def __init__(self, gate: Gate, **given: Any) -> None:
        super().__init__(**given)
        self._gate = gate
        self._slot: Slot
        self._phase: tuple[_Phase, object] = "new", None
        self._timer: asyncio.TimerHandle | None = None
        self._received = self._before = 0  # bytes received, now and when the timer was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        number = transport.get_extra_info("socket").fileno()
        if number not in self._gate.slots:  # refused at this moment
            return transport.abort()
        self._slot = self._gate.slots[number]
        self._slot.end = self.refuse
        if self._slot.late is not None:
            self._slot.late.cancel()
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

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._phase[0] == "body":
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "server_ends", "the server ends: send the request again later")
        else:
            super().shutdown()

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
        if self._timer is not None:
            self._timer.cancel()
        if phase != "work":
            self._set_timer(self._gate.limits.header_seconds if phase == "headers" else self._gate.limits.body_seconds)

    def _set_timer(self, seconds: float) -> None:
        self._before = self._progress()
        self._timer = self.loop.call_later(seconds, self._check_progress, seconds)

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
    """Make the server of an application. Run it with `serve(sockets)`; `should_exit` ends it."""
    gate = Gate((limits or HttpLimits()).within_open_files())
    for each in listening:
        each.gate = gate
    config = uvicorn.Config(
        _without_disconnects(app),
        http=partial(_Connection, gate),  # type: ignore[arg-type]  # uvicorn calls it and does nothing else with it
        ws="none",
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
    """Serve until a signal ends the process. `options` are those of `server`."""
    await server(app, listening, **options).serve(list(listening))


def _without_disconnects(app: Application) -> Application:
    from starlette.requests import ClientDisconnect

    async def quiet(scope: Message, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await app(scope, receive, send)

    return quiet
