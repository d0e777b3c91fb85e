"""Run the embedded stack in one folder: broker, Milvus Lite, workers and trainer as child processes.

With `keep_log` the broker is Apache Kafka. Otherwise it is `tansu`, which keeps topics in memory: a restart refills
durable ones from the folder. The rest is processed by then, because workers stop first.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, Any, Self

import orjson

from fleetlore.adapters.signatures import create_signing_key
from fleetlore.cluster import ADAPTERS, LOCK_FILE, SIGNING_KEY, STACK_FILE
from fleetlore.config import DEFAULT_TENANT, Settings, embedded_environ, join_keys
from fleetlore.errors import BrokerUnavailable, FleetloreError, StackError
from fleetlore.files import write_whole
from fleetlore.loopback import is_loopback
from sinks.topics import TopicAdmin
from streams.embedded.broker import (
    KafkaMissing,
    Progress,
    answers_ok,
    broker_command,
    check_free,
    connects,
    free_port,
    held_port,
    kafka_command,
    local_address,
)
from streams.embedded.child import Child, DiskFull, PortTaken
from streams.embedded.kept_decisions import KeptDecisions

__all__ = ["Stack"]

log = logging.getLogger(__name__)

_SEEN_FILE = "collections.sha256"
_READY_SECONDS = 180.0
_TELL_SECONDS = 10.0
_POLL_SECONDS = 0.05
_LOCK_TRIES = 10
_LOG_SECONDS = 10.0
_SLOW_BROKER = "the broker runs and does not answer in time, as on a busy machine; nothing is lost, so run it again"
_RESTARTS, _STORE_RESTARTS = 100, 10
_RESTART_SECONDS = 0.5
# On the embedded broker, joining a group takes half of this and delays the first event.
SESSION_TIMEOUT_SECONDS = 6.0


class Stack:
    """A running stack; an async context manager.

    `data`: folder of one stack. `keep_log`: the event log survives a restart, if Kafka can run. `partitions`:
    by default one a worker, as each fetch on the embedded broker scans them. `console_port`, `broker_port`: preferred
    ports; without the first there is no console. `http`: `HOST:PORT` of a relay, or "". `policy`: language model to
    learn a LoRA for, or "".
    """

    def __init__(
        self,
        data: str | Path,
        *,
        tenants: tuple[str, ...] = (DEFAULT_TENANT,),
        workers: int = 1,
        trainer: bool = True,
        keep_log: bool = False,
        partitions: int | None = None,
        console_port: int | None = None,
        http: str = "",
        policy: str = "",
        broker_port: int = 0,
        progress: Progress = lambda line, whole: None,
    ) -> None:
        self.data, self.metrics = Path(data), dict[str, str]()
        self._held: list[socket.socket] = []
        self.console = "" if console_port is None else f"http://127.0.0.1:{held_port(console_port, self._held)}/"
        self._http, self._workers, self._trainer, self._policy = http, workers, trainer, policy
        self.keeps_log, self._progress = keep_log, progress
        self._ports = {"broker": held_port(broker_port, self._held), "milvus": free_port()}
        self.settings = Settings.from_env(
            embedded_environ(self.data),
            broker=f"127.0.0.1:{self._ports['broker']}",
            milvus=f"http://127.0.0.1:{self._ports['milvus']}",
            tenants=tenants,
            partitions=partitions or max(1, workers),
            session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
            adapters_dir=str(self.data / ADAPTERS),
            signing_key=str(self.data / SIGNING_KEY),
        )
        self.children: list[Child] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._lock: IO[bytes] | None = None
        self._failed: asyncio.Future[FleetloreError] = asyncio.get_running_loop().create_future()
        self._awaited = "the broker's files"

    async def __aenter__(self) -> Self:
        self._lock_folder()
        start, failed = asyncio.create_task(self._start()), asyncio.create_task(self.failed())
        telling = asyncio.create_task(self._tell())
        try:
            await asyncio.wait({start, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():  # the cause of whatever the start itself reports
                raise failed.result()
            await start
        except BaseException as error:
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            await self.stop()
            if isinstance(error, OSError):  # such as a full disk
                raise StackError(f"the stack cannot start on {self.data}: {error}") from error
            raise
        finally:
            failed.cancel()
            telling.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def failed(self) -> FleetloreError:
        return await asyncio.shield(self._failed)

    async def _start(self) -> None:
        if self._http:
            check_free(self._http)
        logs = self.data / "logs"
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._keep_watching(self._cut_logs())
        key = create_signing_key(self.settings.signing_key)
        self.settings = self.settings.with_(public_key=join_keys(key.public_base64, self.settings.public_key))
        seen = self.data / _SEEN_FILE
        used = (self.data / "milvus").exists() or (self.data / "kafka").exists()
        broker = Child("broker", await asyncio.to_thread(self._broker_command), logs)
        milvus = Child("milvus", milvus_command(self.data / "milvus", self._ports["milvus"]), logs)
        # An in-memory broker would come back without its topics.
        await self._launch_store(broker, restarts=_STORE_RESTARTS if self.keeps_log else 0)
        await self._launch_store(milvus, restarts=_STORE_RESTARTS)
        await self._answering(broker)
        # Before any request: automatic creation gives other partitions and no compaction.
        restored = self.data / "kafka" / "restored"
        await self._until("the broker to make its topics", partial(self._make_topics, restored), _SLOW_BROKER)
        decisions = KeptDecisions(self.data / "orders.json", self.settings)
        fresh = not (self.keeps_log and restored.exists())
        if fresh:
            await self._until("the broker to take what persons decided", decisions.restore, _SLOW_BROKER)
        self._keep_watching(decisions.follow())
        if used and not (seen.exists() and seen.read_text() == _collections_digest(self.data)):
            await self._answering(milvus)
            await self._migrate(logs)
        # Workers start with Milvus, because imports take seconds.
        workers = [f"worker-{number}" for number in range(self._workers)]
        for name in workers:
            await self._launch_measured(name, logs)
        await self._answering(milvus)
        if fresh:
            self._awaited = "the lore of before"
            restore = Child("restore", [sys.executable, "-m", "streams.offline.republish"], logs, self._environ())
            if code := await self._run(restore):
                raise restore.failure(code)
            if self.keeps_log:
                restored.touch()
        await asyncio.gather(*(self.ready(name) for name in workers))
        write_whole(seen, _collections_digest(self.data).encode())
        if self._trainer:
            await self._launch_measured("trainer", logs, *(("--policy", self._policy) if self._policy else ()))
        self._write_stack_file()
        if self.console:
            port = self.console.rstrip("/").rpartition(":")[2]
            tenants = [option for name in self.settings.tenants for option in ("--tenant", name)]
            await self._launch_role("console", logs, "--data", str(self.data), *tenants, "--port", port)
        if self._http:
            await self._launch_relay(logs)

    async def stop(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers.clear()
        with contextlib.suppress(OSError):  # of a read-only file system
            (self.data / STACK_FILE).unlink(missing_ok=True)
        stores = [child for child in self.children if child.name in ("broker", "milvus")]
        await asyncio.gather(*(child.stop() for child in self.children if child not in stores))
        await asyncio.gather(*(child.stop() for child in stores))
        self.children.clear()
        for mark in self._held:
            mark.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _broker_command(self) -> list[str]:
        folder = self.data / "kafka"
        if self.keeps_log:
            try:
                command = kafka_command(folder, self._ports["broker"], free_port(), self._progress)
                # Kafka answers at once. The in-memory broker's short waits would cost a tenth of a core.
                self.settings = self.settings.with_(fetch_wait_ms=Settings.from_env().fetch_wait_ms)
                return command
            except KafkaMissing as missing:
                if folder.exists():  # without that log, new events would be lost to it
                    raise
                log.warning("the event log is kept in memory and ends with the stack, since %s", missing)
                self.keeps_log = False
        return broker_command(self._ports["broker"])

    async def _make_topics(self, restored: Path) -> None:
        async with TopicAdmin(self.settings).connected() as admin:
            if (missing := await admin.missing()) and restored.exists():
                log.warning(
                    "the broker has no topic %s, as of a new tenant or after a loss of its log; the lore and what "
                    "persons decided are sent to it again",
                    min(missing),
                )
                restored.unlink()
            await admin.create_missing()

    async def _migrate(self, logs: Path) -> None:
        command = [sys.executable, "-m", "streams.offline.migrate"]
        if await self._run(Child("migrate", command, logs, self._environ(), shown=True)):
            raise StackError(
                f"the lore in {self.data} could not be rebuilt for this release (see the lines above); "
                "nothing was deleted, and the next `fleetlore up` continues. If that fails again, move "
                f"{self.data / 'milvus'} away: the lore is then made from the events of the last 30 days alone"
            )

    async def _run(self, child: Child) -> int:
        """A store client in this process would keep 50 MB."""
        await child.start()
        self.children.append(child)
        code = await child.ended()
        self.children.remove(child)
        return code

    async def _launch_role(self, name: str, logs: Path, *options: str) -> None:
        command = [sys.executable, "-m", "fleetlore.cli.main", name.partition("-")[0], *options]
        await self._launch(Child(name, command, logs, self._environ()), restarts=_RESTARTS)

    async def _launch_measured(self, name: str, logs: Path, *options: str) -> None:
        port = free_port()
        self.metrics[name] = f"http://127.0.0.1:{port}"
        await self._launch_role(name, logs, "--metrics-port", str(port), *options)

    async def _launch_relay(self, logs: Path) -> None:
        tenants = [f"--tenant={tenant}" for tenant in self.settings.tenants]
        options = ["--http", self._http, "--data", str(self.data), *tenants]
        if not is_loopback(self._http.rpartition(":")[0].strip("[]")):
            tokens = self.data / "tokens"
            if not tokens.exists():
                lines = [f"{secrets.token_urlsafe(32)} agent {tenant}\n" for tenant in self.settings.tenants]
                write_whole(tokens, "".join(lines).encode())
            options += ["--tokens", str(tokens), "--plain"]
        await self._launch_role("relay", logs, *options)
        host, _, port = self._http.rpartition(":")
        listens = partial(connects, local_address(host), int(port))
        await self._until("the relay", listens, f"the relay does not listen on {self._http}")

    async def _launch_store(self, child: Child, restarts: int) -> None:
        # Clients cannot recognise a foreign server on the port.
        if await connects("127.0.0.1", port := self._ports[child.name]):
            raise child.port_taken(f"Port {port} was free a moment ago")
        await self._launch(child, restarts)

    async def _launch(self, child: Child, restarts: int) -> None:
        await child.start()
        self.children.append(child)
        self._keep_watching(self._watch(child, restarts))

    def _keep_watching(self, work: Coroutine[Any, Any, None]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fail(StackError(f"the stack on {self.data} is not watched any more: {error!r}"))

        watcher = asyncio.create_task(work)
        watcher.add_done_callback(ended)
        self._watchers.append(watcher)

    async def _watch(self, child: Child, restarts: int) -> None:
        final: tuple[type[FleetloreError], ...] = (DiskFull, PortTaken)
        while True:
            code = await child.ended()
            failure = child.failure(code)
            if restarts == 0 or isinstance(failure, final):
                self._fail(failure)
                return
            restarts -= 1
            final = (DiskFull,)  # a killed process may hold its port for a moment
            log.warning("%s ended with exit code %d and is restarted", child.name, code)
            # Without a pause, a role uses up its restarts before its dependency is back.
            await asyncio.sleep(_RESTART_SECONDS)
            try:
                await child.start()
            except OSError as error:
                self._fail(StackError(f"{child.name} cannot be started again: {error}"))
                return

    async def _cut_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOG_SECONDS)
            for child in self.children:
                await asyncio.to_thread(child.cut_log)

    def _fail(self, error: FleetloreError) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def _answering(self, child: Child) -> None:
        port = self._ports[child.name]
        listens = partial(connects, "127.0.0.1", port)
        await self._until(child.name, listens, f"{child.name} does not listen on port {port}")

    async def ready(self, name: str) -> None:
        url = f"{self.metrics[name]}/readyz"
        answers = partial(asyncio.to_thread, answers_ok, url)
        await self._until(name, answers, f"{name} does not become ready; see {self.data / 'logs'}")

    async def _until(self, what: str, check: Callable[[], Awaitable[object]], otherwise: str) -> None:
        self._awaited, reason = what, ""
        self._progress(f"waiting for {what}", False)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    try:
                        if await check() is not False:
                            return
                    except BrokerUnavailable as error:
                        reason = f": {error}"
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackError(f"{otherwise}{reason} (waited {_READY_SECONDS:.0f} s)") from None

    async def _tell(self) -> None:
        for seconds in count(1):
            await asyncio.sleep(_TELL_SECONDS)
            self._progress(f"still waiting for {self._awaited} ({seconds * _TELL_SECONDS:.0f} s since the start)", True)

    def _environ(self) -> dict[str, str]:
        # On few cores, OpenMP threads wait for each other.
        return {**self.settings.to_env(), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

    def _lock_folder(self) -> None:
        try:
            self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.data / LOCK_FILE).open("wb")
        except OSError as error:
            raise StackError(f"the folder {self.data} cannot be used: {error.strerror}") from None
        for _ in range(_LOCK_TRIES):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock = lock
                return
            time.sleep(_POLL_SECONDS)  # agents that look for the stack hold the lock briefly
        lock.close()
        raise StackError(f"another stack runs on {self.data}{self._other()}")

    def _other(self) -> str:
        try:
            stack = orjson.loads((self.data / STACK_FILE).read_bytes())
            return f": broker {stack['broker']}, process {stack['pid']}"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _write_stack_file(self) -> None:
        names = ("broker", "milvus", "public_key", "tenants", "partitions", "fetch_wait_ms")
        content = {name: getattr(self.settings, name) for name in names} | {"pid": os.getpid(), "metrics": self.metrics}
        write_whole(self.data / STACK_FILE, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def _collections_digest(data: Path) -> str:
    """While it is unchanged, the migration is skipped."""
    files = [data / "milvus" / "aliases.json", *sorted((data / "milvus" / "collections").glob("*/schema.json"))]
    # A worker refuses rows of another schema, version of patterns or encoder.
    for module in ("sinks.collections", "fleetlore.fingerprint.fingerprint", "fleetlore_encoder"):
        spec = importlib.util.find_spec(module)
        files += sorted(Path(spec.origin).parent.iterdir()) if spec and spec.origin else []
    found = [(each.name, each.stat()) for each in files if each.is_file()]
    return hashlib.sha256(repr([(name, at.st_size, at.st_mtime_ns) for name, at in found]).encode()).hexdigest()


def milvus_command(folder: Path, port: int) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    where = ("--data-dir", str(folder), "--host", "127.0.0.1", "--port", str(port))
    return [sys.executable, "-m", "streams.embedded.milvus_server", "server", *where]
