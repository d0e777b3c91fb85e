"""Follow the adapter of the agents' own language model: `LoraFollower` keeps the published version in a folder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple, Self

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.signatures import public_keys
from fleetlore.adapters.slot import AdapterSlot, Prepared
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.config import DEFAULT_TENANT, Settings, check_tenant
from fleetlore.errors import AdapterRefused, ModelUnavailable
from fleetlore.lora.adapter import CONFIG, WEIGHTS, check_lora, config_of
from fleetlore.stack_folder import StackFolder
from fleetlore.wire.adapter_manifest import LanguageModelManifest

__all__ = ["LoraFollower"]


class KeptLora(NamedTuple):
    """A version that passed every check, and its folder."""

    manifest: LanguageModelManifest
    path: Path


class LoraSlot(AdapterSlot[Path]):
    """Runs one version at a time, in `folder/SHA256/`, and deletes the previous one. Other content is ignored."""

    kind = LanguageModelManifest

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def load(self, weights: bytes, manifest: LanguageModelManifest) -> Path:
        check_lora(weights, manifest)
        path = self._folder / manifest.version
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _put(path, {WEIGHTS: weights, CONFIG: config_of(manifest)})
        except OSError as error:
            raise AdapterRefused("unwritable", f"{self._folder}: {error}") from None
        return path

    def apply(self, loaded: Prepared[Path]) -> None:
        if self.version != loaded.manifest.version:
            self._drop()
        super().apply(loaded)

    def reset(self) -> None:
        self._drop()
        super().reset()

    def _drop(self) -> None:
        if self.value is not None:
            shutil.rmtree(self.value, ignore_errors=True)


def _put(path: Path, files: dict[str, bytes]) -> None:
    """Make a folder with exactly these files. An equal one stays, because another process may serve from it."""
    if _holds(path, files):
        return
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as scratch:
        made = Path(scratch) / path.name
        made.mkdir(mode=0o700)
        for name, content in files.items():
            (made / name).write_bytes(content)
        shutil.rmtree(path, ignore_errors=True)  # foreign content
        try:
            made.rename(path)
        except OSError:
            if not _holds(path, files):  # another process wrote the same files first
                raise


def _holds(path: Path, files: dict[str, bytes]) -> bool:
    try:
        sizes = {each.name: each.lstat().st_size if S_ISREG(each.lstat().st_mode) else -1 for each in path.iterdir()}
        if path.is_symlink() or sizes != {name: len(content) for name, content in files.items()}:
            return False
        return all((path / name).read_bytes() == content for name, content in files.items())
    except OSError:
        return False


class LoraFollower:
    """Keeps its channel's verified version in a folder that `peft` and vLLM load.

        async with LoraFollower("adapters") as lora:
            await lora.ready(10)
            model.load_adapter(str(lora.current.path), lora.current.manifest.version)

    Broker, keys and blob store come from the settings (`FLEETLORE_*`) or from a stack's folder.

    Args:
        folder: private folder of the version, `folder/SHA256/`. It is empty at first.
        server: name of the follower. It draws the share of a canary and signs the acks.
        data: folder of a running `fleetlore up --data DIR`.

    Raises:
        ConfigError: no key is trusted (`FLEETLORE_PUBLIC_KEY`), or a setting is malformed.
        ModelUnavailable: the extra `[adapters]` is not installed.
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
        try:
            import safetensors  # noqa: F401 - else the first version that comes ends the subscription, without a word
        except ImportError:
            raise ModelUnavailable("a LoRA is checked with safetensors: pip install 'fleetlore[adapters]'") from None
        settings = (
            Settings.from_env(broker=broker, unknown_refused=False)
            if data is None
            else Settings.from_data_dir(data, unknown_refused=False)
        )
        self._slot = LoraSlot(Path(folder))
        self._subscriber = AdapterSubscriber(
            settings.cluster if data is None else StackFolder(Path(data)),
            self.tenant,
            server,
            public_keys(settings.public_key),
            self._slot,
            blob_store=BlobStore(settings.weights_storage),
            state_dir=settings.state_dir,
            fetch_wait_ms=settings.fetch_wait_ms,
        )

    async def start(self) -> None:
        """Start to follow. It returns at once, even without a broker."""
        await self._subscriber.start()

    async def close(self) -> None:
        await self._subscriber.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ready(self, timeout_seconds: float) -> bool:
        """Wait until the published version is here. Return False on time-out."""
        return await self._subscriber.caught_up(timeout_seconds)

    @property
    def current(self) -> KeptLora | None:
        return KeptLora(*self._slot.current) if self._slot.current is not None else None

    @property
    def refused(self) -> dict[str, int]:
        return dict(self._subscriber.refused)
