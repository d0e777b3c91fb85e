"""Split one folder of logs into training and test: some agents and some tasks of each source are held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeVar

from fleetlore.errors import ConfigError
from fleetlore.stats.hashing import stable_hash

__all__ = ["Logged", "Slice", "slices_of", "split"]

Slice = Literal["A", "T", "AT", "K", "S"]


class Logged(Protocol):
    """What a session is grouped by."""

    @property
    def source(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def task(self) -> str: ...


L = TypeVar("L", bound=Logged)


def split(sessions: Sequence[L], seed: int, share: float, leave_out: str | None = None) -> tuple[list[L], list[L]]:
    """Hold out `share` of the agents and of the tasks of each source, drawn by hash, and all of the source `leave_out`.

    Training has the sessions of known agents on known tasks; the others are for the test and fall into the slices A, T
    and AT. A source with one agent (or task) keeps it. Set-ups of one model (`model/…`) are held out together: of a
    model that is known in another set-up, too much is known.

    Raises:
        ConfigError: there is no source of that name, or nothing is left on one side.
    """
    sources = {each.source for each in sessions}
    if leave_out is not None and leave_out not in sources:
        raise ConfigError(f"there is no source {leave_out!r} to leave out; there are: {', '.join(sorted(sources))}")
    held: set[tuple[str, str, str]] = set()
    for source in sources - {leave_out}:
        own = [each for each in sessions if each.source == source]
        for kind, names in (("agent", {each.agent for each in own}), ("task", {each.task for each in own})):
            drawn = sorted(names, key=lambda name: (stable_hash(f"{seed}/{kind}/{source}/{name}"), name))
            count = max(1, round(share * len(drawn))) if len(drawn) > 1 else 0
            held |= {(kind, source, name) for name in (_models(drawn, count) if kind == "agent" else drawn[:count])}
    train: list[L] = []
    test: list[L] = []
    for each in sessions:
        out = {("agent", each.source, each.agent), ("task", each.source, each.task)} & held
        (test if out or each.source == leave_out else train).append(each)
    if not train or not test:
        raise ConfigError("too few agents and tasks to hold some out: one part would be empty")
    return train, test


def slices_of(train: Sequence[Logged], test: Sequence[Logged]) -> list[Slice]:
    """The slice of each test session, by what its source's training sessions know.

    A: a known task, a new agent; T: a known agent, a new task; AT: both new; K: both known; S: nothing of the source is
    known. Agents and tasks are known by name within their source.
    """
    agents = {(case.source, case.agent) for case in train}
    tasks = {(case.source, case.task) for case in train}
    sources = {source for source, _ in agents}
    names: Mapping[tuple[bool, bool], Slice] = {
        (False, True): "A",
        (True, False): "T",
        (False, False): "AT",
        (True, True): "K",
    }
    return [
        names[(case.source, case.agent) in agents, (case.source, case.task) in tasks] if case.source in sources else "S"
        for case in test
    ]


def _models(agents: Sequence[str], most: int) -> list[str]:
    """The first agents, at most so many, with all set-ups of their models; the smallest model if all are larger."""
    setups: dict[str, list[str]] = {}
    for agent in agents:
        setups.setdefault(agent.partition("/")[0], []).append(agent)
    if len(setups) < 2:
        return list(agents[:most])
    held: list[str] = []
    for own in setups.values():
        if len(held) + len(own) <= most:
            held += own
    return held or min(setups.values(), key=len) if most else []
