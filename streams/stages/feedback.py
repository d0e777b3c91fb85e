"""Forward corrections of how sessions ended to the stage that judges them."""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.errors import InvalidEvent
from fleetlore.wire.incoming import FEEDBACK
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import tenant_of
from streams.stage.base import Effects, Outgoing, Record, Stage, dead_letter
from streams.stages.s1_sessions.parse import bytes_of, feedback_of, read_events
from streams.stages.s1_sessions.sanitize import clean_records

__all__ = ["FeedbackStage"]


class FeedbackStage(Stage):
    """Reads corrections from a topic with its own ACL. A client with write access may correct the result of any
    session, even against the environment's reward. Corrections among agents' events are only claims
    (`streams.stages.s1_sessions.stage`)."""

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
                    effects.dead_letters.append(dead_letter(record, error, bytes_of(event, record)))
                    effects.processed -= 1
                elif (given := feedback_of(event, claimed=False)) is not None:
                    effects.outgoing.append(Outgoing(tenant, "trajectories", given.session, given.to_json()))
        return effects
