"""Join vLLM: it serves the adapter of a fleet's language model, and only versions that were verified.

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 VLLM_PLUGINS=fleetlore FLEETLORE_LORA_DIR=/var/lib/adapters \\
        vllm serve MODEL --enable-lora

Requests name a version by its content, `fleetlore:TENANT:SHA256` (`LoraFollower.name`): a name that came to mean
another version would be answered from caches of the old one. All else is refused, as is a version that is revoked, that
its channel never pointed to here, or that is of another base.
"""

from __future__ import annotations

import asyncio
import logging

from vllm.lora.request import LoRARequest
from vllm.lora.resolver import LoRAResolver, LoRAResolverRegistry

from fleetlore.config import Settings
from fleetlore.lora.follow import LoraFollower

__all__ = ["register"]

log = logging.getLogger(__name__)
READY_SECONDS = 10.0


class _FleetLoraResolver(LoRAResolver):  # type: ignore[misc]  # vLLM is no requirement of the checks
    """Resolves names of one tenant's versions; it begins to follow them with the first request."""

    def __init__(self, follower: LoraFollower) -> None:
        self._follower = follower
        self._ready: asyncio.Task[None] | None = None

    async def resolve_lora(self, base_model_name: str, lora_name: str) -> LoRARequest | None:
        if not lora_name.startswith(f"fleetlore:{self._follower.tenant}:"):
            return None
        if self._ready is None:
            self._ready = asyncio.create_task(self._follow(), name="fleetlore-lora")
        await asyncio.shield(self._ready)  # for all requests: the first may be given up
        found = self._follower.find(lora_name)
        if found is None or found.manifest.base != base_model_name:
            log.warning("adapter %.120r is not one that may be served on %.120r", lora_name, base_model_name)
            return None
        # Positive, of 31 bits: two versions of one server meet in it with a chance of one in a thousand million.
        number = int(found.manifest.version[:8], 16) >> 1 or 1
        return LoRARequest(lora_name=lora_name, lora_int_id=number, lora_path=str(found.path))

    async def close(self) -> None:
        if self._ready is not None:
            await self._ready
            await self._follower.close()

    async def _follow(self) -> None:
        await self._follower.start()
        await self._follower.ready(READY_SECONDS)


def register() -> None:
    """Entry point `vllm.general_plugins`: a resolver for each tenant, where `FLEETLORE_LORA_DIR` is set.

    Raises:
        ConfigError: no key is trusted (`FLEETLORE_PUBLIC_KEY`).
    """
    settings = Settings.from_env(unknown_refused=False)
    for tenant in settings.tenants if settings.lora_dir else ():
        resolver = _FleetLoraResolver(LoraFollower(settings.lora_dir, tenant=tenant))
        LoRAResolverRegistry.register_resolver(f"fleetlore:{tenant}", resolver)
