"""Keep an agent on the version of an adapter that its channel points to.

A version is verified and prepared on the side; it is applied between two actions. A version that is refused is
counted by reason, and the version in use stays.
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

# Before weights that could not be fetched are asked for again.
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
    """Keeps `holder` on its channel's version, from `start()` to `close()`; survives broker outages.

    Args:
        idle: says whether no action is open; a version that arrives while it is False waits for `apply_pending()`.
        blob_store: where weights may be fetched from that are too large for a record; nowhere as it is.
        state_dir: folder where the newest epochs seen outlive the process; nowhere as it is.
        fetch_wait_ms: how long the broker may hold a request for versions open.
        feed: what it follows; by default what all agents of its loop and tenant share.

    Attributes:
        refused: how many records and versions were refused, by reason.
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
        """Version in use; None without one."""
        return self.holder.version

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the broker answers."""
        self._follower = self._feed or shared_follower(
            self._bootstrap, self._tenant, self._trusted, self._state_dir, self._fetch_wait_ms
        )
        self._joining = asyncio.create_task(self._follower.join(self), name="fleetlore-adapters-join")

    async def close(self) -> None:
        """Stop following. The holder stays on the version it has."""
        running = [task for task in (self._joining, self._fetch) if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)
        if self._follower is not None:
            await self._follower.leave(self)
        self._follower = self._joining = self._fetch = None

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until all that the topics held at the start has been read and staged; False when the time is up."""
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
        """Whether nobody may run a version any more, for all that was read."""
        return self._registry.revoked(version)

    def apply_pending(self) -> bool:
        """Apply the version that waits, if any. The caller promises that no action is open."""
        staged, self._pending = self._pending, None
        if staged is None:
            return False
        self.holder.apply(staged.loaded)
        self._ack(staged.version, "applied", staged.load_seconds)
        return True

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        """One record of the topic `name` (`adapters.weights`, …): keep it, and stage what it completes."""
        try:
            self._registry.take(name, key, value)
        except AdapterRefused as refusal:
            self.refuse(refusal, key)
        await self._stage()

    def refuse(self, refusal: AdapterRefused, key: bytes) -> None:
        """Count a record that was refused, and say so once a reason."""
        what = key.decode(errors="replace")[:100]
        self._refuse(refusal, what)
        # Once a reason: a thousand forged records must not make each agent write as many.
        if self.refused[refusal.reason] == 1:
            self._ack(what, refusal.reason, 0.0, "/refused")

    async def turn(self) -> None:
        """Ask again for weights that could not be fetched."""
        await self._stage()

    async def _stage(self) -> None:
        async with self._staging:  # fetched weights come in between records
            await self._stage_next()

    async def _stage_next(self) -> None:
        pointer = self._registry.pointer
        self._leave_revoked()
        if pointer is None or pointer.version == self.version:
            self._pending = None  # a pointer that went back to the version in use takes away what was waiting
            return
        if self._pending is not None and self._pending.version == pointer.version:
            return
        self._pending = None  # the channel points elsewhere by now, also where that is not here yet
        complete = self._registry.complete()
        if complete is None:
            self._fetch_later()
            return
        weights, manifest = complete
        began = self._clock.monotonic()
        try:
            if self.holder.is_loaded(manifest):  # by another agent: a thread for each would take longer than the rest
                loaded = self.holder.prepare(weights, manifest)
            else:
                # On a thread: loading takes ~20 ms, which the agent's event loop should not feel.
                loaded = await asyncio.to_thread(self.holder.prepare, weights, manifest)
        except AdapterRefused as refusal:
            self._registry.reject(manifest.version)
            self._refuse(refusal, manifest.version)
            self._ack(manifest.version, refusal.reason, self._clock.monotonic() - began)
            return
        if self._registry.complete() is None or self._registry.pointer != pointer:
            return  # rolled back or revoked while it was loaded: what came meanwhile is staged next
        self._pending = _Staged(loaded, self._clock.monotonic() - began)
        if self._idle():
            self.apply_pending()

    def _fetch_later(self) -> None:
        """Fetch weights as a task: a rollback must not wait for a slow store."""
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
            log.warning("adapter %s is revoked: none of %s runs until another comes", version[:12], self._name)
            self.holder.reset()
            self._ack(version, "revoked", 0.0)

    def _refuse(self, refusal: AdapterRefused, what: str) -> None:
        self.refused[refusal.reason] += 1
        stays = self.version or "no version"
        # %r: a key is the sender's own text, and a line of it would look like one of ours.
        log.warning("adapter %s refused, %s stays: %r (%r)", self._name, stays, str(refusal), what)

    def _ack(self, version: str, result: str, load_seconds: float, beside: str = "") -> None:
        """Report a result. Under a key with `beside` it does not replace the version that the agent runs."""
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
