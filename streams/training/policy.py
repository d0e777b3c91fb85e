"""Train the policy adapter from preference pairs of judged sessions.

The gate asks a version about the newer pairs, which the next one learns too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from fleetlore.lora.adapter import Lora, pack
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.trajectory import Judgment, Verdict
from models.calls.gate import GateReport
from models.calls.window import KeptSession
from models.policy.gate import LEAST, judge_policy, split
from models.policy.pairs import Pair, preference_pairs
from streams.training.publication import Publication
from streams.training.window import Decided, WindowTrainer

if TYPE_CHECKING:
    from models.policy.learn import LanguageModel

__all__ = ["PolicyTrainer"]

# Newest sessions in which pairs are sought.
_MOST_SESSIONS = 2_000
# Newest pairs that a version learns, and is asked about: a pair takes seconds of a core.
_MOST_OLDER, _MOST_LATER = 400, 60
_LEAST_NEW = 8


class PolicyTrainer(WindowTrainer[LanguageModelManifest]):
    """`base`: folder of the language model."""

    new_sessions = 50
    patience_seconds = 60.0

    def __init__(
        self, publication: Publication[LanguageModelManifest], base: Path, name: str, quorum: int, **options: Any
    ) -> None:
        super().__init__(publication, **options)
        self._base, self._base_name, self._quorum = base, name, quorum
        self._verdicts: dict[str, tuple[tuple[int, float], Verdict]] = {}
        self._model: LanguageModel | None = None
        self._pairs: list[Pair] = []
        self._older: list[Pair] = []
        self._later: list[Pair] = []
        self._margins: list[float] = []
        self._lora: Lora | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return self.name, self.verdicts

    def judge(self, judgment: Judgment) -> None:
        session = judgment.trajectory
        known = self._verdicts.get(session.id)
        if known is None or known[0] <= session.revision:
            self._verdicts[session.id] = session.revision, judgment.verdict
        self.publication.vote(judgment)

    def _forget(self) -> None:
        self._pairs = []

    def _learned(self, chosen: list[KeptSession]) -> bytes | None:
        kept = [each for each in chosen if each.id in self._verdicts]
        # Drop verdicts of sessions that left the window; those that came before their session wait for it.
        if len(self._verdicts) > 2 * len(chosen) + _MOST_SESSIONS:
            self._verdicts = {each.id: self._verdicts[each.id] for each in kept}
        judged = [
            Judgment(trajectory=each.session(), verdict=self._verdicts[each.id][1]) for each in kept[-_MOST_SESSIONS:]
        ]
        pairs = preference_pairs(judged, self._quorum)
        self._budget.pace_last()
        older, later = split(pairs)
        learned = {pair.sessions for pair in self._pairs}
        if len(older) < LEAST or sum(pair.sessions not in learned for pair in pairs) < _LEAST_NEW:
            return None
        model = self._language_model()
        self._older, self._later = older[-_MOST_OLDER:], later[-_MOST_LATER:]
        model.run_alone()
        self._margins = model.margins(self._later)
        self._lora = model.learn(self._older)
        self._pairs = pairs
        return self._lora.weights

    def _language_model(self) -> LanguageModel:
        if self._model is None:
            with self._budget.paced_imports():
                import torch

                from models.policy.learn import LanguageModel

            # Threads add up in another order, and another last bit is another hash.
            torch.set_num_threads(1)
            self._model = LanguageModel(self._base, pace=self._budget.pace_last)
        return self._model

    def _judged(self, weights: bytes, version: str, chosen: Sequence[KeptSession]) -> Decided[LanguageModelManifest]:
        model, lora = self._language_model(), self._lora
        assert lora is not None
        candidate, after = model.margins(self._later), model.perplexity()
        model.run_alone()
        before, published = model.perplexity(), None
        if self.publication.running is not None:
            running, in_service = self.publication.running
            if in_service.base_sha256 == model.base.sha256:
                model.run(running, in_service)
                published = model.margins(self._later)
                model.run_alone()
        report: GateReport = judge_policy(self._later, self._margins, candidate, published, (before, after))
        if not report.passed:
            return report, None
        ids = {id for pair in self._older for id in pair.sessions}
        sessions = [each for each in chosen if each.id in ids]
        manifest = LanguageModelManifest(
            **self._stated(version, weights, report.figures, sessions),
            sessions=len(ids),
            agents=len({agent for pair in self._older for agent in pair.agents}),
            tools=tuple(sorted({pair.tool for pair in self._older})),
            base=self._base_name,
            architecture=model.architecture,
            **lora.stated,
            gate_sha256=hashlib.sha256(orjson.dumps(report.figures, option=orjson.OPT_SORT_KEYS)).hexdigest(),
            learned_from=pack(ids),
        )
        return report, manifest
