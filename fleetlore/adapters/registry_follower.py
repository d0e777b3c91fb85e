"""Follow a tenant's adapter topics once for all agents of an event loop.

A connection for each agent would cost each two wake-ups a second for a version that comes a few times a day, and a
version would be sent, parsed and kept once an agent: a thousand agents on two cores did nothing else. An agent that
joins late is given what was verified. A manifest comes before its weights: weights that no manifest names are passed
over, and read again when one does. So nobody without the key fills an agent's memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from fleetlore.adapters.registry import RegistryView
from fleetlore.adapters.signatures import PublicKeys
from fleetlore.cluster import Bootstrap
from fleetlore.errors import AdapterRefused
from fleetlore.files import write_whole
from fleetlore.kafka.client import backoff, connected, make_producer
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.adapter_manifest import ADAPTERS, AdapterManifest
from fleetlore.wire.topics import topic

__all__ = ["FETCH_WAIT_MS", "STOP_SECONDS", "RegistryFollower", "shared_follower"]


# Keep the newest pointers and the revocations that this host has seen, so that a restart cannot be led back.
#
# A broker's compacted topic can be made to end with an older pointer, signed as truly as the newer one. A process that
# has seen the newer one refuses it; the next process on this host refuses it because of this file. What it holds is
# signed, and verified again when it is read. A host that has none, its first time, believes what the topics say.
class EpochFile:
    """`FOLDER/TENANT.adapters.json`: records of `adapters.pointers` by key. Never raises: an agent runs without it."""

    def __init__(self, folder: str, tenant: str) -> None:
        self.path = Path(folder).expanduser() / f"{tenant}.adapters.json"

    def load(self) -> list[tuple[bytes, bytes]]:
        """The records, not verified; none where the file is missing or broken."""
        try:
            held = orjson.loads(self.path.read_bytes())
            return [(key.encode(), base64.b64decode(value)) for key, value in held.items()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("%s cannot be read: the epochs seen before are not known (%r)", self.path, error)
            return []

    def save(self, records: Mapping[bytes, bytes]) -> None:
        """Keep verified records."""
        held = {key.decode(): base64.b64encode(value).decode() for key, value in records.items()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, orjson.dumps(held, option=orjson.OPT_INDENT_2))
        except OSError as error:
            log.warning("%s cannot be written: a restart may be led back to an older version (%r)", self.path, error)


log = logging.getLogger(__name__)

# At least: the embedded broker, which answers a waiting fetch late, would have a rollback there within a second.
FETCH_WAIT_MS = 200
STOP_SECONDS = 5.0
_LAST_ACKS_SECONDS = 1.0
# Agents that take a record before the loop may do something else: ~2 ms.
_GIVEN_AT_ONCE = 16
_TOPICS = ("adapters.weights", "adapters.manifests", "adapters.pointers")


class _Subscriber(Protocol):
    """Is given the records."""

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        """One record of the topic `name`, verified."""

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        """A record with this key was refused."""

    async def turn(self) -> None:
        """All records that were there have been given; comes again at least every second."""


class RegistryFollower:
    """The topics of one tenant; use `shared_follower`. Survives broker outages.

    Args:
        state_dir: folder where the newest pointers and the revocations outlive the process; empty: nowhere.
        make_producer: of what sends acks.
        make_follower: of what reads the topics.
    """

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
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._tenant = tenant
        self._trusted = trusted
        self._epochs = EpochFile(state_dir, tenant) if state_dir else None
        self._make_producer = make_producer
        self._make_follower = make_follower
        self._topics = {topic(tenant, name): name for name in _TOPICS}
        self._follower = self._new_follower()
        self._members: list[_Subscriber] = []
        # Those of them that were given what was read before.
        self._subscribers: list[_Subscriber] = []
        self._verified = self._remembered()
        self._saved: dict[bytes, bytes] = {}
        self._passed_over = False
        self._giving = asyncio.Lock()
        self._acks: deque[tuple[bytes, bytes]] = deque(maxlen=10_000)
        self._ack_delays = backoff()
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[bool] | None = None

    def _new_follower(self) -> Follower:
        # Always from the beginning: after a broker has lost its log, positions in the old one would hide a rollback.
        return self._make_follower(
            self._bootstrap,
            tuple(self._topics),
            self._take,
            what="adapters",
            fetch_wait_ms=self._fetch_wait_ms,
            poll_ms=FETCH_WAIT_MS,
            resumes=False,
            complete=self._caught_up,
        )

    def _remembered(self) -> list[RegistryView[AdapterManifest]]:
        """Views of all adapters with what this host had verified when it ran last."""
        views = [RegistryView(kind, self._tenant, self._trusted) for kind in ADAPTERS]
        for key, value in self._epochs.load() if self._epochs is not None else ():
            _take_pointer(views, key, value)
        for view in views:
            view.expect_log()
        return views

    async def join(self, subscriber: _Subscriber) -> None:
        """Give a subscriber what was read so far, and from now on what comes."""
        self._members.append(subscriber)
        if self._task is None:
            self._task = asyncio.create_task(self._follower.run(), name="fleetlore-adapters")
        async with self._giving:
            self._subscribers.append(subscriber)
            for record in [record for view in self._verified for record in view.records()]:
                if subscriber in self._subscribers:
                    await self._give_to(subscriber, subscriber.take(*record))

    async def leave(self, subscriber: _Subscriber) -> None:
        """Give it nothing any more; with the last one the connection ends."""
        for some in (self._members, self._subscribers):
            if subscriber in some:
                some.remove(subscriber)
        if not self._members and self._task is not None:
            await self._send_last_acks()
            if self._members or self._task is None:
                return  # another agent has come meanwhile, or come and gone
            tasks = [task for task in (self._task, self._sending, self._catching_up) if task is not None]
            self._task = self._sending = self._catching_up = None
            self._follower = self._new_follower()
            self._verified = self._remembered()
            for task in tasks:
                task.cancel()
            # A consumer on a broker that hangs may take its time to stop; an agent's exit must not wait for that.
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    def ack(self, key: str, document: dict[str, object]) -> None:
        """Send what an agent did with a version, once all agents have been given the record."""
        self._acks.append((key.encode(), orjson.dumps(document)))

    async def caught_up(self) -> None:
        """Wait until all that the topics held when this was first asked has been given."""
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._follower.caught_up(None), name="fleetlore-adapters-caught-up")
        await asyncio.shield(self._catching_up)

    async def _take(self, fetched: Fetched) -> None:
        async with self._giving:
            for partition, records in fetched.items():
                for record in records:
                    await self._give(self._topics[partition.topic], record.key or b"", record.value)
            await self._remember()
            for subscriber in list(self._subscribers):
                await self._give_to(subscriber, subscriber.turn())
        # Beside the records: after a revocation the pointer to what takes its place must not wait for a producer.
        if self._acks and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send_acks(), name="fleetlore-acks")

    async def _caught_up(self) -> None:
        """Refuse a log that ends before what this host has seen: somebody froze it, or led it back."""
        async with self._giving:
            for key, refusal in [each for view in self._verified for each in view.frozen()]:
                for subscriber in self._subscribers:
                    subscriber.refuse(refusal, key)

    async def _give(self, name: str, key: bytes, value: bytes | None) -> None:
        if name == "adapters.weights" and not any(view.announces(key) for view in self._verified):
            self._passed_over = self._passed_over or value is not None
            return
        try:
            news = [view.take(name, key, value) for view in self._verified]
        except AdapterRefused as refusal:
            for subscriber in self._subscribers:
                subscriber.refuse(refusal, key)
            return
        if not any(news):
            return  # read again, or of no adapter that is known here
        if name == "adapters.manifests" and self._passed_over:
            self._passed_over = False
            self._follower.rewind(topic(self._tenant, "adapters.weights"))
        for number, subscriber in enumerate(list(self._subscribers), 1):
            await self._give_to(subscriber, subscriber.take(name, key, value))
            if number % _GIVEN_AT_ONCE == 0:
                await asyncio.sleep(0)  # a thousand agents in one go would keep their loop from their actions

    async def _give_to(self, subscriber: _Subscriber, given: Awaitable[None]) -> None:
        """A subscriber that fails gets nothing any more; the others go on, and hear of a revocation."""
        try:
            await given
        except Exception:
            log.exception("an agent does not follow adapters any more: it keeps the version that it runs")
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

    async def _remember(self) -> None:
        records = _pointers(self._verified)
        if self._epochs is None or records == self._saved:
            return
        merged = self._remembered()  # another process of this host may have seen more
        for key, value in records.items():
            _take_pointer(merged, key, value)
        await asyncio.to_thread(self._epochs.save, _pointers(merged))
        self._saved = records

    async def _send_acks(self) -> None:
        try:
            await self._send_some()
        except (KafkaError, OSError) as error:
            log.info("acks of adapters not sent, they are sent later: %s", error)
            await asyncio.sleep(next(self._ack_delays))
        else:
            self._ack_delays = backoff()

    async def _send_last_acks(self) -> None:
        """Say before the last agent leaves what it did with a version; no longer than an exit may take."""
        sending, self._sending = self._sending, None
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_LAST_ACKS_SECONDS):
                if sending is not None and not sending.done():
                    await sending
                if self._acks:
                    await self._send_some()

    async def _send_some(self) -> None:
        some = list(self._acks)
        # A producer for the moment: acks are rare, and a standing connection is not.
        async with connected(self._make_producer(self._bootstrap)) as producer:
            name = topic(self._tenant, "adapters.acks")
            await asyncio.gather(*[await producer.send(name, value, key=key) for key, value in some])
        for sent in some:
            if self._acks and self._acks[0] is sent:  # else it went because too many came
                self._acks.popleft()


def _pointers(views: list[RegistryView[AdapterManifest]]) -> dict[bytes, bytes]:
    return {key: value for view in views for key, value in view.pointers()}


def _take_pointer(views: list[RegistryView[AdapterManifest]], key: bytes, value: bytes) -> None:
    for view in views:
        with contextlib.suppress(AdapterRefused):  # an older one, or of a key that is not believed any more
            view.take("adapters.pointers", key, value)


_followers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[object, ...], RegistryFollower]] = (
    WeakKeyDictionary()
)


def shared_follower(
    bootstrap: Bootstrap,
    tenant: str,
    trusted: PublicKeys,
    state_dir: str = "",
    fetch_wait_ms: int = FETCH_WAIT_MS,
) -> RegistryFollower:
    """The follower that the agents of the running loop share that believe the same keys."""
    followers = _followers.setdefault(asyncio.get_running_loop(), {})
    mark = (bootstrap, tenant, tuple(trusted), state_dir)
    if mark not in followers:
        wait_ms = max(FETCH_WAIT_MS, fetch_wait_ms)
        followers[mark] = RegistryFollower(bootstrap, tenant, trusted, state_dir, fetch_wait_ms=wait_ms)
    return followers[mark]
