"""Make fleetlore's text memory an arm of the evaluation: a fleet in memory, whose agents read its advice before each
step.

Parts of it can be left out, to see what each is worth; and a placebo says as much, made for another task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from benchmarks.evaluate.arms.memory import Memory, Note, Performs, Recall, Situation
from benchmarks.evaluate.arms.placebo import Placebo
from benchmarks.evaluate.arms.weights import Weights
from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.world import Call, Reply
from fleetlore.agent.fleet import Session
from fleetlore.recall.advice import Advice
from fleetlore.recall.index import LoreIndex
from fleetlore.tenants import DEFAULT_TENANT
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind
from fleetlore.wire.lore import PATTERN_LEVELS, MemoryItem, Pattern
from streams.offline.memory_pipeline import EventClock, MemoryPipeline

Lore = Pattern | MemoryItem
# What of the lore each part is: remedies are counted over names, losses are failures that take what was prepared,
# patterns are failures (how often a tool works is known without them).
PARTS: Mapping[str, Callable[[Lore], bool]] = {
    "remedies": lambda each: isinstance(each, MemoryItem) and each.cause is not None,
    "losses": lambda each: isinstance(each, MemoryItem) and bool((each.remedy or {}).get("again")),
    "strategies": lambda each: isinstance(each, MemoryItem) and each.kind == "strategy",
    "patterns": lambda each: isinstance(each, Pattern) and each.level in PATTERN_LEVELS,
}


class _Index(LoreIndex):
    """Leaves a part of the lore out."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._is_part = PARTS[part]

    def put_pattern(self, pattern: Pattern, now: float) -> None:
        if not self._is_part(pattern):
            super().put_pattern(pattern, now)

    def put_item(self, item: MemoryItem, now: float) -> None:
        if not self._is_part(item):
            super().put_item(item, now)


class FleetText(Memory):
    """Patterns and memory items, read before each step as an agent of a fleet reads them.

    Args:
        without: the part of the lore that agents are not told of; None: they are told all of it.
    """

    def __init__(self, without: str | None = None) -> None:
        self._without = without
        self._fleet = MemoryPipeline()
        if without is not None:
            self._fleet.index = _Index(without)
        self._session: Session | None = None
        self._emitted: list[Event] = []
        self._learned: list[Recorded] = []

    async def twin(self) -> FleetText:
        """Built again from what was learned: stages and their states are no data to be copied."""
        other = type(self)(self._without)
        for recorded in self._learned:
            await other.learn(recorded)
        return other

    async def begin(self, situation: Situation) -> None:
        self._emitted.clear()  # of a session that was only looked at
        self._session = self._fleet.session(
            situation.agent, situation.goal, situation.task, situation.session, self._emitted
        )
        await self._session.__aenter__()

    def recall(self, situation: Situation) -> Recall:
        session = self._open_session
        found: list[tuple[Advice, int | None]] = [(session.advise(unseen=False), None)]
        for place, call in enumerate(situation.candidates):
            found.append((session.advise(call.tool, call.arguments, unseen=False), place))
        notes = [Note(advice.text, place) for advice, place in _each_once(found)]
        return Recall([note for note in notes if note.text])

    async def act(self, call: Call, environment: Performs) -> Reply:
        async with self._open_session.action(call.tool, call.arguments) as action:
            reply = environment.perform(call)
            if reply.error_type is not None:
                action.fail(reply.error_type, reply.error_message or "")
            else:
                action.result = reply.result
            if reply.forbidden is not None:
                action.forbid(reply.forbidden)
        return reply

    async def end(self, recorded: Recorded) -> None:
        session = self._open_session
        if recorded.succeeded:
            session.succeed(reward=1.0)
        else:
            session.fail(reward=0.0)
        await session.__aexit__(None, None, None)
        self._session = None
        await self._fleet.take(self._emitted)
        self._emitted.clear()

    async def learn(self, recorded: Recorded) -> None:
        self._learned.append(recorded)
        await self._fleet.take(events_of(recorded, self._fleet.clock))

    @property
    def _open_session(self) -> Session:
        if self._session is None:
            raise RuntimeError("no session is open")
        return self._session


class OtherTask(FleetText):
    """The placebo: says what the text last said at another task."""

    def __init__(self, without: str | None = None) -> None:
        super().__init__(without)
        self._placebo = Placebo()

    def recall(self, situation: Situation) -> Recall:
        notes = super().recall(situation).notes
        said = [each._replace(text=self._placebo.instead(situation.task, each.text)) for each in notes]
        return Recall([each for each in said if each.text])


class FleetBoth(Memory):
    """Text and weights together.

    Attributes:
        shares: its parts are arms of their own that learn by themselves; until it has a twin it must not teach them
            twice.
    """

    def __init__(self, text: FleetText, weights: Weights, *, shares: bool = False) -> None:
        self.text = text
        self.weights = weights
        self.shares = shares

    async def twin(self) -> FleetBoth:
        return FleetBoth(await self.text.twin(), await self.weights.twin())

    async def begin(self, situation: Situation) -> None:
        await self.text.begin(situation)

    def recall(self, situation: Situation) -> Recall:
        return self.weights.recall(situation)._replace(notes=self.text.recall(situation).notes)

    async def act(self, call: Call, environment: Performs) -> Reply:
        return await self.text.act(call, environment)

    async def end(self, recorded: Recorded) -> None:
        await self.text.end(recorded)
        await self.weights.end(recorded)

    async def learn(self, recorded: Recorded) -> None:
        if not self.shares:
            await self.text.learn(recorded)
            await self.weights.learn(recorded)


def _each_once(found: Iterable[tuple[Advice, int | None]]) -> Iterator[tuple[Advice, int | None]]:
    """The advice on several calls as an agent reads it that asks about all of them at once: an item or a loop is told
    the first time.

    How likely a call fails is told of every call, for it is another figure.
    """
    told: set[str] = set()
    for advice, place in found:
        items = tuple(item for item in advice.items if item.id not in told)
        way_out = advice.way_out if advice.way_out is not None and advice.way_out.id not in told else None
        told.update(advice.ids)
        yield advice._replace(items=items, way_out=way_out), place


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
