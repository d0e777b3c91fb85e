"""Read logs of real agents as worlds: which calls they can answer, and which of those solve a task.

| world | calls that the log can answer | what solves | tasks of one |
| --- | --- | --- | --- |
| `sql-log` | all: queries only read, so no answer depends on what was asked before | its reward is 1 | database |
| `python-log` | those that opened a session, whose interpreter was fresh | most such sessions did | benchmark |

SQL is InterCode's, which gives a reward for each call. Python is MINT's, which gives one for a session: so a choice is
how to begin there, and what follows is the log's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.evaluate.places import at_places
from benchmarks.evaluate.world import LoggedTask, LoggedWorld, Reply
from benchmarks.runs import TRAJECTORIES, lines_of, read_runs
from fleetlore.errors import ConfigError
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.stats import stable_hash
from models.backtest import Call
from streams.offline.memory_pipeline import call_log


def sql_log(folder: Path) -> LoggedWorld:
    """The SQL sessions below a folder.

    Raises:
        ConfigError: no session has a reward for each of its calls, as `meta.rewards` of its trajectory.
    """
    rewards = dict(_rewards(folder))
    sessions = at_places([each for each in _sessions(folder, "sql") if each.session in rewards])
    tasks = _tasks(sessions, "sql")
    for session in sessions:
        for call, reward in zip(call_log(session).calls, rewards[session.session], strict=False):
            _propose(tasks[session.task], session.agent, " ".join(call.text.split()), call, reward)
    places = {each.task: each.place for each in sessions}
    return LoggedWorld(sessions, _answered(tasks, "SQL session with a reward for each call"), places, "databases")


def python_log(folder: Path) -> LoggedWorld:
    """The sessions below a folder in which Python was called.

    Raises:
        ConfigError: no such session has a known end.
    """
    sessions = [each for each in _sessions(folder, "python") if each.outcome != "unknown"]
    tasks = _tasks(sessions, "python")
    ends: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    began: list[tuple[LoggedSession, Call]] = []
    for session in sessions:
        first = next(call for call in call_log(session).calls if call.tool == "python")
        ends[session.task, first.text].append(session.outcome == "success")
        began.append((session, first))
    for session, first in began:
        ended = ends[session.task, first.text]
        _propose(tasks[session.task], session.agent, first.text, first, float(sum(ended) > len(ended) / 2))
    groups = {each.task: each.task.partition("/")[0] for each in sessions}
    return LoggedWorld(sessions, _answered(tasks, "Python session of which the end is known"), groups, "benchmarks")


def some_tasks(world: LoggedWorld, most: int) -> LoggedWorld:
    """The world with so many of its tasks, drawn by a hash, and their sessions; 0: as it is."""
    if not most:
        return world
    kept = set(sorted(world.tasks, key=lambda name: (stable_hash(f"some/{name}"), name))[:most])
    return world._replace(
        sessions=[each for each in world.sessions if each.task in kept],
        tasks={name: task for name, task in world.tasks.items() if name in kept},
    )


def _sessions(folder: Path, tool: str) -> list[LoggedSession]:
    return [
        each
        for each in read_runs(folder)
        if any(kind == "outcome" and data[ev.TOOL] == tool for kind, data in each.events)
    ]


def _tasks(sessions: Iterable[LoggedSession], tool: str) -> dict[str, LoggedTask]:
    tasks: dict[str, LoggedTask] = {}
    for each in sessions:
        tasks.setdefault(each.task, LoggedTask(each.task, each.goal, tool, each.place))
    return tasks


def _propose(task: LoggedTask, agent: str, text: str, call: Call, reward: float) -> None:
    if text.strip() and not call.pseudo:
        task.replies.setdefault(text, Reply(call, float(reward)))
        task.made[agent][text] += 1


def _answered(tasks: dict[str, LoggedTask], wanted: str) -> dict[str, LoggedTask]:
    answered = {name: task for name, task in tasks.items() if task.replies}
    if not answered:
        raise ConfigError(f"--data holds no {wanted}")
    return answered


def _rewards(folder: Path) -> Iterator[tuple[str, Sequence[float]]]:
    for path in sorted(folder.rglob(f"{TRAJECTORIES}*")):
        for trajectory in lines_of(path):
            if found := (trajectory.get("meta") or {}).get("rewards"):
                yield trajectory["session"], found


WORLDS: Mapping[str, Callable[[Path], LoggedWorld]] = {"sql-log": sql_log, "python-log": python_log}
