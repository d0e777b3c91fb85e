"""Make fleetlore's text memory an arm of the evaluation: a fleet in memory, whose agents read its advice before each
step.

Parts of it can be left out, to see what each is worth; and a placebo says as much, made for another task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from benchmarks.evaluate.arms.in_fleet import InFleet, events_of
from benchmarks.evaluate.arms.memory import Memory, Note, Performs, Recall, Situation
from benchmarks.evaluate.arms.placebo import Placebo
from benchmarks.evaluate.arms.weights import Weights
from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.world import Call, Reply
from fleetlore.advice.advice import Advice
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import PATTERN_LEVELS, MemoryItem, Pattern
from streams.offline.memory_pipeline import MemoryPipeline

Lore = Pattern | MemoryItem
# What of the lore each part is: remedies are counted over names, patterns are failures (how often a tool works is known
# without them).
PARTS: Mapping[str, Callable[[Lore], bool]] = {
    "remedies": lambda each: isinstance(each, MemoryItem) and each.cause is not None,
    "strategies": lambda each: isinstance(each, MemoryItem) and each.kind == "strategy",
    "patterns": lambda each: isinstance(each, Pattern) and each.level in PATTERN_LEVELS,
}


class _Index(LoreIndex):
    """Leaves a part of the lore out."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._is_part = PARTS[part]

    def put_pattern(self, pattern: Pattern) -> None:
        if not self._is_part(pattern):
            super().put_pattern(pattern)

    def put_item(self, item: MemoryItem) -> None:
        if not self._is_part(item):
            super().put_item(item)


class FleetText(InFleet):
    """Patterns and memory items, read before each step as an agent of a fleet reads them.

    Args:
        without: the part of the lore that agents are not told of; None: they are told all of it.
    """

    def __init__(self, without: str | None = None) -> None:
        super().__init__(MemoryPipeline())
        self._without = without
        if without is not None:
            self.fleet.index = _Index(without)
        self._learned: list[Recorded] = []

    async def twin(self) -> FleetText:
        """Built again from what was learned: stages and their states are no data to be copied."""
        other = type(self)(self._without)
        for recorded in self._learned:
            await other.learn(recorded)
        return other

    async def begin(self, situation: Situation) -> None:
        self.fleet.call_model = None
        await super().begin(situation)

    def recall(self, situation: Situation) -> Recall:
        session = self.session
        found: list[tuple[Advice, int | None]] = [(session.advise(unseen=False), None)]
        for place, call in enumerate(situation.candidates):
            found.append((session.advise(call.tool, call.arguments, unseen=False), place))
        notes = [Note(advice.text, place) for advice, place in _each_once(found)]
        return Recall([note for note in notes if note.text])

    async def end(self, recorded: Recorded) -> None:
        await self.close(recorded)
        await self.fleet.take(self.emitted)
        self.emitted.clear()

    async def learn(self, recorded: Recorded) -> None:
        self._learned.append(recorded)
        await self.fleet.take(events_of(recorded, self.fleet.clock))


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
    """Text and weights together: sessions of the text's fleet, whose agents follow the models of the weights.

    Attributes:
        shares: its parts are arms of their own that learn by themselves; until it has a twin it must not teach them
            twice.
    """

    def __init__(self, text: FleetText, weights: Weights, *, shares: bool = False) -> None:
        self.text = text
        self.weights = weights
        self.shares = shares
        if not shares:
            weights.clock = text.fleet.clock  # what is newer than the call model is told by counts

    async def twin(self) -> FleetBoth:
        return FleetBoth(await self.text.twin(), await self.weights.twin())

    async def begin(self, situation: Situation) -> None:
        await self.text.begin(situation)
        self.weights.publish_calls()
        self.text.fleet.call_model = self.weights.fleet.call_model

    def recall(self, situation: Situation) -> Recall:
        return self.text.foreseen(situation)._replace(notes=self.text.recall(situation).notes)

    async def act(self, call: Call, environment: Performs) -> Reply:
        return await self.text.act(call, environment)

    async def end(self, recorded: Recorded) -> None:
        await self.text.end(recorded)
        await self.weights.learn(recorded)

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
        tips = tuple(tip for tip in advice.tips if tip.chance is not None or tip.id not in told)
        told.update(advice.ids)
        yield advice._replace(tips=tips), place
