"""Run the embedded broker alone, and stop, pause or kill it, for benchmarks and tests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time

from fleetlore.errors import StackError
from streams.embedded.broker import broker_command, free_port

_START_SECONDS = 120.0
_STOP_SECONDS = 5.0


class EmbeddedBroker:
    """A broker in memory on its own port, from `start()` (or `with`) to `stop()`.

    Attributes:
        address: `host:port`, the same after a restart.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it listens. Its topics are empty, also after a restart.

        Raises:
            StackError: it did not listen in time.
        """
        self._process = subprocess.Popen(
            broker_command(self.port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
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
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
