"""Define what an evaluation needs of a world: tasks, sessions that propose calls and answer them, and a program that
checks the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from benchmarks.demo.world import NETWORK, Call, Reply

__all__ = ["Call", "Environment", "Proposal", "Reply", "Task", "World", "is_error"]


class Proposal(NamedTuple):
    """A call that an agent can think of, and how much it is inclined to it before it has learned anything (above 0)."""

    call: Call
    weight: float


@dataclass(frozen=True, slots=True)
class Task:
    """Work that many sessions may be given."""

    id: str
    domain: str


class Environment(Protocol):
    """One session of one task; a function of the task, the session's seed, the epoch and the calls made.

    Attributes:
        goal: what the agent is told at the start.
        aim: what it is about right now, in words.
        shortest: calls of the shortest known way, faults left out.
        budget: calls it may make.
        progress: how far it has come; it grows, and the agent sees it.
    """

    @property
    def goal(self) -> str: ...
    @property
    def aim(self) -> str: ...
    @property
    def shortest(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def progress(self) -> int: ...
    @property
    def done(self) -> bool: ...
    @property
    def succeeded(self) -> bool:
        """Whether the goal is reached, as the world's own program checks it."""

    def proposals(self) -> Sequence[Proposal]:
        """What an agent can think of here, at least one call; the same for every arm in the same place."""

    def perform(self, call: Call) -> Reply:
        """Carry out a call: one step."""

    def solve(self) -> Call:
        """A call that brings the session forward, as the world's own rules have it. No arm may ask."""


class World(Protocol):
    """Tasks and their rules.

    Attributes:
        name: as on the command line.
        tasks: in a fixed order.
        epochs: how many sets of rules there are; in a world that does not drift, one.
    """

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> Sequence[Task]: ...
    @property
    def epochs(self) -> int: ...

    def open(self, task: Task, seed: str, epoch: int) -> Environment:
        """A fresh session."""

    def parts(self) -> tuple[World, World]:
        """Two worlds with the same rules over domains that do not meet: what is known first, and what is new later."""


def is_error(reply: Reply) -> bool:
    """An answer that says the call failed for a reason that stays. The network's weather is not one."""
    return reply.failed and reply.fault != NETWORK
