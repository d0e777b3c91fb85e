"""Make a world of logs: at a task any call that an agent once proposed there can be made, and its answer is the log's.

InterCode's SQL sessions hold each query's answer and the benchmark's own reward for it; queries only read, so an answer
does not depend on what was made before. A persona is a logged agent: it proposes what it proposed at the task, four
times as readily as what others did, and nothing twice. An agent's session ends with the first call that has the whole
reward.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from fleetlore.errors import ConfigError
from fleetlore.stats.hashing import stable_hash
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.transcripts.steps import TRAJECTORIES
from fleetlore.wire import events as ev
from models.backtest.advice.heard import Call
from streams.offline.hear import at_places, call_log

SQL = "sql"
OWN = 4.0
SOLVED = 1.0

Floats = npt.NDArray[np.float64]


class Reply(NamedTuple):
    """What the log says of a call at a task: `reward` is what the benchmark gave for it."""

    call: Call
    reward: float


@dataclass(slots=True)
class LoggedTask:
    """A task and the calls that were ever proposed there.

    Attributes:
        place: the database that its log tells; empty where it tells none.
        proposals: in the order in which they came, each once.
        replies: by proposal.
        made: by agent, how often it made each proposal.
    """

    id: str
    goal: str
    place: str
    replies: dict[str, Reply] = field(default_factory=dict)
    made: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def proposals(self) -> list[str]:
        return list(self.replies)

    def readiness(self, persona: str) -> Floats:
        """Weight of each proposal for a persona: (proposals,)."""
        own = self.made[persona]
        all_made = sum(self.made.values(), Counter())
        return np.array([all_made[text] + (OWN - 1.0) * own[text] for text in self.replies])

    def solves(self) -> npt.NDArray[np.bool_]:
        """Which proposals have the whole reward: (proposals,)."""
        return np.array([reply.reward >= SOLVED for reply in self.replies.values()])


class LoggedWorld(NamedTuple):
    """Sessions that state their places, and the tasks that are made of them."""

    sessions: list[LoggedSession]
    tasks: dict[str, LoggedTask]


def sql_world(folder: Path) -> LoggedWorld:
    """The SQL sessions below a folder.

    Raises:
        ConfigError: no session has a reward for each of its calls, as `meta.rewards` of its trajectory.
    """
    rewards = dict(_rewards(folder))
    chosen = [
        each
        for each in read_sessions(folder)
        if each.session in rewards and any(kind == "outcome" and data[ev.TOOL] == SQL for kind, data in each.events)
    ]
    if not chosen:
        raise ConfigError(f"{folder} holds no SQL session with a reward for each call (meta.rewards)")
    sessions = at_places(chosen)
    tasks: dict[str, LoggedTask] = {}
    for session in sessions:
        task = tasks.setdefault(session.task, LoggedTask(session.task, session.goal, session.place))
        for call, reward in zip(call_log(session).calls, rewards[session.session], strict=False):
            text = " ".join(call.text.split())
            if text and not call.pseudo:
                task.replies.setdefault(text, Reply(call, float(reward)))
                task.made[session.agent][text] += 1
    return LoggedWorld(sessions, {name: task for name, task in tasks.items() if task.replies})


def _rewards(folder: Path) -> Iterator[tuple[str, Sequence[float]]]:
    for path in sorted(folder.rglob(f"{TRAJECTORIES}*")):
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                trajectory = orjson.loads(line)
                found = (trajectory.get("meta") or {}).get("rewards")
                if found:
                    yield trajectory["session"], found


def luck(task: LoggedTask, key: str) -> Floats:
    """One draw for each proposal, the same for every memory (Gumbel): the greatest of log weight and draw is chosen.

    Choosing so again and again among those left is drawing without replacement by weight (Efraimidis and Spirakis,
    2006), and what memories have in common cancels out of their difference.
    """
    return np.random.default_rng(stable_hash(key)).gumbel(size=len(task.replies))


def family(agent: str) -> str:
    """The model of an agent: its set-ups (`model/…`) are one family."""
    return agent.partition("/")[0]
