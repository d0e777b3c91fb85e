"""Hold the running version of an adapter, and check the next one."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from fleetlore.wire.adapter_manifest import AdapterManifest

__all__ = ["AdapterSlot"]

Value = TypeVar("Value")


class AdapterSlot(ABC, Generic[Value]):
    """Runs one version of an adapter at a time, initially none. `kind`: class of the manifests."""

    kind: ClassVar[type[AdapterManifest]]

    def __init__(self) -> None:
        self.current: tuple[Any, Value] | None = None  # its manifest and loaded value

    @property
    def version(self) -> str | None:
        """sha256 of the weights in use, or None."""
        return self.current[0].version if self.current is not None else None

    @property
    def value(self) -> Value | None:
        return self.current[1] if self.current is not None else None

    @abstractmethod
    def load(self, weights: bytes, manifest: Any) -> Value:
        """Load weights of verified size and hash without touching the version in use. Raises AdapterRefused."""

    def apply(self, manifest: Any, value: Value) -> None:
        self.current = manifest, value

    def reset(self) -> None:
        self.current = None

    def is_loaded(self, manifest: Any) -> bool:
        return False
