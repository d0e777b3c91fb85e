"""Follow the policy adapter, a LoRA of the agents' own language model."""

import asyncio
import logging
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple, Self

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.signatures import public_keys
from fleetlore.adapters.slot import AdapterSlot
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.cluster import StackFolder
from fleetlore.config import DEFAULT_TENANT, Settings, check_tenant
from fleetlore.errors import AdapterRefused, extra
from fleetlore.kafka.client import backoff
from fleetlore.lora.adapter import CONFIG, WEIGHTS, check_lora, config_of
from fleetlore.lora.llama import GGUF, LlamaServer, as_gguf
from fleetlore.wire.adapter_manifest import LanguageModelManifest

__all__ = ["PolicyFollower"]

log = logging.getLogger(__name__)


class KeptLora(NamedTuple):
    """A version that passed every check, and its folder."""

    manifest: LanguageModelManifest
    path: Path


class LoraSlot(AdapterSlot[Path]):
    """Runs one version at a time, in `folder/SHA256/`, and deletes the previous one."""

    kind = LanguageModelManifest

    def __init__(self, folder: Path, llama: LlamaServer | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._llama = llama
        self._wanted: asyncio.Queue[Path | None] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None

    def load(self, weights: bytes, manifest: LanguageModelManifest) -> Path:
        check_lora(weights, manifest)
        path = self._folder / manifest.version
        files = {WEIGHTS: weights, CONFIG: config_of(manifest)}
        if self._llama is not None:
            files[GGUF] = as_gguf(weights, manifest)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _put(path, files)
        except OSError as error:
            raise AdapterRefused("unwritable", f"{self._folder}: {error}") from None
        return path

    def apply(self, manifest: LanguageModelManifest, value: Path) -> None:
        if self.version != manifest.version:
            self._drop()
        super().apply(manifest, value)
        self._serve(value / GGUF)

    def reset(self) -> None:
        self._drop()
        super().reset()
        self._serve(None)

    def _drop(self) -> None:
        if self.value is not None:
            shutil.rmtree(self.value, ignore_errors=True)

    def _serve(self, file: Path | None) -> None:
        """In the background: a rollback must not wait for a server that hangs."""
        if self._llama is None:
            return
        self._wanted.put_nowait(file)
        if self._serving is None:
            self._serving = asyncio.create_task(self._switch(self._llama), name="fleetlore-llama")

    async def _switch(self, llama: LlamaServer) -> None:
        while True:
            file = await self._wanted.get()
            for delay in backoff():
                while not self._wanted.empty():
                    file = self._wanted.get_nowait()
                if await self._is_switched(llama, file):
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        file = await self._wanted.get()

    async def _is_switched(self, llama: LlamaServer, file: Path | None) -> bool:
        try:
            if await asyncio.to_thread(llama.run, file):
                return True
            log.warning("llama.cpp has not loaded %s: start it again with --lora %s", file, file)
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("llama.cpp could not be switched to %s, trying again: %r", file, error)
        return False

    def stop_serving(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None


def _put(path: Path, files: dict[str, bytes]) -> None:
    """An equal folder stays, because another process may serve from it."""
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


class PolicyFollower(AdapterSubscriber[LoraSlot]):
    """Keeps its channel's verified version in a folder that `peft` and vLLM load, and switches llama.cpp to it.

        async with PolicyFollower("adapters") as policy, Fleet("support:1", policy=policy) as fleet:
            await policy.ready(10)
            model.load_adapter(str(policy.current.path), policy.version)

    Broker, keys and blob store come from the settings (`FLEETLORE_*`) or from a stack's folder.

    Args:
        folder: private folder of the version, `folder/SHA256/`. It is empty at first.
        server: name of the follower, by which it is drawn for a canary's share: that of the agent if it has a server of
            its own. It also signs the acks.
        llama: llama.cpp's server, which then runs the version and no other one. Needs the extra `[llama]`.
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
        llama: LlamaServer | None = None,
    ) -> None:
        check_tenant(tenant)
        with extra("adapters", "a LoRA is checked with"):
            import safetensors  # noqa: F401 - without it the first version would end the subscription silently
        settings = Settings.from_data_dir(data, broker=broker, unknown_refused=False)
        super().__init__(
            settings.cluster if data is None else StackFolder(Path(data)),
            tenant,
            server,
            public_keys(settings.public_key),
            LoraSlot(Path(folder).absolute(), llama),
            blob_store=BlobStore(settings.weights_storage),
            state_dir=settings.state_dir,
            fetch_wait_ms=settings.fetch_wait_ms,
        )

    async def close(self) -> None:
        self.holder.stop_serving()
        await super().close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ready(self, timeout_seconds: float) -> bool:
        """Wait until the published version is here. Return False on time-out."""
        return await self.caught_up(timeout_seconds)

    @property
    def current(self) -> KeptLora | None:
        return KeptLora(*self.holder.current) if self.holder.current is not None else None
