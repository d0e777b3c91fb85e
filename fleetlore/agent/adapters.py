"""Follow the adapters that an agent uses, and change from one version to the next between two of its actions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fleetlore.adapters.slot import SharedSlot
from fleetlore.calls.model import CallModel
from fleetlore.clock import Clock
from fleetlore.cluster import Bootstrap
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.kafka.client import backoff
from fleetlore.stack_folder import StackFolder
from fleetlore.wire.adapter_manifest import CallsManifest

if TYPE_CHECKING:
    from fleetlore.adapters.subscriber import AdapterSubscriber, Holder
    from fleetlore.retrieval.adapter import RetrievalSlot

__all__ = ["AgentAdapters"]

log = logging.getLogger(__name__)


class CallModelSlot(SharedSlot[CallModel]):
    """Runs one version of the call model at a time."""

    kind = CallsManifest

    def read(self, weights: bytes, manifest: CallsManifest) -> CallModel:
        """Raises AdapterRefused: `structure`."""
        try:
            return CallModel.from_bytes(weights)
        except ValueError as error:
            raise AdapterRefused("structure", str(error)) from error


class AgentAdapters:
    """What one agent follows: nothing without a public key.

    Args:
        lock: the fleet's, under which a version is swapped.
        retrieval: whether to follow the adapter too by which ways out are ranked.

    Attributes:
        calls, retrieval: who follows the call model and the retrieval adapter; None before `start`, or where it is not
            followed.
        subscribers: both, as far as they are followed.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        settings: Settings,
        tenant: str,
        agent: str,
        clock: Clock,
        lock: threading.RLock,
        *,
        retrieval: bool,
    ) -> None:
        self.calls: AdapterSubscriber[CallModelSlot] | None = None
        self.retrieval: AdapterSubscriber[RetrievalSlot] | None = None
        self.subscribers: list[AdapterSubscriber[Any]] = []
        self._bootstrap, self._settings, self._tenant, self._agent = bootstrap, settings, tenant, agent
        self._clock, self._lock, self._with_retrieval = clock, lock, retrieval
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._open_actions = 0
        self._waiting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to follow. Raises ModelUnavailable without the extra `[adapters]`, where that is needed."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if not self._settings.public_key:
            if isinstance(self._bootstrap, StackFolder):
                if self._with_retrieval:
                    await asyncio.to_thread(_check_extra)
                self._waiting = asyncio.create_task(self._wait_for_key(self._bootstrap), name="fleetlore-key")
                return
            if not self._with_retrieval:
                log.info("FLEETLORE_PUBLIC_KEY is empty: agent %s runs without the call model", self._agent)
                return
        await self._follow()

    async def _wait_for_key(self, folder: StackFolder) -> None:
        for delay in backoff():
            try:
                key = folder.read()["public_key"]
            except ConfigError:
                await asyncio.sleep(delay)
                continue
            self._settings = self._settings.with_(public_key=key)
            if key or self._with_retrieval:
                await self._follow()
            return

    async def _follow(self) -> None:
        # On a thread: the encoder's table takes a tenth of a second, which the agent's event loop should not feel.
        await asyncio.to_thread(self._load)
        self.subscribers = [each for each in (self.calls, self.retrieval) if each is not None]
        for subscriber in self.subscribers:
            await subscriber.start()

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        await asyncio.gather(*(each.close() for each in self.subscribers))

    @property
    def version(self) -> str | None:
        """That of the retrieval adapter; None without one."""
        return self.retrieval.version if self.retrieval is not None else None

    @property
    def refused(self) -> dict[str, int]:
        """How many records and versions were refused, by reason."""
        return dict(sum((each.refused for each in self.subscribers), Counter()))

    def action_opens(self) -> str | None:
        """Begin an action: nothing is swapped until it ends. Returns the version that it runs with."""
        self._open_actions += 1
        return self.version

    def action_closes(self) -> None:
        """An action ended; between two actions is where a new version takes over."""
        self._open_actions -= 1
        if self._open_actions == 0 and self.subscribers:
            if self._loop is None or self._thread == threading.get_ident():
                self._swap()
            else:
                with suppress(RuntimeError):  # the loop has ended, and the agent with it
                    self._loop.call_soon_threadsafe(self._swap)

    def _swap(self) -> None:
        with self._lock:
            if self._open_actions == 0:
                for subscriber in self.subscribers:
                    subscriber.apply_pending()

    def _load(self) -> None:
        self.calls = self._subscriber_of(CallModelSlot())
        if self._with_retrieval:
            from fleetlore.retrieval.adapter import RetrievalSlot

            self.retrieval = self._subscriber_of(RetrievalSlot())

    def _subscriber_of(self, holder: Holder) -> AdapterSubscriber[Holder]:
        from fleetlore.adapters.blob_store import BlobStore
        from fleetlore.adapters.signatures import public_keys  # takes 50 ms, which an agent without a key is spared
        from fleetlore.adapters.subscriber import AdapterSubscriber

        return AdapterSubscriber(
            self._bootstrap,
            self._tenant,
            self._agent,
            public_keys(self._settings.public_key),
            holder,
            idle=lambda: self._open_actions == 0,
            blob_store=BlobStore(self._settings.weights_storage),
            state_dir=self._settings.state_dir,
            fetch_wait_ms=self._settings.fetch_wait_ms,
            clock=self._clock,
        )


def _check_extra() -> None:
    from fleetlore.retrieval.adapter import RetrievalSlot

    RetrievalSlot()
