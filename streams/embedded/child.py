"""Run one process of the embedded stack under a supervisor, with a log file."""

import asyncio
import errno
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from fleetlore.errors import StackError
from fleetlore.loopback import past_proxies

__all__ = ["Child", "DiskFull", "PortTaken"]

log = logging.getLogger(__name__)

_STOP_SECONDS = 30.0
_LOG_LINES, _LINE_CHARACTERS = 5, 2_000
_LOG_BYTES = 64 * 1024
# A disk with fewer free bytes counts as full: a database needs at least a page.
_NO_SPACE_BYTES = 1024 * 1024
_IN_USE = re.compile(r"address (already )?in use|failed to bind", re.IGNORECASE)
# Longer logs are rotated, so each role has at most twice this.
_MOST_LOG_BYTES = 10 * 1024 * 1024


class DiskFull(StackError):
    """A process ended because the disk is full."""


class PortTaken(StackError):
    """A process ended because another process uses its port."""


@dataclass(eq=False, repr=False)
class Child:
    name: str
    command: Sequence[str]
    logs: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    stop_seconds: float = _STOP_SECONDS
    most_log_bytes: int = _MOST_LOG_BYTES
    shown: bool = False

    def __post_init__(self) -> None:
        self._log_file = self.logs / f"{self.name}.log"
        # Two malloc arenas, not eight a core: short-lived threads would each keep memory.
        self._environ = {"MALLOC_ARENA_MAX": "2", **os.environ, **past_proxies(os.environ), **self.environ}
        self._process: asyncio.subprocess.Process | None = None
        self._log_begins = 0  # offset in bytes of this run's output

    async def start(self) -> None:
        supervised = (sys.executable, "-m", "streams.embedded.supervisor", *self.command)
        with open(self._log_file, "ab", opener=_owners) as output:
            self._log_begins = output.tell()
            self._process = await asyncio.create_subprocess_exec(
                *supervised,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=None if self.shown else output,
                env=self._environ,
                # Ctrl-C would reach the whole process group, but the stack stops its children in order.
                start_new_session=True,
                # its files hold agents' texts
                umask=0o077,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def ended(self) -> int:
        process = self._process
        assert process is not None
        code = await process.wait()
        with suppress(ProcessLookupError):  # the role may outlive a killed supervisor
            os.killpg(process.pid, signal.SIGKILL)
        return code

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self.stop_seconds):
                await process.wait()
        except TimeoutError:
            log.warning("%s did not end within %.0f s and is killed", self.name, self.stop_seconds)
            # Killing the supervisor alone would leave the role behind.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def cut_log(self) -> None:
        with suppress(OSError):
            if self._log_file.stat().st_size > self.most_log_bytes:
                before = self._log_file.with_suffix(".log.1")
                with self._log_file.open("rb") as now, open(before, "wb", opener=_owners) as kept:
                    shutil.copyfileobj(now, kept)
                os.truncate(self._log_file, 0)

    def failure(self, code: int) -> StackError:
        tail = ""
        with suppress(OSError), self._log_file.open("rb") as log_file:
            size = log_file.seek(0, os.SEEK_END)
            log_file.seek(max(0, size - _LOG_BYTES, self._log_begins if self._log_begins <= size else 0))
            tail = log_file.read().decode(errors="replace")
        data = self._log_file.parents[1]
        if not data.is_dir():
            return StackError(f"{self.name} ended with exit code {code}, after {data} was removed")
        free, folder = min((shutil.disk_usage(each).free, each) for each in (data, *data.iterdir()) if each.is_dir())
        if free < _NO_SPACE_BYTES or os.strerror(errno.ENOSPC) in tail:
            return DiskFull(
                f"{self.name} ended because the disk of {folder} is full ({free // 1024} KiB free). Nothing that the "
                f"broker acknowledged is lost. Make room, then run `fleetlore up --data {data}` again"
            )
        lines = [line.strip()[:_LINE_CHARACTERS] for line in tail.splitlines() if line.strip()]
        if bound := next(filter(_IN_USE.search, lines), ""):
            return self.port_taken(f"{self._log_file} says: {bound}")
        last = " | ".join(lines[-_LOG_LINES:])
        return StackError(f"{self.name} ended with exit code {code}; {self._log_file} says: {last or 'nothing'}")

    def port_taken(self, evidence: str) -> PortTaken:
        return PortTaken(
            f"{self.name} cannot listen, because another process took its port; the data is safe. Run `fleetlore up "
            f"--data {self._log_file.parents[1]}` again, which chooses another port. {evidence}"
        )


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
