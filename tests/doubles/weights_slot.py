"""A slot that keeps the bytes of a LoRA and looks at none of them."""

from fleetlore.adapters.slot import AdapterSlot
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import LanguageModelManifest

FOREIGN = "0" * 64


class WeightsSlot(AdapterSlot[bytes]):
    """Runs one version at a time. It refuses a version over the base `FOREIGN`."""

    kind = LanguageModelManifest

    def load(self, weights: bytes, manifest: LanguageModelManifest) -> bytes:
        if manifest.base_sha256 == FOREIGN:
            raise AdapterRefused("foreign", "made for another base")
        return weights
