"""List the stages of the pipeline in the order in which an event passes through them.

Nothing here knows the broker: the worker runs the stages on Faust (`streams.runtime.app`), a backfill and a backtest in
memory (`streams.offline`). A judge or a model that the settings do not name is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlore.clock import Clock
from fleetlore.config import HALF_LIFE_SECONDS, Settings
from fleetlore.wire.principals import Principals
from models.judge.chain import JudgeChain
from sinks.metrics import Metrics
from streams.stage.base import Stage, Store
from streams.stage.distrusted import Distrusted
from streams.stage.erased import Erased
from streams.stages.feedback import FeedbackStage
from streams.stages.s1_sessions.stage import SessionsStage
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments.stage import JudgmentsStage
from streams.stages.s4_items import ItemsStage

if TYPE_CHECKING:
    from streams.stages.s3_judgments.language_model import LanguageModel

__all__ = ["language_model", "pipeline"]


def pipeline(
    store: Store,
    metrics: Metrics,
    clock: Clock,
    silent_seconds: float,
    judge: JudgeChain | None = None,
    model: LanguageModel | None = None,
    half_life_seconds: float = HALF_LIFE_SECONDS,
    erased: Erased | None = None,
    distrusted: Distrusted | None = None,
    principals: Principals | None = None,
) -> tuple[Stage, ...]:
    """Make the stages one to four, which drop what was `erased` and publish nothing of `distrusted` agents, and that of
    feedback. Where there are `principals` they take only what one of them signed.

    The fifth, which asks a `model`, belongs to a worker alone.
    """
    erased, distrusted = erased or Erased(), distrusted or Distrusted()
    return (
        SessionsStage(store, clock, metrics, silent_seconds, erased, principals),
        FeedbackStage(principals),
        PatternsStage(store, clock, metrics, erased, distrusted),
        JudgmentsStage(store, judge or JudgeChain(), metrics, model, erased),
        ItemsStage(store, clock, metrics, half_life_seconds, erased, distrusted),
    )


def language_model(settings: Settings, metrics: Metrics) -> LanguageModel | None:
    """Open the model that the settings name, if they name one.

    Raises:
        ConfigError, ModelUnavailable: see `streams.stages.s3_judgments.language_model`.
    """
    if not settings.llm_url:
        return None
    from streams.stages.s3_judgments.language_model import LanguageModel

    return LanguageModel(settings, metrics)
