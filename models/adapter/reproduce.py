"""Write down what a version was made of, and make it again from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch

from fleetlore.errors import AdapterRefused
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.network import LORA_TARGETS, Base, adapter_shapes, probe_answers
from fleetlore.wire.adapter_manifest import (
    Blend,
    DataRange,
    Place,
    Probe,
    ProceduralManifest,
    TrainedBatch,
)
from fleetlore.wire.trajectory import Judgment
from models.adapter.admission import WaitingSession
from models.adapter.lora_trainer import ContrastiveTrainer, TrainerConfig, version_of
from models.adapter.prototypes import goal_prototypes, signatures_of
from models.data.dataset import Example, examples_of
from models.promotion.gate import GateReport

PROBE_SEED = 1


@dataclass(slots=True)
class Provenance:
    """What was learned since the parent version: batches in order, agents, ids of sessions, and sessions by judge."""

    batches: list[TrainedBatch] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    judges: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        batch: Iterable[WaitingSession],
        new: Sequence[Example],
        rehearsed: Sequence[Example],
        stale: frozenset[str],
    ) -> None:
        """Record one update.

        Args:
            batch: the sessions whose turn it was; `new` are the examples of them that were learned.
            stale: as in `ContrastiveTrainer.update`.
        """
        self.batches.append(TrainedBatch(_places(new), _places(rehearsed), tuple(sorted(stale))))
        learned = {example.session for example in new}
        taken = [session for session in batch if session.examples[0].session in learned]
        self.agents.update(session.agent for session in taken)
        self.sessions.update(session.id for session in taken)
        self.judges.update(session.judge for session in taken)

    def manifest(
        self,
        weights: bytes,
        report: GateReport,
        trainer: ContrastiveTrainer,
        encoder: StaticEncoder,
        known: Sequence[Example],
        blends: tuple[Blend, ...],
        *,
        tenant: str,
        ordinal: int,
        parent: str | None,
        data: tuple[DataRange, ...],
        created: float,
    ) -> ProceduralManifest:
        """Describe a version for agents and auditors.

        Args:
            known: the examples that its signatures and familiar goals come from.
            blends: where it adds to the call model.
        """
        network = trainer.network_of(weights)
        return ProceduralManifest(
            version=version_of(weights),
            ordinal=ordinal,
            parent=parent,
            tenant=tenant,
            base_sha256=trainer.base.sha256,
            encoder=encoder.name,
            encoder_sha256=encoder.sha256,
            rank=trainer.config.rank,
            alpha=trainer.config.alpha,
            targets=LORA_TARGETS,
            tensors=dict(adapter_shapes(trainer.config.rank)),
            size_bytes=len(weights),
            data=data,
            sessions=len(self.sessions),
            agents=len(self.agents),
            tools=report.tools,
            vain_tools=report.ineffective_tools,
            metrics=report.figures,
            probe=Probe(PROBE_SEED, probe_answers(network, PROBE_SEED)),
            created=created,
            batches=tuple(self.batches),
            training=asdict(trainer.config),
            torch=str(torch.__version__),
            judges=dict(self.judges),
            blends=blends,
            signatures=signatures_of(network, known),
            familiar=goal_prototypes(known),
        )


def _places(examples: Sequence[Example]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(example.place) for example in examples)


def reproduce(
    manifest: ProceduralManifest,
    parent: bytes | None,
    sessions: Mapping[Place, Judgment],
    base: Base,
    encoder: StaticEncoder,
) -> bytes:
    """Train the manifest's batches on its parent again; the manifest is true if the sha256 of the result is its
    version.

    Equal to the byte on a CPU with one thread, under the release of torch that the manifest names.

    Args:
        parent: weights of the parent version; None if it was made of the bare base.
        sessions: every session that the batches name, under its place in the window 0.

    Raises:
        AdapterRefused: `foreign` for another base, encoder or settings that this release does not have, `malformed`
            where a place does not hold a session that can be learned.
    """
    if manifest.base_sha256 != base.sha256 or manifest.encoder_sha256 != encoder.sha256:
        raise AdapterRefused("foreign", "made over another base or with another encoder")
    known = TrainerConfig.__dataclass_fields__
    if not manifest.batches or set(manifest.training) != set(known):
        raise AdapterRefused("foreign", "its manifest does not say how it was made")
    settings = {name: (int if known[name].type == "int" else float)(value) for name, value in manifest.training.items()}
    trainer = ContrastiveTrainer(base, TrainerConfig(**settings))  # type: ignore[arg-type]
    if parent is not None:
        trainer.resume(parent)
    read: dict[Place, list[Example]] = {}

    def example_at(place: Place) -> Example:
        first = place._replace(window=0)
        if first not in read:
            read[first] = examples_of(sessions[first], encoder, first)
        try:
            return read[first][place.window]
        except IndexError:
            raise AdapterRefused("malformed", f"{place} is no session") from None

    for batch in manifest.batches:
        new, rehearsed = ([example_at(Place(*place)) for place in places] for places in (batch.new, batch.rehearsed))
        trainer.update(new, rehearsed, batch.stale)
    return trainer.weights()
