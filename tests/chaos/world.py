"""Run the embedded stack with a proxy before Milvus, and a fleet that emits into it."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

from fleetlore.config import Settings
from fleetlore.recall.encoder import shared_encoder
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.broker import free_port
from streams.embedded.child import Child
from streams.embedded.stack import Stack
from tests.chaos.emitting import acknowledged
from tests.doubles.proxy import Proxy
from tests.waiting import until

ROOT = Path(__file__).parents[2]
WORKERS = 2
PARTITIONS = 2
SESSION_TIMEOUT_SECONDS = 4.0
DRAIN_SECONDS = 3.0
RESTART_SECONDS = 0.5
END_SECONDS = 240.0
LAST_LINES = 60
# Metrics that say who owns what and what holds a commit back.
HELD = re.compile(
    r"fleetlore_(uncommitted|consumer_lag|paused|last_commit|open_sess|reopened|sessions_closed|rebalances)"
)


class World:
    """Everything runs on one machine; an async context manager.

    Attributes:
        settings: of the workers.
        proxy: what the workers take for Milvus.
        relay: address of one.
        store: Milvus itself, to look at what they have come to know.
        kills: processes ended by SIGKILL, by kind.
    """

    def __init__(self, folder: Path, tenants: Sequence[str], *, trainer: bool = True) -> None:
        self.relay = f"127.0.0.1:{free_port()}"
        self.stack = Stack(
            folder, tenants=tuple(tenants), workers=WORKERS, trainer=trainer, partitions=PARTITIONS, http=self.relay
        )
        self.folder = folder
        self.kills: Counter[str] = Counter()
        self._exit = AsyncExitStack()
        self._emitter: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> World:
        stack, direct = self.stack, self.stack.settings.milvus
        self.proxy = await self._exit.enter_async_context(Proxy(direct.removeprefix("http://")))
        stack.settings = stack.settings.with_(
            milvus=f"http://{self.proxy.address}",
            session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
            drain_seconds=DRAIN_SECONDS,
        )
        try:
            await self._exit.enter_async_context(stack)
        except BaseException:
            await self._exit.aclose()
            raise
        self.settings = stack.settings
        self.store = MilvusStore(direct, "", shared_encoder(), Metrics("chaos"))
        self._exit.push_async_callback(self.store.close)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exit.aclose()

    # --- the fleet ---

    async def emit(self, broker: str, tenant: str, seed: int, sessions: int, seconds: float, *options: str) -> int:
        """Emit a fleet's events over so many seconds, restarting the emitter when it dies; return their number."""
        acked = self.folder / f"{tenant}.acked"
        order = (broker, tenant, str(seed), str(sessions), str(seconds), str(acked), *options)
        code = -1
        while code != 0:
            self._emitter = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.chaos.emitting", *order, cwd=ROOT
            )
            try:
                code = await self._emitter.wait()
            except asyncio.CancelledError:
                self._emitter.kill()
                await self._emitter.wait()
                raise
            assert code in (0, -signal.SIGKILL), f"the emitter ended with {code}"
        return acknowledged(acked)

    # --- what can be done to it ---

    def kill(self, victim: str) -> None:
        """SIGKILL: `emitter`, `trainer`, `relay` or `worker-N`. One that is just being started again is spared."""
        if self.signal(victim, signal.SIGKILL):
            self.kills[victim.partition("-")[0]] += 1

    def signal(self, name: str, number: signal.Signals) -> bool:
        if name == "emitter":
            emitter = self._emitter
            if emitter is None or emitter.returncode is not None:
                return False
            emitter.send_signal(number)
            return True
        try:
            os.kill(self._process(name), number)
        except (OSError, ValueError):
            return False
        return True

    async def fill_disk(self, name: str) -> None:
        """Let each write to a file fail in the process of this name, until that process has ended."""
        process = self._process(name)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        await until(lambda: not Path(f"/proc/{process}").exists(), END_SECONDS)
        self.kills[f"disk of {name}"] += 1

    def _process(self, name: str) -> int:
        """Raises OSError or ValueError before it runs."""
        [guard] = [child.pid for child in self.stack.children if child.name == name]
        [pid] = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
        return int(pid)

    async def extra_worker(self, name: str, settings: Settings | None = None) -> Child:
        """One more worker, unknown to the stack."""
        port = free_port()
        command = [sys.executable, "-m", "fleetlore.cli.main", "worker", "--metrics-port", str(port)]
        environ = {**self.stack._environ(), **(settings.to_env() if settings else {})}
        child = Child(name, command, self.folder / "logs", environ)
        await child.start()
        self.stack.metrics[name] = f"http://127.0.0.1:{port}"
        return child

    @asynccontextmanager
    async def lasting_worker(self, name: str, settings: Settings) -> AsyncIterator[None]:
        """A worker for other settings, started again when it ends."""
        child = await self.extra_worker(name, settings)

        async def keep() -> None:
            while True:
                await child.ended()
                await asyncio.sleep(RESTART_SECONDS)
                await child.start()

        keeper = asyncio.create_task(keep())
        try:
            await self.ready(name)
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await child.stop()

    async def ready(self, name: str) -> None:
        """Wait until a role is ready."""
        await self.stack.ready(name)

    async def last_words(self) -> str:
        """The last figures and log lines of the roles, for failures that are hard to repeat."""
        told = []
        for name, address in self.stack.metrics.items():
            try:
                with await asyncio.to_thread(urlopen, f"{address}/metrics", timeout=5) as response:
                    lines = response.read().decode().splitlines()
            except OSError as error:
                lines = [repr(error)]
            told += [f"--- {name}", *(line for line in lines if HELD.match(line))]
        for log in sorted((self.folder / "logs").iterdir()):
            told += [f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-LAST_LINES:]]
        return "\n".join(told)
