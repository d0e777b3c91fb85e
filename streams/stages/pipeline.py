"""List the pipeline's stages in the order of an event.

The worker runs them on Faust (`streams.runtime.app`); backfill and backtest run them in memory (`streams.offline`).
Optional judges and models are imported only if the settings name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.wire.principals import Principals
from models.judge import JudgeChain
from sinks.metrics import Metrics
from streams.stage.base import ListedStore, Stage
from streams.stage.operators import Operators
from streams.stages.feedback import FeedbackStage
from streams.stages.s1_sessions.stage import SessionsStage
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments import JudgmentsStage
from streams.stages.s4_items import ItemsStage

if TYPE_CHECKING:
    from models.llm.judge import LlmJudge

__all__ = ["FLOW", "language_model", "pipeline"]

# Topics that the stages read, in order. Each stage writes only to later topics.
FLOW = tuple(stage.reads for stage in (SessionsStage, FeedbackStage, PatternsStage, JudgmentsStage, ItemsStage))


def pipeline(
    store: ListedStore,
    metrics: Metrics,
    clock: Clock,
    settings: Settings,
    model: LlmJudge | None = None,
    operators: Operators | None = None,
    judge: JudgeChain | None = None,
) -> tuple[Stage, ...]:
    """Make the feedback stage and stages one to four. Only a worker adds the fifth, which asks a model. Raises
    ConfigError: the principal key is invalid."""
    operators, principals = operators or Operators(), Principals.of(settings.principal_key)
    return (
        SessionsStage(store, clock, metrics, settings.silent_seconds, operators.erased, principals),
        FeedbackStage(principals),
        PatternsStage(store, clock, metrics, operators),
        JudgmentsStage(store, judge or JudgeChain(), metrics, model, operators.erased),
        ItemsStage(store, clock, metrics, settings.item_half_life_seconds, operators),
    )


def language_model(settings: Settings, metrics: Metrics) -> LlmJudge | None:
    """Open the model of the settings, if there is one. Raises ConfigError, ModelUnavailable: see `LlmJudge`."""
    if not settings.llm_url:
        return None
    from models.llm.judge import LlmJudge

    def observe(result: str, tokens: int) -> None:
        metrics.llm_questions(result).inc()
        metrics.llm_tokens().inc(tokens)

    return LlmJudge(settings, observe)
