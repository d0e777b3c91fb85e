"""Keep an agent on its channel's version of an adapter.

Versions are verified and loaded in the background and applied between actions. After a refusal the version in use
stays.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.follower import FETCH_WAIT_MS, STOP_SECONDS, AdapterFollower, shared_follower
from fleetlore.adapters.signatures import PublicKeys
from fleetlore.adapters.slot import AdapterSlot
from fleetlore.adapters.view import AdapterView, Release
from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import AdapterManifest

__all__ = ["AdapterSubscriber"]

log = logging.getLogger(__name__)

REFETCH_SECONDS = 10.0

Holder = TypeVar("Holder", bound=AdapterSlot[Any])


class AdapterSubscriber(Generic[Holder]):
    """Keeps `holder` on its channel's version from `start()` to `close()`, across outages. `idle`: returns whether no
    action is open; otherwise a new version waits for `apply_pending()`. `refused`: number by reason.
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
        feed: AdapterFollower | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.holder = holder
        self.refused: Counter[str] = Counter()
        self._name = holder.kind.name
        self._agent = agent
        self._idle = idle
        self._clock = clock or SystemClock()
        self._blob_store = blob_store or BlobStore("")
        self._staging = asyncio.Lock()
        self._fetch: asyncio.Task[None] | None = None
        self._fetched: tuple[str, bytes] | None = None  # Only of one version, because fetched weights are large.
        self._refetch: tuple[str, float] | None = None
        self._rejected: set[str] = set()  # by version, whose content cannot change
        self._running: Release[AdapterManifest] | None = None
        # With the loaded value, and the seconds that it took to load.
        self._pending: tuple[Release[AdapterManifest], Any, float] | None = None
        self._follower = feed
        self._find_follower: Callable[[], AdapterFollower] = lambda: (
            feed or shared_follower(bootstrap, tenant, trusted, state_dir, fetch_wait_ms)
        )
        self._joining: asyncio.Task[None] | None = None

    @property
    def version(self) -> str | None:
        return self.holder.version

    async def start(self) -> None:
        self._follower = self._find_follower()
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

    def apply_pending(self) -> bool:
        """Apply the waiting version, if any. No action may be open."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        release, loaded, load_seconds = pending
        self.holder.apply(release.manifest, loaded)
        self._running = release
        self._ack(release.record.version, "applied", load_seconds)
        return True

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        what = key.decode(errors="replace")[:100]
        self._refuse(refusal, what)
        # A thousand forged records must not fill the log.
        if self.refused[refusal.reason] == 1:
            self._ack(what, refusal.reason, 0.0, "/refused")

    async def turn(self) -> None:
        async with self._staging:  # fetched weights arrive between records
            await self._stage()

    @property
    def _view(self) -> AdapterView[AdapterManifest] | None:
        return self._follower.views[self._name] if self._follower is not None else None

    async def _stage(self) -> None:
        view = self._view
        if view is None:
            return
        release = view.followed_by(self._agent)
        if release is not None and release.record.version == self.version:
            self._running = release  # another key may have signed it anew
        self._leave_revoked(view)
        if release is None or release.record.version == self.version:
            self._pending = None  # the channel returned to the version in use
            return
        version = release.record.version
        if self._pending is not None and self._pending[0].record.version == version:
            return
        self._pending = None  # the channel has moved, even if that version is incomplete
        if version in self._rejected or view.revoked(release) or (weights := self._weights(release)) is None:
            return
        manifest, began = release.manifest, self._clock.monotonic()
        try:
            if self.holder.is_loaded(manifest):  # another agent has loaded it, so a thread would cost more
                loaded = self.holder.load(weights, manifest)
            else:
                # Loading takes about 20 ms, too long for the event loop.
                loaded = await asyncio.to_thread(self.holder.load, weights, manifest)
        except AdapterRefused as refusal:
            self._rejected.add(version)
            self._refuse(refusal, version)
            self._ack(version, refusal.reason, self._clock.monotonic() - began)
            return
        self._fetched = None  # it is loaded, and may be of half a gigabyte
        if view.revoked(release) or view.followed_by(self._agent) != release:
            return  # it was rolled back or revoked during loading; the newest is staged next
        self._pending = release, loaded, self._clock.monotonic() - began
        if self._idle():
            self.apply_pending()

    def _weights(self, release: Release[AdapterManifest]) -> bytes | None:
        """Fetch in a task: a rollback must not wait for a slow store."""
        uri = release.record.uri
        if not uri:
            return release.weights
        if self._fetched is not None and self._fetched[0] == release.record.version:
            return self._fetched[1]
        if self._fetch is not None and not self._fetch.done():
            return None
        if self._refetch is None or self._refetch[0] != uri or self._refetch[1] <= self._clock.monotonic():
            self._fetch = asyncio.create_task(self._fetch_from(uri, release.manifest), name="fleetlore-weights")
        return None

    async def _fetch_from(self, uri: str, manifest: AdapterManifest) -> None:
        began = self._clock.monotonic()
        try:
            weights = await asyncio.to_thread(self._blob_store.fetch, uri, manifest)
        except AdapterRefused as refusal:
            now = self._clock.monotonic()
            self._refetch = uri, now + REFETCH_SECONDS
            self._refuse(refusal, manifest.version)
            self._ack(manifest.version, refusal.reason, now - began)
            return
        self._fetched = manifest.version, weights
        await self.turn()

    def _leave_revoked(self, view: AdapterView[AdapterManifest]) -> None:
        if self._pending is not None and view.revoked(self._pending[0]):
            self._pending = None
        running = self._running
        if running is not None and view.revoked(running):
            version = running.record.version
            log.warning("adapter %s is revoked: no version of %s runs until the next one", version[:12], self._name)
            self.holder.reset()
            self._running = None
            self._ack(version, "revoked", 0.0)

    def _refuse(self, refusal: AdapterRefused, what: str) -> None:
        self.refused[refusal.reason] += 1
        stays = self.version or "no version"
        # %r, because keys are senders' texts and could forge a log line.
        log.warning("adapter %s refused, %s stays: %r (%r)", self._name, stays, str(refusal), what)

    def _ack(self, version: str, result: str, load_seconds: float, beside: str = "") -> None:
        """With `beside` in its key, a result does not replace the running version's."""
        view = self._view
        if self._follower is None or view is None:
            return
        followed = view.followed_by(self._agent)
        epoch = followed.record.epoch if followed else 0
        ack = {"adapter": self._name, "agent": self._agent, "version": version, "epoch": epoch, "result": result}
        ack |= {"load_seconds": round(load_seconds, 6), "time": self._clock.now()}
        self._follower.ack(f"{self._name}/{self._agent}{beside}", ack)
