"""Train the call model of a tenant: from closed sessions to versions in service."""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.calls.model import CallModel
from fleetlore.wire.adapter_manifest import CallsManifest
from models.calls.gate import CallsReport, judge_candidate
from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import KeptSession
from streams.training.publication import Describe
from streams.training.window import Decided, WindowTrainer


class CallsTrainer(WindowTrainer[CallsManifest]):
    """Learns on where all that came is newer than what was learned; it gives the same version as to begin anew."""

    _candidate: TrainedCalls
    _training: CallTraining | None = None
    _sessions: Sequence[KeptSession] = ()

    def _learned(self, chosen: list[KeptSession]) -> bytes:
        if self._training is None or chosen[: len(self._sessions)] != self._sessions:
            self._training, self._sessions = CallTraining(), []
        for each in chosen[len(self._sessions) :]:
            self._training.learn(each.session())
        self._sessions = chosen
        self._candidate = self._training.version()
        return self._candidate.weights

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[CallsManifest]:
        report = self._report(chosen)
        return Decided(report.reason, report.figures, self._described(version, report) if report.passed else None)

    def _report(self, chosen: Sequence[KeptSession]) -> CallsReport:
        if self.publication.running is None:
            return judge_candidate(self._candidate)
        weights, manifest = self.publication.running
        until = CallModel.from_bytes(weights).until
        report = judge_candidate(self._candidate, weights, (each.session() for each in chosen if each.ended > until))
        if (
            report.passed
            and self._candidate.sessions < manifest.sessions
            and "log_loss_published" not in report.figures
        ):
            # The log lost what the published version learned. One that knows less must be measured against it.
            return CallsReport("too_few", report.figures)
        return report

    def _described(self, version: str, report: CallsReport) -> Describe[CallsManifest]:
        candidate = self._candidate

        def describe(ordinal: int, parent: str | None) -> CallsManifest:
            return CallsManifest(
                version=version,
                ordinal=ordinal,
                parent=parent,
                tenant=self._tenant,
                size_bytes=len(candidate.weights),
                data=self._data(),
                sessions=candidate.sessions,
                agents=candidate.agents,
                tools=candidate.tools,
                metrics={name: round(value, 6) for name, value in report.figures.items()},
                created=self._clock.now(),
                calls=candidate.calls,
            )

        return describe
