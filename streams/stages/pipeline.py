"""List the pipeline's stages in the order of an event.

Models are imported only if settings name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.errors import InvalidEvent
from fleetlore.wire.decode import FEEDBACK
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import tenant_of
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, Store
from streams.stage.operators import Operators
from streams.stages.s1_sessions.parse import clean_records, feedback_of, letter_of, read_events
from streams.stages.s1_sessions.stage import SessionsStage
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s3_judgments import JudgmentsStage
from streams.stages.s4_items import ItemsStage

if TYPE_CHECKING:
    from models.llm.questions import LanguageModel

__all__ = ["FLOW", "language_model", "pipeline"]


class FeedbackStage(Stage):
    """Reads corrections from a topic with its own ACL.

    Its writers may correct any session, even against the environment's reward. A correction among agents' events is
    only a claim.
    """

    name = "feedback"
    reads = "feedback"

    def __init__(self, principals: Principals | None = None) -> None:
        self.principals = principals

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record in batch:
            tenant = tenant_of(record.topic)
            events = read_events(record, effects, self.principals)
            clean_records([(record, events)], effects, self.principals)
            for event in events:
                if event.type != FEEDBACK:
                    error = InvalidEvent("unknown_type", f"{event.type} is no feedback")
                    effects.dead_letters.append(letter_of(event, record, error))
                    effects.processed -= 1
                elif (given := feedback_of(event, claimed=False)) is not None:
                    effects.outgoing.append(Outgoing(tenant, "trajectories", given.session, given.to_json()))
        return effects


# Topics that the stages read, in order. Each stage writes only to later ones.
FLOW = tuple(stage.reads for stage in (SessionsStage, FeedbackStage, PatternsStage, JudgmentsStage, ItemsStage))


def pipeline(
    store: Store,
    metrics: Metrics,
    clock: Clock,
    settings: Settings,
    model: LanguageModel | None = None,
    operators: Operators | None = None,
) -> tuple[Stage, ...]:
    operators, principals = operators or Operators(), Principals.of(settings.principal_key)
    return (
        SessionsStage(store, clock, metrics, settings.silent_seconds, operators.erased, principals),
        FeedbackStage(principals),
        PatternsStage(store, clock, metrics, operators),
        JudgmentsStage(store, metrics, model, operators.erased),
        ItemsStage(store, clock, metrics, operators, settings.review_of),
    )


def language_model(settings: Settings, metrics: Metrics) -> LanguageModel | None:
    if not settings.llm_url:
        return None
    from models.llm.questions import LanguageModel

    def observe(result: str, tokens: int) -> None:
        metrics.llm_questions.labels(result).inc()
        metrics.llm_tokens.inc(tokens)

    return LanguageModel(settings, observe)
