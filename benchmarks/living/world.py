"""Define a live world: tasks at places, tools that run for real, and a check by code."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from benchmarks.living.llm.model import Message

_T = TypeVar("_T")
_LITERAL_NAMES = re.compile(r"[A-Za-z_]\w*")


class Call(NamedTuple):
    """A call as the model writes it, in one line: `tool: text`."""

    tool: str
    text: str

    @property
    def folded(self) -> str:
        """By which it is the same call: white space, case and a closing semicolon are not told apart."""
        return " ".join(self.text.lower().split()).rstrip("; ")

    def __str__(self) -> str:
        return f"{self.tool}: {self.text}"


class Ran(NamedTuple):
    """The result of a call.

    Attributes:
        said: its result or its error, as the model reads it: cut, for a small context.
        error: class of the error; empty where the call worked.
        solved: it was the hand-in, and right.
        whole: the result as the tool returned it, where that is more.
    """

    said: str
    error: str = ""
    solved: bool = False
    whole: str = ""

    @property
    def returned(self) -> str:
        """The whole result of the tool, as the agent's code sees it."""
        return self.whole or self.said


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done.

    Attributes:
        id: unique in its world.
        place: what a session states that it is at.
        group: tasks that share what is to be known; held-out tasks are drawn of each.
        asked: what the model reads.
    """

    id: str
    place: str
    group: str
    goal: str
    asked: str


class World(Protocol):
    """A world; `tools` has the name of the tool that tries and of the one that hands in.

    Attributes:
        system: the system message: what there is to do, and how to write a call.
        example: one task worked, the same for all: it shows the protocol.
        grammar: of a call, in GBNF.
        argument: name of the tools' one argument.
        first_look: a call that shows what there is at a place. It is None if no call shows it.
    """

    tasks: Sequence[Task]
    system: str
    example: Sequence[Message]
    grammar: str
    tools: tuple[str, str]
    argument: str
    first_look: Call | None

    def run(self, task: Task, call: Call) -> Ran: ...

    def is_look_up(self, call: Call) -> bool:
        """Whether it only shows what there is."""
        ...

    def in_full(self, task: Task) -> str:
        """All that there is to be known: what a user would give by hand."""
        ...


def parsed(world: World, text: str) -> Call:
    """The first line of an answer that is a call; any other answer is a trial."""
    for line in text.splitlines():
        tool, colon, rest = line.strip().strip("`").partition(":")
        if colon and tool.strip() in world.tools:
            return Call(tool.strip(), rest.strip())
    return Call(world.tools[0], text.strip())


def names(text: str) -> set[str]:
    return set(_LITERAL_NAMES.findall(text))


def drawn(seed: int, *words: str) -> int:
    """A number by a hash: the same everywhere."""
    return int.from_bytes(hashlib.sha256("/".join((str(seed), *words)).encode()).digest()[:6], "big")


class Split(NamedTuple):
    past: list[Task]
    held_out: list[Task]


def split(tasks: Sequence[Task], seed: int, most_past: int) -> Split:
    """Half of each group is past, at most so many; the rest is held out. The groups take turns."""
    past, held_out, by = [], [], defaultdict[str, list[Task]](list)
    for each in tasks:
        by[each.group].append(each)
    for _, group in sorted(by.items()):
        group.sort(key=lambda each: drawn(seed, "split", each.id))
        half = (len(group) + 1) // 2
        past.append(group[: min(half, most_past)])
        held_out.append(group[half:])
    return Split(_in_turns(past), _in_turns(held_out))


def _in_turns(groups: Sequence[Sequence[_T]]) -> list[_T]:
    longest = max((len(each) for each in groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)]
