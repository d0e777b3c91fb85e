"""Define an arm: a memory. Everything else, agent, candidates, budget and seeds, is the same for all arms."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from benchmarks.evaluate.worlds.recorded import Recorded
from benchmarks.evaluate.worlds.world import Call, Reply
from fleetlore.wire.trajectory import Step

# What an agent reads of its memory before a step, at most: the same for all arms.
READ_CHARACTERS = 6_000


class Performs(Protocol):
    """What carries out calls."""

    def perform(self, call: Call) -> Reply: ...


@dataclass(slots=True)
class Situation:
    """Where a session stands: what an agent may ask its memory with."""

    session: str
    agent: str
    task: str
    goal: str
    aim: str = ""
    steps: list[Step] = field(default_factory=list)
    candidates: Sequence[Call] = ()


class Note(NamedTuple):
    """A text to read. `about`: the place of the candidate that it was given for, None where it is about the session."""

    text: str
    about: int | None = None


class Recall(NamedTuple):
    """What a memory says before a step: notes, the most relevant first, and P(fails) of each candidate where known."""

    notes: Sequence[Note] = ()
    risks: Sequence[float | None] = ()


class Memory:
    """Remembers nothing; the arms extend it.

    Attributes:
        keeps_log: the agent sees its whole session. Without it, it knows what it has tried since the last progress and
            no more.
    """

    keeps_log = True

    async def begin(self, situation: Situation) -> None:
        """A session starts."""

    def recall(self, situation: Situation) -> Recall:
        """Asked before each step. No network."""
        return Recall()

    async def act(self, call: Call, environment: Performs) -> Reply:
        """Carry out a step, and take note of it."""
        return environment.perform(call)

    async def end(self, recorded: Recorded) -> None:
        """A session of this arm has ended."""
        await self.learn(recorded)

    async def learn(self, recorded: Recorded) -> None:
        """Take in a session that somebody of the fleet lived through."""

    async def twin(self) -> Memory:
        """The same knowledge, learning on by itself from here. Encoder and base, which are never written to, are
        shared.
        """
        return copy.deepcopy(self)


class NoMemory(Memory):
    """Knows what it has tried since the last progress, and nothing before it."""

    keeps_log = False


class LogOnly(Memory):
    """The session's own log, and nothing of other sessions."""


def within_budget(notes: Sequence[Note]) -> list[Note]:
    """As many notes, the first ones, as an agent may read; a text that comes again costs nothing."""
    read: list[Note] = []
    seen: set[str] = set()
    left = READ_CHARACTERS
    for note in dict.fromkeys(notes):
        if note.text not in seen:
            left -= len(note.text)
            seen.add(note.text)
        if left < 0:
            break
        read.append(note)
    return read
