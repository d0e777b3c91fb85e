"""Hold the version of an adapter that runs, and check the next one beside it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from fleetlore.adapters.blob_store import sha256_of
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import AdapterManifest

__all__ = ["AdapterSlot", "Prepared", "SharedSlot"]

Value = TypeVar("Value")


class Prepared(NamedTuple, Generic[Value]):
    """A version that passed every check, and what was made of its weights."""

    manifest: Any
    value: Value


class AdapterSlot(ABC, Generic[Value]):
    """Runs the versions of one adapter, one at a time; at first none.

    Attributes:
        kind: of the adapter's manifests.
        current: what runs.
    """

    kind: ClassVar[type[AdapterManifest]]

    def __init__(self) -> None:
        self.current: Prepared[Value] | None = None

    @property
    def version(self) -> str | None:
        """sha256 of the weights in use; None without a version."""
        return self.current.manifest.version if self.current is not None else None

    @property
    def value(self) -> Value | None:
        """What was made of the version in use."""
        return self.current.value if self.current is not None else None

    def prepare(self, weights: bytes, manifest: AdapterManifest) -> Prepared[Value]:
        """Check everything and load; the version in use is not touched. Safe on another thread.

        Raises:
            AdapterRefused: `oversized`, `tampered`, or what `load` says.
        """
        if len(weights) > manifest.most_bytes:
            raise AdapterRefused("oversized", f"{len(weights)} bytes")
        if sha256_of(weights) != manifest.version:
            raise AdapterRefused("tampered", "the weights are not the ones the manifest names")
        return Prepared(manifest, self.load(weights, manifest))

    @abstractmethod
    def load(self, weights: bytes, manifest: Any) -> Value:
        """What is made of weights whose size and hash are right. Raises AdapterRefused."""

    def apply(self, loaded: Prepared[Value]) -> None:
        """Put what `prepare` gave into use."""
        self.current = loaded

    def reset(self) -> None:
        """Run no version."""
        self.current = None

    def is_loaded(self, manifest: Any) -> bool:
        """Whether to prepare it takes no thread, as it is loaded in this process already."""
        return False


# By adapter and `SharedSlot.key`.
_loaded: WeakValueDictionary[tuple[str, Hashable], Any] = WeakValueDictionary()
_LOADING = threading.Lock()


class SharedSlot(AdapterSlot[Value]):
    """Runs what is never written to: what one agent of the process has loaded serves all."""

    def key(self, manifest: Any) -> Hashable:
        """All of a manifest that `read` looks at, the hash of the weights among it."""
        version: str = manifest.version
        return version

    @abstractmethod
    def read(self, weights: bytes, manifest: Any) -> Value:
        """As `load`, the first time in this process."""

    def load(self, weights: bytes, manifest: Any) -> Value:
        key = self.kind.name, self.key(manifest)
        with _LOADING:
            value: Value | None = _loaded.get(key)
            if value is None:
                value = _loaded[key] = self.read(weights, manifest)
            return value

    def is_loaded(self, manifest: Any) -> bool:
        return (self.kind.name, self.key(manifest)) in _loaded
