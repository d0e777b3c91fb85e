"""Follow the adapter of the agents' own language model: `LoraFollower` keeps the published version in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.signatures import public_keys
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.config import Settings
from fleetlore.lora.slot import KeptLora, LoraSlot
from fleetlore.tenants import DEFAULT_TENANT, check_tenant


class LoraFollower:
    """The version that its channel points to, verified, as a folder that `peft` and vLLM load.

        async with LoraFollower("adapters") as lora:
            await lora.ready(10)
            model.load_adapter(str(lora.current.path), lora.name)

    Broker, keys and the storage of weights come from the settings (`FLEETLORE_*`), or from the folder of a stack.

    Args:
        folder: where versions are kept, `folder/SHA256/`.
        server: who follows: its share of a canary is drawn by this name, and it tells what it runs under it.
        data: folder of a running `fleetlore up --data DIR`.

    Raises:
        ConfigError: no key is trusted (`FLEETLORE_PUBLIC_KEY`), or a setting is malformed.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tenant: str = DEFAULT_TENANT,
        server: str = "language-model",
        broker: str | None = None,
        data: str | Path | None = None,
    ) -> None:
        self.tenant = check_tenant(tenant)
        settings = (
            Settings.from_env(broker=broker, unknown_refused=False)
            if data is None
            else Settings.from_data_dir(data, unknown_refused=False)
        )
        self._slot = LoraSlot(Path(folder))
        self._subscriber = AdapterSubscriber(
            settings.cluster,
            self.tenant,
            server,
            public_keys(settings.public_key),
            self._slot,
            blob_store=BlobStore(settings.weights_storage),
            state_dir=settings.state_dir,
            fetch_wait_ms=settings.fetch_wait_ms,
        )

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the broker answers."""
        await self._subscriber.start()

    async def close(self) -> None:
        """Follow no more; the version in use stays in the folder."""
        await self._subscriber.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ready(self, timeout_seconds: float) -> bool:
        """Wait until what was published before is here; False if time is up."""
        return await self._subscriber.caught_up(timeout_seconds)

    @property
    def current(self) -> KeptLora | None:
        """The version to run; None without one."""
        return self._slot.current

    @property
    def name(self) -> str | None:
        """Name under which to ask for this version: `fleetlore:TENANT:SHA256`. Another version has another name."""
        return f"fleetlore:{self.tenant}:{self._slot.version}" if self._slot.version else None

    @property
    def refused(self) -> dict[str, int]:
        """How many records and versions were refused, by reason."""
        return dict(self._subscriber.refused)

    def find(self, name: str) -> KeptLora | None:
        """The version of this name, if it is or was in use here and is not revoked."""
        prefix, _, version = name.rpartition(":")
        kept = self._slot.kept.get(version) if prefix == f"fleetlore:{self.tenant}" else None
        return None if kept is None or self._subscriber.is_revoked(version) else kept
