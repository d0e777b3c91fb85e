"""Make a world of logs: at a task any call that an agent once proposed there can be made, and its answer is the log's.

InterCode's SQL sessions hold each query's answer and the benchmark's own reward for it; queries only read, so an answer
does not depend on what was made before. A persona is a logged agent: it proposes what it proposed at the task, four
times as readily as what others did, and nothing twice. An agent's session ends with the first call that has the whole
reward.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.stats import stable_hash
from models.backtest import Call

OWN = 4.0
SOLVED = 1.0

Floats = npt.NDArray[np.float64]


class Reply(NamedTuple):
    """The log's answer to a call at a task: `reward` is what the benchmark gave for it, 1 where it solves the task."""

    call: Call
    reward: float


@dataclass(slots=True)
class LoggedTask:
    """A task and the calls that were ever proposed there.

    Attributes:
        tool: of all its proposals.
        place: what agents state as their place: the database that its log tells; empty where it tells none.
        proposals: in the order in which they came, each once.
        replies: by proposal.
        made: by agent, how often it made each proposal.
    """

    id: str
    goal: str
    tool: str
    place: str
    replies: dict[str, Reply] = field(default_factory=dict)
    made: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def proposals(self) -> list[str]:
        return list(self.replies)

    def readiness(self, persona: str) -> Floats:
        own = self.made[persona]
        all_made = sum(self.made.values(), Counter())
        return np.array([all_made[text] + (OWN - 1.0) * own[text] for text in self.replies])

    def solves(self) -> npt.NDArray[np.bool_]:
        return np.array([reply.reward >= SOLVED for reply in self.replies.values()])


class LoggedWorld(NamedTuple):
    """Logged sessions, and the tasks that are made of them.

    Attributes:
        groups: of each task of a session what it has in common with others: its database, its benchmark; or "".
        groups_are: what such groups are, for names of slices.
    """

    sessions: list[LoggedSession]
    tasks: dict[str, LoggedTask]
    groups: Mapping[str, str]
    groups_are: str


def luck(task: LoggedTask, key: str) -> Floats:
    """One draw for each proposal, the same for every memory (Gumbel): the greatest of log weight and draw is chosen.

    Choosing so again and again among those left is drawing without replacement by weight (Efraimidis and Spirakis,
    2006), and what memories have in common cancels out of their difference.
    """
    return np.random.default_rng(stable_hash(key)).gumbel(size=len(task.replies))


def family(agent: str) -> str:
    """The model of an agent: its set-ups (`model/…`) are one family, and so are a maker's sizes (`model-7b`)."""
    model, set_up, _ = agent.partition("/")
    maker = re.match(r"[A-Za-z]+", model)
    return model if set_up or maker is None else maker.group()
