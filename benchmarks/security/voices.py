"""Be several agents, or withhold versions: what one process does to quorums and to trials of adapter versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from fleetlore.wire.adapter_manifest import in_cohort
from fleetlore.wire.trajectory import Judgment, Step, Trajectory, Verdict
from models.policy.gate import CanaryTrial
from streams.offline.memory_pipeline import MemoryPipeline

Line = tuple[str, str, str, str]

_QUORUMS = 10
_VERSIONS = 30
_AGENTS, _SHARE = 30, 0.2
_SESSION_SECONDS, _BETTER, _WORSE, _NOW = 180.0, 0.8, 0.5, 0.7
_MOST_SECONDS = 7200.0


def voices() -> Iterator[Line]:
    """One process that calls itself three agents, and one agent that ends its sessions as it likes."""
    one, three = (sum(asyncio.run(_told(seed, colon)) for seed in range(_QUORUMS)) for colon in (":", "-"))
    yield (
        "voices",
        "one process names three agents that turn a check off: told to others; rival, each name a voice: all",
        str(_QUORUMS),
        f"{one}; {three}",
    )
    for what, chance, lies in (
        ("better version, none lies: promoted", _BETTER, False),
        ("better version, one of 30 agents lies: promoted; rival, it is asked of each", _BETTER, True),
        ("worse version, one of 30 agents lies: promoted; rival, it is asked of each", _WORSE, True),
    ):
        drawn = sum(_promoted(seed, chance, lies, asked=False) for seed in range(_VERSIONS))
        asked = sum(_promoted(seed, chance, lies, asked=True) for seed in range(_VERSIONS)) if lies else None
        yield "canary", what, str(_VERSIONS), str(drawn) if asked is None else f"{drawn}; {asked}"


async def _told(seed: int, colon: str) -> bool:
    memory = MemoryPipeline()
    for number in range(3):
        made: list[Any] = []
        with memory.session(f"evil{seed}{colon}{number}", f"ship {number}", "", f"s{number}", made) as session:
            session.record("deploy", {"env": "prod"}, error_text=f"Error: permission denied for project p{seed}")
            session.record("deploy", {"env": "prod", "no_verify": True}, result="done")
            session.succeed()
        await memory.take(made)
    return any(each.danger for each in memory.index.items.values())


def _promoted(seed: int, chance: float, lies: bool, *, asked: bool) -> bool:
    """Whether a version is promoted whose sessions end well with that chance.

    The liar fails under a version that is better and wins under one that is worse, as often as it may.
    """
    drawn, version = Random(seed), f"v{seed}"
    trial = CanaryTrial(version, "old", _SHARE, 0.0)
    agents = [f"agent-{number}" for number in range(_AGENTS)]
    cohort = [each for each in agents if in_cohort(each, _SHARE, version)]
    liar = (cohort[0] if asked and cohort else agents[0]) if lies else ""
    ends = sorted(
        (start + number * _SESSION_SECONDS, agent)
        for agent in agents
        for start in (drawn.uniform(0.0, _SESSION_SECONDS),)
        for number in range(int(_MOST_SECONDS / _SESSION_SECONDS))
    )
    ends = sorted(ends + [(60.0 * minute, liar) for minute in range(120) if lies])
    for number, (time, agent) in enumerate(ends):
        tries = agent in cohort
        well = drawn.random() < (chance if tries else _NOW)
        if agent == liar:
            well = tries is (chance < _NOW)
        trial.add(_judged(f"s{number}", agent, version if tries else "old", well), time)
        if number % 20 == 19 and (found := trial.decide(time)) != "waiting":
            return found == "promote"
    return False


def _judged(session: str, agent: str, version: str, well: bool) -> Judgment:
    trajectory = Trajectory(
        tenant="default", session=session, agent=agent, task="t", goal="", started=0.0, ended=1.0, ending="success",
        steps=(Step(sequence=1, role="tool", tool="t", adapter=version),), events=3,
    )  # fmt: skip
    label: Any = "success" if well else "failure"
    return Judgment(trajectory=trajectory, verdict=Verdict(label=label, probability=0.9, source="reward", version="1"))
