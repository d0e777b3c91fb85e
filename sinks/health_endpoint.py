"""Serve a role's /metrics, /livez, /readyz and /version over HTTP.

A separate thread answers even if the event loop is blocked. Liveness covers this process only: otherwise an outage of
broker or Milvus would restart every worker at once.
"""

import asyncio
import json
import logging
import platform
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from socket import SHUT_RDWR
from threading import Lock, Thread
from time import monotonic
from typing import Any, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from fleetlore.clock import Clock, SystemClock
from fleetlore.errors import ConfigError

__all__ = ["Readiness", "package_version"]

log = logging.getLogger(__name__)

_STALL_SECONDS = 60.0
_SLOW_SECONDS = 5.0


def package_version() -> str:
    try:
        return version("fleetlore")
    except PackageNotFoundError:
        return "unknown"


class Readiness:
    def __init__(
        self, *parts: str, clock: Clock | None = None, stall_seconds: float = _STALL_SECONDS, beat_seconds: float = 5.0
    ) -> None:
        self._clock = clock or SystemClock()
        self._beat_seconds, self._stall_seconds = beat_seconds, stall_seconds
        self._waiting = dict.fromkeys(parts, "not started")
        self._fatal: str | None = None
        self._last_beat: float | None = None

    def beat(self) -> None:
        """After the first beat, `stall_seconds` without one mean a stuck process."""
        self._last_beat = self._clock.monotonic()

    async def keep_beating(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(self._beat_seconds)

    async def watch(self, part: str, batch: asyncio.Task[None], slow_seconds: float = _SLOW_SECONDS) -> None:
        began = self._clock.monotonic()
        _, slow = await asyncio.wait([batch], timeout=slow_seconds)
        if slow:
            self.unready(part, f"a batch has been under way for more than {slow_seconds:g} s")
            await asyncio.wait([batch])
            self.ready(part)
            log.warning("%s: a batch took %.1f s, and hints waited for it", part, self._clock.monotonic() - began)

    def fail(self, reason: str) -> None:
        self._fatal = reason

    def ready(self, part: str) -> None:
        self._waiting.pop(part, None)

    def unready(self, part: str, reason: str) -> None:
        self._waiting[part] = reason

    def dead(self) -> str | None:
        if self._fatal is not None:
            return self._fatal
        if self._last_beat is not None:
            silent_seconds = self._clock.monotonic() - self._last_beat
            if silent_seconds > self._stall_seconds:
                return f"the event loop has been silent for {silent_seconds:.0f} s"
        return None

    def waiting(self) -> str | None:
        # A copy: the event loop changes it while the endpoint's threads read.
        return "; ".join(f"{part}: {reason}" for part, reason in self._waiting.copy().items()) or None


_REQUEST_SECONDS = 5.0
MAX_CONNECTIONS = 32
_POLL_SECONDS = 0.25


class _Server(ThreadingHTTPServer):
    """A new connection replaces the oldest: probes take milliseconds, so an old one is half open."""

    # With the default of five, a probe in a burst would be dropped.
    request_queue_size = 4 * MAX_CONNECTIONS

    def __init__(self, request_seconds: float, *args: Any) -> None:
        self._request_seconds = request_seconds
        self._began: dict[Any, float] = {}  # connections, oldest first
        self._lock = Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._began) >= MAX_CONNECTIONS:
                self._cut(next(iter(self._began)))
            self._began[request] = monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Bound the whole connection: slow single bytes would renew a read's timeout."""
        with self._lock:
            for request, began in list(self._began.items()):
                if monotonic() - began > self._request_seconds:
                    self._cut(request)

    def _cut(self, request: Any) -> None:
        """Shutting down both directions wakes its reader."""
        del self._began[request]
        with suppress(OSError):
            request.shutdown(SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, registry: CollectorRegistry, health: Readiness, role: str, *args: object) -> None:
        self._registry, self._health, self._role = registry, health, role
        super().__init__(*args)  # type: ignore[arg-type]  # socketserver passes (socket, address, server)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, encode(self._registry), content_type)
        elif path == "/livez":
            self._probe(self._health.dead())
        elif path == "/readyz":
            self._probe(self._health.dead() or self._health.waiting())
        elif path == "/version":
            facts = {"version": package_version(), "python": platform.python_version(), "role": self._role}
            self._answer(HTTPStatus.OK, json.dumps(facts).encode(), "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"not found; try /metrics, /livez, /readyz or /version\n")

    def _probe(self, problem: str | None) -> None:
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, f"{problem or 'ok'}\n".encode())

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Frequent scrapes would flood the role's log."""


class Endpoint:
    def __init__(
        self,
        registry: CollectorRegistry,
        health: Readiness,
        role: str,
        host: str,
        port: int,
        *,
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        try:
            self._server = _Server(request_seconds, (host, port), partial(_Handler, registry, health, role))
        except OSError as error:
            raise ConfigError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self.health = health
        self.host = host
        self.port: int = self._server.server_address[1]
        serve = partial(self._server.serve_forever, _POLL_SECONDS)
        self._thread = Thread(target=serve, name="fleetlore-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
