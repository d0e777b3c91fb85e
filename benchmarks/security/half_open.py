"""Ask an endpoint whether it lives, while a client opens 250 connections a second and finishes no request on any.

Beside it the same probe of Starlette on uvicorn, which serves the console and the relay. Each serves in a process with
1,024 descriptors, as a container has.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from sinks.health_endpoint import Endpoint, Readiness
from streams.embedded.broker import free_port

RATE, BEFORE_SECONDS, PROBES = 250, 8.0, 30
BAR_SECONDS = 0.050
_DESCRIPTORS = 1024
_TIMEOUT_SECONDS = 1.0
_MODULE = "benchmarks.security.half_open"


def half_open() -> Iterator[tuple[str, str, str, str]]:
    """The line of the page."""
    answered, slowest = probed("own")
    rival, _ = probed("uvicorn")
    met = "" if answered == PROBES and slowest <= BAR_SECONDS else ": **missed**"
    through = f"{answered} answered, p99 {1000 * slowest:.0f} ms (bar {PROBES}, {1000 * BAR_SECONDS:.0f} ms){met}"
    what = f"probes of /livez beside {RATE} half-open connections a second; rival, Starlette on uvicorn"
    yield "liveness", what, str(PROBES), f"{through}; {rival}"


def probed(kind: str, before_seconds: float = BEFORE_SECONDS) -> tuple[int, float]:
    """How many probes were answered, and the slowest in seconds."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", _MODULE, kind, str(port)], stderr=subprocess.DEVNULL)
    stop = threading.Event()
    opener = threading.Thread(target=_open, args=(port, stop))
    try:
        while not _answers(port):
            time.sleep(0.1)
        opener.start()
        time.sleep(before_seconds)
        answered, slowest = 0, 0.0
        for _ in range(PROBES):
            began = time.monotonic()
            answered += _answers(port)
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.05)
        return answered, slowest
    finally:
        stop.set()
        if opener.is_alive():
            opener.join()
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=_TIMEOUT_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _open(port: int, stop: threading.Event) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    began = time.monotonic()
    with contextlib.ExitStack() as held:
        opened: list[socket.socket] = []
        while not stop.is_set():
            opened.append(held.enter_context(socket.socket()))
            opened[-1].setblocking(False)
            with contextlib.suppress(OSError):
                opened[-1].connect(("127.0.0.1", port))
            with contextlib.suppress(OSError):  # of a few connections ago: it stands by now
                opened[max(0, len(opened) - 6)].send(b"GET /livez HT")
            time.sleep(max(0.0, len(opened) / RATE - (time.monotonic() - began)))


def _serve(kind: str, port: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    if kind == "own":
        with Endpoint(CollectorRegistry(), Readiness(), "test", "127.0.0.1", port):
            threading.Event().wait()
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def alive(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    uvicorn.run(Starlette(routes=[Route("/livez", alive)]), port=port, log_level="critical")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
