"""Follow the call model, and swap versions between two of the agent's actions."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from fleetlore.adapters.slot import AdapterSlot
from fleetlore.calls.model import CallModel
from fleetlore.cluster import StackFolder
from fleetlore.config import join_keys
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.kafka.client import backoff
from fleetlore.limits import process_lock
from fleetlore.wire.adapter_manifest import CallsManifest

if TYPE_CHECKING:
    from fleetlore.adapters.subscriber import AdapterSubscriber
    from fleetlore.agent.fleet import Fleet

__all__ = ["AgentAdapters"]

log = logging.getLogger(__name__)

# By version. All agents of the process share a model, which is immutable.
_loaded: WeakValueDictionary[str, CallModel] = WeakValueDictionary()
_loading = process_lock()


class CallModelSlot(AdapterSlot[CallModel]):
    kind = CallsManifest

    def load(self, weights: bytes, manifest: CallsManifest) -> CallModel:
        with _loading:
            model = _loaded.get(manifest.version)
            if model is None:
                try:
                    model = _loaded[manifest.version] = CallModel.from_bytes(weights)
                except ValueError as error:
                    raise AdapterRefused("structure", str(error)) from error
            return model

    def is_loaded(self, manifest: CallsManifest) -> bool:
        return manifest.version in _loaded


class AgentAdapters:
    """Follows the call model for one agent, if it has a public key.

    `model`: the running version. `calls`: its follower; it has none before `start` or without a key.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.model = CallModelSlot()
        self.calls: AdapterSubscriber[CallModelSlot] | None = None
        self._fleet, self._settings = fleet, fleet.settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._open_actions = 0
        self._waiting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        folder = self._fleet.bootstrap
        if isinstance(folder, StackFolder) and not self._add_key_of(folder):
            self._waiting = asyncio.create_task(self._wait_for_key(folder), name="fleetlore-key")
        elif self._settings.public_key:
            await self._follow()
        else:
            log.info("FLEETLORE_PUBLIC_KEY is empty: agent %s runs without the call model", self._fleet.agent)

    async def _wait_for_key(self, folder: StackFolder) -> None:
        for delay in backoff():
            if self._add_key_of(folder):
                break
            await asyncio.sleep(delay)
        if self._settings.public_key:
            await self._follow()

    def _add_key_of(self, folder: StackFolder) -> bool:
        try:
            keys = folder.read()["public_key"]
        except ConfigError:
            return False
        self._settings = self._settings.with_(public_key=join_keys(keys, self._settings.public_key))
        return True

    async def _follow(self) -> None:
        # The import takes 50 ms.
        self.calls = await asyncio.to_thread(self._subscriber)
        await self.calls.start()

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        if self.calls is not None:
            await self.calls.close()

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait for the current version. Return False on time-out."""
        return self.calls is None or await self.calls.caught_up(timeout_seconds)

    def action_opens(self) -> None:
        self._open_actions += 1

    def action_closes(self) -> None:
        """A new version may now take over."""
        self._open_actions -= 1
        if self._open_actions == 0 and self.calls is not None:
            if self._loop is None or self._thread == threading.get_ident():
                self._swap()
            else:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._swap)

    def _swap(self) -> None:
        with self._fleet.lock:
            if self._open_actions == 0 and self.calls is not None:
                self.calls.apply_pending()

    def _subscriber(self) -> AdapterSubscriber[CallModelSlot]:
        from fleetlore.adapters.signatures import public_keys  # 50 ms, spared without a key
        from fleetlore.adapters.subscriber import AdapterSubscriber

        return AdapterSubscriber(
            self._fleet.bootstrap,
            self._fleet.tenant,
            self._fleet.agent,
            public_keys(self._settings.public_key),
            self.model,
            idle=lambda: self._open_actions == 0,
            state_dir=self._settings.state_dir,
            fetch_wait_ms=self._settings.fetch_wait_ms,
            clock=self._fleet.clock,
        )
