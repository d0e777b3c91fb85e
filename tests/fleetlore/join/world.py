"""A tool that was renamed under the agents, and a model that does what it reads."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from fleetlore import Fleet
from fleetlore.testing import FakeClock
from streams.offline.memory_pipeline import EventClock, MemoryPipeline
from tests.doubles.recorder import Recorder

GOAL, TASK = "find a chair", "shop"
WRONG, RIGHT, FOUND = "products", "products-eu", "three chairs"
ERROR = f"index {WRONG} does not exist, it was split into {RIGHT} and products-us"
MOST_TURNS = 6
NOW = 1_700_000_000.0

# The forms in which advice names what to use; the first value is the one that works.
_VALUE = r"`(?:index=)?([\w-]+)`"
FORMS = (re.compile(rf"[Uu]se {_VALUE} instead of {_VALUE}"), re.compile(rf"(?<=— ){_VALUE} → {_VALUE}"))


def instead_of(value: str, text: str) -> str | None:
    """What the text says to use in place of a value; None where it says nothing of it."""
    for use, form in enumerate(FORMS):
        for match in form.finditer(text):
            new, old = match.groups() if use == 0 else match.groups()[::-1]
            if old == value:
                return str(new)
    return None


class Scripted:
    """A model that searches in the wrong index first, unless it read what to use instead.

    Attributes:
        sent: what it was sent at each turn, message by message.
        chosen: what it searched in.
    """

    def __init__(self, *script: str, obeys: bool = True) -> None:
        self._script = list(script or (WRONG,))
        self._obeys = obeys
        self.sent: list[list[str]] = []
        self.chosen: list[str] = []

    def choose(self, *messages: object) -> str | None:
        """The index to search in; None where it has what it wants."""
        self.sent.append([each if isinstance(each, str) else repr(each) for each in messages])
        text = "\n".join(self.sent[-1])
        if FOUND in text or len(self.sent) == MOST_TURNS:
            return None
        told = instead_of(WRONG, text) if self._obeys else None
        self.chosen.append(told or (self._script.pop(0) if self._script else RIGHT))
        return self.chosen[-1]


class World:
    """A tool that was renamed under the agents, and what the fleet learns of it.

    Attributes:
        made: what was really searched in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[str] = []
        self.recorder = Recorder()
        self.pipeline = MemoryPipeline(EventClock(NOW))
        self._agents = 0

    def search(self, index: str) -> str:
        """Search an index.

        Args:
            index: to search in.
        """
        self.made.append(index)
        if index == WRONG:
            raise LookupError(ERROR)
        return FOUND

    def fleet(self, hold: str = "sure") -> Fleet:
        self._agents += 1
        self.recorder = Recorder()
        clock = FakeClock(self.pipeline.clock.now() + 60.0)
        fleet = Fleet(f"agent-{self._agents}", broker="nowhere:1", holdout_share=0.0, hold=hold, clock=clock)
        fleet.emitter = self.recorder
        fleet.settings = replace(fleet.settings, quorum=1)  # all agents have one owner
        fleet.replica.index = self.pipeline.index
        self.made.clear()
        return fleet

    async def learn(self) -> None:
        await self.pipeline.take([each._replace(time=self.pipeline.clock.tick()) for each in self.recorder.events])


# An agent whose model is scripted, joined in one way.
Door = Callable[[World, Fleet, Scripted], Awaitable[None]]
