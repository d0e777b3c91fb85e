"""Makes a version again from its parent and the sessions that its manifest names."""

from __future__ import annotations

from collections.abc import Mapping

from fleetlore.errors import AdapterRefused
from fleetlore.risk.encoder import StaticEncoder
from fleetlore.risk.network import Base
from fleetlore.wire.adapter_manifest import AdapterManifest, Place
from fleetlore.wire.trajectory import Judgment
from models.adapter.lora_trainer import ContrastiveTrainer, TrainerConfig
from models.data.dataset import Example, examples_of


def reproduce(
    manifest: AdapterManifest,
    parent: bytes | None,
    sessions: Mapping[Place, Judgment],
    base: Base,
    encoder: StaticEncoder,
) -> bytes:
    """The weights that the manifest's batches make of its parent; the manifest is true if their sha256 is its version.

    Equal to the byte on a CPU with one thread, under the release of torch that the manifest names.

    Args:
        parent: weights of the version that it goes back to; None if it was made of the bare base.
        sessions: every session that the batches name, under its place in the window 0.

    Raises AdapterRefused: `foreign` for another base, encoder or settings that this release does not have, `malformed`
    where a place does not hold a session that can be learned.
    """
    if manifest.base_sha256 != base.sha256 or manifest.encoder_sha256 != encoder.sha256:
        raise AdapterRefused("foreign", "made over another base or with another encoder")
    if manifest.privacy is not None:
        raise AdapterRefused("foreign", "made with differential privacy: its noise is kept nowhere")
    known = TrainerConfig.__dataclass_fields__
    if not manifest.batches or set(manifest.training) != set(known):
        raise AdapterRefused("foreign", "its manifest does not say how it was made")
    settings = {name: (int if known[name].type == "int" else float)(value) for name, value in manifest.training.items()}
    trainer = ContrastiveTrainer(base, TrainerConfig(**settings))  # type: ignore[arg-type]
    if parent is not None:
        trainer.resume(parent)
    read: dict[Place, list[Example]] = {}

    def example(place: Place) -> Example:
        first = place._replace(window=0)
        if first not in read:
            read[first] = examples_of(sessions[first], encoder, first)
        try:
            return read[first][place.window]
        except IndexError:
            raise AdapterRefused("malformed", f"{place} is no session") from None

    for batch in manifest.batches:
        new, rehearsed = ([example(Place(*place)) for place in places] for places in (batch.new, batch.rehearsed))
        trainer.update(new, rehearsed, batch.stale)
    return trainer.weights()
