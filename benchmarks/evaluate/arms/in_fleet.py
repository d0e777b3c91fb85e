"""Let the agents of an arm live as agents of a fleet: real sessions over the stages of the pipeline, in memory."""

from __future__ import annotations

from typing import Any

from benchmarks.evaluate.arms.memory import Memory, Performs, Recall, Situation
from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.world import Call, Reply
from fleetlore.agent.fleet import Session
from fleetlore.config import DEFAULT_TENANT
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind
from streams.offline.memory_pipeline import EventClock, MemoryPipeline


class InFleet(Memory):
    """Opens a session of the fleet for each of the evaluation, and makes its calls there.

    Attributes:
        fleet: with the models that its agents follow.
        emitted: events of the session that is open.
    """

    def __init__(self, fleet: MemoryPipeline) -> None:
        self.fleet = fleet
        self.emitted: list[Event] = []
        self._session: Session | None = None

    async def begin(self, situation: Situation) -> None:
        self.emitted.clear()  # of a session that was only looked at
        self._session = self.fleet.session(
            situation.agent, situation.goal, situation.task, situation.session, self.emitted
        )
        await self._session.__aenter__()

    @property
    def session(self) -> Session:
        if self._session is None:
            raise RuntimeError("no session is open")
        return self._session

    def foreseen(self, situation: Situation) -> Recall:
        """What the call model says of each candidate, as an agent hears it."""
        seen = self.session.outlook([(call.tool, call.arguments) for call in situation.candidates])
        return Recall(risks=[None if each is None else each.fails for each in seen])

    async def act(self, call: Call, environment: Performs) -> Reply:
        async with self.session.action(call.tool, call.arguments) as action:
            reply = environment.perform(call)
            if reply.error_type is not None:
                action.fail(reply.error_type, reply.error_message or "")
            else:
                action.result = reply.result
            if reply.forbidden is not None:
                action.forbid(reply.forbidden)
        return reply

    async def close(self, recorded: Recorded) -> None:
        """End the open session as the recorded one ended."""
        if recorded.succeeded:
            self.session.succeed(reward=1.0)
        else:
            self.session.fail(reward=0.0)
        await self.session.__aexit__(None, None, None)
        self._session = None


def events_of(recorded: Recorded, clock: EventClock) -> list[Event]:
    """The events of a session that was lived through elsewhere."""
    told: list[tuple[Kind, dict[str, Any]]] = [("session.started", {ev.GOAL: recorded.goal, ev.TASK: recorded.task})]
    for call, reply in recorded.steps:
        data: dict[str, Any] = {ev.TOOL: call.tool, ev.ARGUMENTS: call.arguments}
        if reply.error_type is not None:
            data |= {ev.ERROR_TYPE: reply.error_type, ev.ERROR_MESSAGE: reply.error_message or ""}
        else:
            data[ev.RESULT] = reply.result
        if reply.forbidden is not None:
            data[ev.VIOLATION] = reply.forbidden
        told.append(("outcome", data))
    told.append(
        (
            "session.ended",
            {ev.OUTCOME: "success" if recorded.succeeded else "failure", ev.REWARD: float(recorded.succeeded)},
        )
    )
    return [
        Event(kind, DEFAULT_TENANT, recorded.agent, recorded.id, sequence, clock.tick(), data)
        for sequence, (kind, data) in enumerate(told)
    ]
