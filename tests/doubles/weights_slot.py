"""A slot that keeps the bytes of a LoRA and looks at none of them."""

from fleetlore.adapters.slot import SharedSlot
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import LanguageModelManifest

FOREIGN = "0" * 64


class Kept:
    """The weights of a version."""

    def __init__(self, weights: bytes) -> None:
        self.weights = weights


class WeightsSlot(SharedSlot[Kept]):
    """Runs one version at a time. It refuses a version over the base `FOREIGN`."""

    kind = LanguageModelManifest

    def load(self, weights: bytes, manifest: LanguageModelManifest) -> Kept:
        if manifest.base_sha256 == FOREIGN:
            raise AdapterRefused("foreign", "made for another base")
        return super().load(weights, manifest)

    def read(self, weights: bytes) -> Kept:
        return Kept(weights)
