"""Keep an agent on its channel's version of an adapter.

A version is verified and loaded in the background and applied between two actions. Refusals are counted by reason, and
the version in use stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetlore.adapters.blob_store import BlobStore, WeightsReference
from fleetlore.adapters.registry import RegistryView
from fleetlore.adapters.registry_follower import FETCH_WAIT_MS, STOP_SECONDS, RegistryFollower, shared_follower
from fleetlore.adapters.signatures import PublicKeys
from fleetlore.adapters.slot import AdapterSlot, Prepared
from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import AdapterManifest

__all__ = ["AdapterSubscriber", "Holder"]

log = logging.getLogger(__name__)

# Seconds before a failed fetch of weights is retried.
REFETCH_SECONDS = 10.0


Holder = TypeVar("Holder", bound=AdapterSlot[Any])


@dataclass(frozen=True, slots=True)
class _Staged:
    loaded: Prepared[Any]
    load_seconds: float

    @property
    def version(self) -> str:
        version: str = self.loaded.manifest.version
        return version


class AdapterSubscriber(Generic[Holder]):
    """Keeps `holder` on its channel's version from `start()` to `close()`, across outages.

    Args:
        idle: returns whether no action is open. Otherwise a new version waits for `apply_pending()`.
        blob_store: source of large weights; default: none.
        state_dir: folder for the newest epochs; default: none.
        fetch_wait_ms: how long the broker may hold a fetch.
        feed: the follower; default: the one that agents of the loop and tenant share.

    Attributes:
        refused: number of refused records and versions by reason.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        agent: str,
        trusted: PublicKeys,
        holder: Holder,
        *,
        idle: Callable[[], bool] = lambda: True,
        blob_store: BlobStore | None = None,
        state_dir: str = "",
        fetch_wait_ms: int = FETCH_WAIT_MS,
        feed: RegistryFollower | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.holder = holder
        self.refused: Counter[str] = Counter()
        self._name = holder.kind.name
        self._bootstrap = bootstrap
        self._tenant = tenant
        self._trusted = trusted
        self._state_dir = state_dir
        self._fetch_wait_ms = fetch_wait_ms
        self._agent = agent
        self._idle = idle
        self._clock = clock or SystemClock()
        self._registry: RegistryView[AdapterManifest] = RegistryView(holder.kind, tenant, trusted, agent)
        self._blob_store = blob_store or BlobStore("")
        self._staging = asyncio.Lock()
        self._fetch: asyncio.Task[None] | None = None
        self._refetch: tuple[WeightsReference, float] | None = None
        self._pending: _Staged | None = None
        self._feed = feed
        self._follower = feed
        self._joining: asyncio.Task[None] | None = None

    @property
    def version(self) -> str | None:
        return self.holder.version

    async def start(self) -> None:
        self._follower = self._feed or shared_follower(
            self._bootstrap, self._tenant, self._trusted, self._state_dir, self._fetch_wait_ms
        )
        self._joining = asyncio.create_task(self._follower.join(self), name="fleetlore-adapters-join")

    async def close(self) -> None:
        running = [task for task in (self._joining, self._fetch) if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)
        if self._follower is not None:
            await self._follower.leave(self)
        self._follower = self._joining = self._fetch = None

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until the topics' content at the start is read and staged. Return False on time-out."""
        if self._follower is None or self._joining is None:
            return False
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._follower.caught_up()
                await asyncio.shield(self._joining)
        except TimeoutError:
            return False
        return True

    def is_revoked(self, version: str) -> bool:
        return self._registry.revoked(version)

    def apply_pending(self) -> bool:
        """Apply the waiting version, if any. No action may be open."""
        staged, self._pending = self._pending, None
        if staged is None:
            return False
        self.holder.apply(staged.loaded)
        self._ack(staged.version, "applied", staged.load_seconds)
        return True

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        """Keep a record of the topic `name` (`adapters.weights`, …), and stage a version that it completes."""
        try:
            self._registry.take(name, key, value)
        except AdapterRefused as refusal:
            self.refuse(refusal, key)
        await self._stage()

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        what = key.decode(errors="replace")[:100]
        self._refuse(refusal, what)
        # Log each reason once: a thousand forged records must not fill the log.
        if self.refused[refusal.reason] == 1:
            self._ack(what, refusal.reason, 0.0, "/refused")

    async def turn(self) -> None:
        await self._stage()

    async def _stage(self) -> None:
        async with self._staging:  # fetched weights arrive between records
            await self._stage_next()

    async def _stage_next(self) -> None:
        pointer = self._registry.pointer
        self._leave_revoked()
        if pointer is None or pointer.version == self.version:
            self._pending = None  # the pointer returned to the version in use
            return
        if self._pending is not None and self._pending.version == pointer.version:
            return
        self._pending = None  # the channel has moved, even if that version is incomplete
        complete = self._registry.complete()
        if complete is None:
            self._fetch_later()
            return
        weights, manifest = complete
        began = self._clock.monotonic()
        try:
            if self.holder.is_loaded(manifest):  # another agent has loaded it, so a thread would cost more
                loaded = self.holder.prepare(weights, manifest)
            else:
                # Loading takes about 20 ms, too long for the event loop.
                loaded = await asyncio.to_thread(self.holder.prepare, weights, manifest)
        except AdapterRefused as refusal:
            self._registry.reject(manifest.version)
            self._refuse(refusal, manifest.version)
            self._ack(manifest.version, refusal.reason, self._clock.monotonic() - began)
            return
        if self._registry.complete() is None or self._registry.pointer != pointer:
            return  # it was rolled back or revoked during loading; the newest is staged next
        self._pending = _Staged(loaded, self._clock.monotonic() - began)
        if self._idle():
            self.apply_pending()

    def _fetch_later(self) -> None:
        """Fetch weights in a task: a rollback must not wait for a slow store."""
        reference = self._registry.elsewhere()
        if reference is None or (self._fetch is not None and not self._fetch.done()):
            return
        if self._refetch is None or self._refetch[0] != reference or self._refetch[1] <= self._clock.monotonic():
            self._fetch = asyncio.create_task(self._fetched(reference), name="fleetlore-weights")

    async def _fetched(self, reference: WeightsReference) -> None:
        began, most_bytes = self._clock.monotonic(), self.holder.kind.most_bytes
        try:
            self._registry.fetched(reference, await asyncio.to_thread(self._blob_store.fetch, reference, most_bytes))
        except AdapterRefused as refusal:
            now = self._clock.monotonic()
            self._refetch = reference, now + REFETCH_SECONDS
            self._refuse(refusal, reference.sha256)
            self._ack(reference.sha256, refusal.reason, now - began)
            return
        await self._stage()

    def _leave_revoked(self) -> None:
        if self._pending is not None and self._registry.revoked(self._pending.version):
            self._pending = None
        version = self.version
        if version is not None and self._registry.revoked(version):
            log.warning("adapter %s is revoked: no version of %s runs until the next one", version[:12], self._name)
            self.holder.reset()
            self._ack(version, "revoked", 0.0)

    def _refuse(self, refusal: AdapterRefused, what: str) -> None:
        self.refused[refusal.reason] += 1
        stays = self.version or "no version"
        # %r, because keys are senders' texts and could forge a log line.
        log.warning("adapter %s refused, %s stays: %r (%r)", self._name, stays, str(refusal), what)

    def _ack(self, version: str, result: str, load_seconds: float, beside: str = "") -> None:
        """Report a result. With `beside` in its key it does not replace the running version's."""
        if self._follower is None:
            return
        pointer = self._registry.pointer
        self._follower.ack(
            f"{self._name}/{self._agent}{beside}",
            {
                "adapter": self._name,
                "agent": self._agent,
                "version": version,
                "epoch": pointer.epoch if pointer else 0,
                "result": result,
                "load_seconds": round(load_seconds, 6),
                "time": self._clock.now(),
            },
        )
