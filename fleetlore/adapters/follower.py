"""Follow a tenant's adapters once for all agents of an event loop.

With a connection each, a thousand agents would spend two cores on wake-ups and copies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import orjson
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.adapters.signatures import PublicKeys
from fleetlore.adapters.view import AdapterView
from fleetlore.cluster import Bootstrap
from fleetlore.errors import AdapterRefused
from fleetlore.files import write_whole
from fleetlore.kafka.client import backoff, connected, make_producer
from fleetlore.kafka.read import Fetched, Follower
from fleetlore.wire.adapter_manifest import ADAPTERS, AdapterManifest
from fleetlore.wire.topics import ADAPTER_TOPICS, topic

if TYPE_CHECKING:
    from fleetlore.adapters.subscriber import AdapterSubscriber

__all__ = ["FETCH_WAIT_MS", "STOP_SECONDS", "AdapterFollower", "shared_follower"]

log = logging.getLogger(__name__)

# The embedded broker answers waiting fetches late, and a rollback must arrive within a second.
FETCH_WAIT_MS = 200
STOP_SECONDS = 5.0
_LAST_ACKS_SECONDS = 1.0
# Agents that take their turn before the event loop yields: about 2 ms.
_TURNS_AT_ONCE = 16
_Views = Mapping[str, AdapterView[AdapterManifest]]


class EpochFile:
    """`FOLDER/TENANT.epochs.json`: the newest documents and revocations, so that a restart cannot be rolled back. A
    compacted topic can be made to end with an older record, whose signature is valid too. A host without the file
    trusts the topic. It never raises: agents run without it."""

    def __init__(self, folder: str, tenant: str) -> None:
        self.path = Path(folder).expanduser() / f"{tenant}.epochs.json"

    def load(self) -> list[tuple[bytes, bytes]]:
        """Return unverified documents, or [] if the file is missing or broken."""
        try:
            held = orjson.loads(self.path.read_bytes())
            return [(key.encode(), document.encode()) for key, document in held.items()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("%s cannot be read, so an older adapter version may be accepted (%r)", self.path, error)
            return []

    def save(self, documents: Mapping[bytes, bytes]) -> None:
        held = {key.decode(): document.decode() for key, document in documents.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, orjson.dumps(held, option=orjson.OPT_INDENT_2))
        except OSError as error:
            log.warning("%s cannot be written, so a restart may accept an older adapter version (%r)", self.path, error)


class AdapterFollower:
    """Follows the adapters of one tenant across outages. Use `shared_follower`. `views`: by adapter."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        trusted: PublicKeys,
        state_dir: str = "",
        make_producer: Callable[[Bootstrap], AIOKafkaProducer] = make_producer,
        make_follower: Callable[..., Follower] = Follower,
        fetch_wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        self._tenant = tenant
        self._trusted = trusted
        self._epochs = EpochFile(state_dir, tenant) if state_dir else None
        self._make_producer = partial(make_producer, bootstrap)
        # Always from the beginning: after a broker lost its log, old positions would hide a rollback.
        self._make_follower = partial(
            make_follower, bootstrap, tuple(topic(tenant, name) for name in ADAPTER_TOPICS), self._take,
            what="adapters", fetch_wait_ms=fetch_wait_ms, resumes=False, complete=self._caught_up,
        )  # fmt: skip
        self._read_to: dict[TopicPartition, int] = {}
        self._follower = self._make_follower()
        self._subscribers: list[AdapterSubscriber[Any]] = []
        self.views = self._remembered()
        self._saved: dict[bytes, bytes] = {}
        self._giving = asyncio.Lock()
        self._acks: deque[tuple[bytes, bytes]] = deque(maxlen=10_000)
        self._ack_delays = backoff()
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[bool] | None = None

    def _remembered(self) -> _Views:
        views = {kind.name: AdapterView(kind, self._tenant, self._trusted) for kind in ADAPTERS}
        _remember(views, self._epochs.load() if self._epochs is not None else ())
        return views

    async def join(self, subscriber: AdapterSubscriber[Any]) -> None:
        self._subscribers.append(subscriber)
        if self._task is None:
            self._task = asyncio.create_task(self._follower.run(), name="fleetlore-adapters")
        async with self._giving:
            await self._turn(subscriber)

    async def leave(self, subscriber: AdapterSubscriber[Any]) -> None:
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if not self._subscribers and self._task is not None:
            await self._send_last_acks()
            if self._subscribers or self._task is None:
                return  # another agent has joined meanwhile
            tasks = [task for task in (self._task, self._sending, self._catching_up) if task is not None]
            self._task = self._sending = self._catching_up = None
            self._follower = self._make_follower()
            for task in tasks:
                task.cancel()
            # An exit must not wait for consumers while the broker hangs.
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    def ack(self, key: str, document: dict[str, object]) -> None:
        """Send an agent's result for a version, after all agents have the record."""
        self._acks.append((key.encode(), orjson.dumps(document)))

    async def caught_up(self) -> None:
        """Wait until the topics' content at the first call has been passed on."""
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._follower.caught_up(None), name="fleetlore-adapters-caught-up")
        await asyncio.shield(self._catching_up)

    async def _take(self, fetched: Fetched) -> None:
        async with self._giving:
            for partition, records in fetched.items():
                for record in records:
                    if record.offset <= self._read_to.get(partition, -1):
                        for view in self.views.values():
                            view.expect_log()
                    self._read_to[partition] = record.offset
                    self._read(record.key or b"", record.value)
            await self._remember()
            for number, subscriber in enumerate(list(self._subscribers), 1):
                await self._turn(subscriber)
                if number % _TURNS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # a thousand agents in a row would block their loop
        # After a revocation, the next record must not wait for a producer.
        if self._acks and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send_acks(), name="fleetlore-acks")

    async def _caught_up(self) -> None:
        """Refuse a log that ends before the newest record of this host: it was frozen or rolled back."""
        async with self._giving:
            for key, refusal in [each for view in self.views.values() for each in view.frozen()]:
                self._refuse(refusal, key)

    def _read(self, key: bytes, value: bytes | None) -> None:
        for view in self.views.values():
            try:
                view.take(key, value)
            except AdapterRefused as refusal:
                self._refuse(refusal, key)
                return

    def _refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        for subscriber in self._subscribers:
            subscriber.refuse(refusal, key)

    async def _turn(self, subscriber: AdapterSubscriber[Any]) -> None:
        """A failing subscriber is removed; others still learn of revocations."""
        try:
            await subscriber.turn()
        except Exception:
            log.exception("an agent stopped following adapters and keeps its version")
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

    async def _remember(self) -> None:
        documents = _documents(self.views)
        if self._epochs is None or documents == self._saved:
            return
        merged = self._remembered()  # another process of this host may have newer records
        _remember(merged, documents.items())
        await asyncio.to_thread(self._epochs.save, _documents(merged))
        self._saved = documents

    async def _send_acks(self) -> None:
        try:
            await self._send_some()
        except (KafkaError, OSError) as error:
            log.info("acks of adapters are delayed: %s", error)
            await asyncio.sleep(next(self._ack_delays))
        else:
            self._ack_delays = backoff()

    async def _send_last_acks(self) -> None:
        sending, self._sending = self._sending, None
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_LAST_ACKS_SECONDS):
                if sending is not None and not sending.done():
                    await sending
                if self._acks:
                    await self._send_some()

    async def _send_some(self) -> None:
        some = list(self._acks)
        async with connected(self._make_producer()) as producer:
            name = topic(self._tenant, "adapters.acks")
            await asyncio.gather(*[await producer.send(name, value, key=key) for key, value in some])
        for sent in some:
            if self._acks and self._acks[0] is sent:  # it may have been dropped because of too many acks
                self._acks.popleft()


def _documents(views: _Views) -> dict[bytes, bytes]:
    return {key: value for view in views.values() for key, value in view.documents().items()}


def _remember(views: _Views, documents: Iterable[tuple[bytes, bytes]]) -> None:
    for key, value in documents:
        for view in views.values():
            with contextlib.suppress(AdapterRefused):  # one of a revoked key, or of another release
                view.remember(key, value)


_followers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], AdapterFollower]] = (
    WeakKeyDictionary()
)


def shared_follower(
    bootstrap: Bootstrap, tenant: str, trusted: PublicKeys, state_dir: str = "", fetch_wait_ms: int = FETCH_WAIT_MS
) -> AdapterFollower:
    """Return the follower that agents of the running loop with the same trusted keys share."""
    followers = _followers.setdefault(asyncio.get_running_loop(), {})
    mark = (bootstrap, tenant, tuple(trusted), state_dir)
    if mark not in followers:
        wait_ms = max(FETCH_WAIT_MS, fetch_wait_ms)
        followers[mark] = AdapterFollower(bootstrap, tenant, trusted, state_dir, fetch_wait_ms=wait_ms)
    return followers[mark]
