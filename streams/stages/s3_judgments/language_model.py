"""Choose the sessions that a language model is asked about, and keep its answers.

It judges the sessions on which all other judges abstained, and a small share of those with a better judge, so that its
own errors are counted (`models.judge.record`). It distils a share, all by default, of the sessions that surely failed.
The shares are drawn by a hash of the session, so they are the same sessions everywhere.
"""

from __future__ import annotations

from fleetlore.config import Settings
from fleetlore.fingerprint.literals import masked_text
from fleetlore.stats.hashing import drawn
from fleetlore.stats.text_index import words
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.cases import telling
from models.judge.session_state import notable
from models.llm.client import Answers, Client
from models.llm.distiller import LlmDistiller
from models.llm.judge import LlmJudge
from sinks.metrics import Metrics


class LanguageModel:
    """A judge and a distiller behind one endpoint.

    Raises:
        ConfigError: the settings name no model, or the file of its answers cannot be used.
        ModelUnavailable: the extra `[llm]` is not installed.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        def observe(result: str, tokens: int) -> None:
            metrics.llm_questions(result).inc()
            metrics.llm_tokens().inc(tokens)
            if result == "ok":
                metrics.llm_session_tokens().observe(tokens)

        self._answers = Answers(settings.llm_answers, unkept=lambda: observe("unkept", 0))
        self._client = Client(settings, self._answers, observe)
        self._audit_share = settings.llm_audit_share
        self._distill_share = settings.llm_distill_share
        self.judge = LlmJudge(self._client)
        self.distiller = LlmDistiller(self._client)

    def judges(self, trajectory: Trajectory, source: str) -> bool:
        """Whether to ask for its verdict, where `source` gave the one that counts."""
        if trajectory.ending == "continued" or not trajectory.steps:
            return False
        audited = source in ("reward", "feedback") and _drawn("audit", trajectory, self._audit_share)
        return source == "none" or audited

    def notes(self, judgment: Judgment) -> bool:
        """Whether to ask for notes: of a session that failed by calls whose errors tell."""
        verdict, trajectory = judgment.verdict, judgment.trajectory
        failed = notable(verdict, "failure") and bool(telling(trajectory.calls))
        return failed and _drawn("distil", trajectory, self._distill_share)

    def place(self, trajectory: Trajectory) -> str:
        """By it judgments are keyed: one worker reads those of like goals."""
        return place_of(trajectory) if self.distils else trajectory.session

    @property
    def distils(self) -> bool:
        return self._distill_share > 0

    async def close(self) -> None:
        await self._client.close()
        self._answers.close()


def place_of(trajectory: Trajectory) -> str:
    """What sessions of like goals share: their task, or the words of their goal."""
    goal = " ".join(sorted(goal_words(trajectory)))
    return trajectory.task or goal or trajectory.session


def goal_words(trajectory: Trajectory) -> frozenset[str]:
    """The words of a goal, without its literals."""
    return frozenset(words(masked_text(trajectory.goal, frozenset())))


def _drawn(purpose: str, trajectory: Trajectory, share: float) -> bool:
    return drawn(f"{purpose}/{trajectory.tenant}/{trajectory.id}", share)
