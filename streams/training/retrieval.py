"""Train the retrieval adapter of a tenant: from failed calls and what got other sessions past them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from fleetlore.retrieval.adapter import RetrievalAdapter, probe_answers, tensor_shapes
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.wire.adapter_manifest import Probe, RetrievalManifest
from fleetlore.wire.trajectory import Trajectory
from models.adapter.pairs import Case, cases_of
from models.calls.window import KeptSession
from streams.training.publication import Describe
from streams.training.window import Cadence, Decided, WindowTrainer

if TYPE_CHECKING:
    from models.adapter.contrastive import TrainedRetrieval

_PROBE_SEED = 1
# Learning takes seconds for each thousand cases; the newest say most.
_MOST_CASES = 1_000


class RetrievalTrainer(WindowTrainer[RetrievalManifest]):
    """Learns of the sessions in which a call failed and the next one of its tool that worked held something new."""

    # Cases are rarer than sessions, and learning them costs more.
    cadence: ClassVar[Cadence] = Cadence(new_sessions=50, patience_seconds=60.0)
    _candidate: TrainedRetrieval

    def _teaches(self, session: Trajectory) -> bool:
        return teaches(session)

    def _learned(self, chosen: list[KeptSession]) -> bytes | None:
        candidate = learned(_newest(chosen)[0])
        if candidate is None:
            return None
        self._candidate = candidate
        return candidate.weights

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[RetrievalManifest]:
        from models.adapter.gate import judge_retrieval

        encoder = shared_encoder()
        cases, ended = _newest(chosen)

        def learn(some: Sequence[Case]) -> RetrievalAdapter | None:
            trained = learned(some)
            return trained and trained.adapter(encoder.dimensions)

        published, until = None, 0.0
        if self.publication.running is not None:
            running, manifest = self.publication.running
            if manifest.encoder_sha256 == encoder.sha256:
                published = RetrievalAdapter(running, manifest.rank, manifest.scale, encoder.dimensions)
                until = manifest.until
        report = judge_retrieval(cases, learn, encoder, published, until, ended)
        describe = self._described(version, cases, ended, report.figures) if report.passed else None
        return Decided(report.reason, report.figures, describe)

    def _described(
        self, version: str, cases: Sequence[Case], ended: Sequence[float], figures: dict[str, float]
    ) -> Describe[RetrievalManifest]:
        import torch

        candidate, encoder, config = self._candidate, shared_encoder(), self._candidate.config

        def describe(ordinal: int, parent: str | None) -> RetrievalManifest:
            return RetrievalManifest(
                version=version,
                ordinal=ordinal,
                parent=parent,
                tenant=self._tenant,
                size_bytes=len(candidate.weights),
                data=self._data(),
                sessions=len({case.session for case in cases}),
                agents=len({case.agent for case in cases}),
                tools=tuple(sorted({case.tool for case in cases})),
                metrics={name: round(value, 6) for name, value in figures.items()},
                created=self._clock.now(),
                pairs=candidate.pairs,
                until=max(ended),
                encoder=encoder.name,
                encoder_sha256=encoder.sha256,
                rank=config.rank,
                alpha=config.alpha,
                tensors=dict(tensor_shapes(config.rank, encoder.dimensions)),
                probe=Probe(
                    _PROBE_SEED,
                    probe_answers(candidate.adapter(encoder.dimensions), _PROBE_SEED, encoder.dimensions),
                ),
                torch=str(torch.__version__),
            )

        return describe


def learned(cases: Sequence[Case]) -> TrainedRetrieval | None:
    """Learn a version; None where no case is answered by another."""
    # Importing torch takes seconds of CPU: not before there is something to learn.
    import torch

    from models.adapter.contrastive import train

    # Two threads add up in another order than one, and another last bit is another hash. And they would spin while
    # other processes need the cores.
    torch.set_num_threads(1)
    return train(cases, shared_encoder())


def teaches(session: Trajectory) -> bool:
    """Whether it has a case."""
    return next(cases_of(session), None) is not None


def newest_cases(sessions: Sequence[Trajectory]) -> list[tuple[Case, float]]:
    """The last cases of sessions, with the time when each session ended, in their order."""
    return [(case, session.ended) for session in sessions for case in cases_of(session)][-_MOST_CASES:]


def _newest(chosen: Sequence[KeptSession]) -> tuple[list[Case], list[float]]:
    found = newest_cases([each.session() for each in chosen])
    return [case for case, _ in found], [ended for _, ended in found]
