"""What one group of agents has found is told to that group, and to the tenant once another has found it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from fleetlore.agent.fleet import Fleet
from fleetlore.errors import ConfigError
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from tests.streams.log_pipeline import LogPipeline
from tests.streams.test_distrust import decide, decision

MakePipeline = Callable[..., LogPipeline]
WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)


def found_by(pipeline: LogPipeline, *agents: tuple[str, str]) -> list[list[Event]]:
    """A session of each (agent, group) in which the agent gets past the same failure."""
    sessions = []
    for number, (agent, group) in enumerate(agents):
        session = pipeline.story.session(f"s{number}", WRONG, RIGHT, agent=agent)
        if group:
            session[0].data[ev.AGENT_GROUP] = group
        sessions.append(session)
    return sessions


def told(pipeline: LogPipeline, group: str | None) -> set[str]:
    """Ids of the items that an agent of a group knows."""
    replica = LoreReplica("nowhere:1", pipeline.tenant, group=group)
    for record in pipeline.log.read_all(topic(pipeline.tenant, "items")):
        replica._apply(record.topic, record.key, record.value)
    return set(replica.index.items)


@pytest.mark.parametrize(
    ("agents", "group", "others"),
    [
        ([("a", "red")], True, False),
        ([("a", "red"), ("b", "red"), ("c", "red")], True, False),
        ([("a", "red"), ("b", "blue")], True, True),
        ([("a", "red"), ("a", "blue")], None, False),  # one agent that says two groups is no quorum
        ([("a", "")], True, True),
        ([("a", "red"), ("b", "")], True, True),
    ],
)
async def test_who_is_told(
    log_pipeline: MakePipeline, agents: Sequence[tuple[str, str]], group: bool | None, others: bool
) -> None:
    pipeline = log_pipeline()
    sessions = found_by(pipeline, *agents)
    Random(len(agents)).shuffle(sessions)
    await pipeline.send([event for session in sessions for event in session])
    await pipeline.drain()
    everything = told(pipeline, None)
    assert everything
    if group is not None:
        assert (told(pipeline, "red") == everything) is group
    assert bool(told(pipeline, "green")) is bool(told(pipeline, "")) is others


async def test_what_a_second_group_finds_is_told_to_all_and_is_not_once_it_is_distrusted(
    log_pipeline: MakePipeline,
) -> None:
    pipeline = log_pipeline()
    first, second = found_by(pipeline, ("a", "red"), ("b", "blue"))
    await pipeline.send(first)
    await pipeline.drain()
    assert told(pipeline, "red") and not told(pipeline, "green")
    await pipeline.send(second)
    await pipeline.drain()
    assert told(pipeline, "green") == told(pipeline, "red")
    await decide(pipeline, decision("b", on=True))
    assert told(pipeline, "red") and not told(pipeline, "green")


def test_a_group_is_a_name() -> None:
    assert Fleet("a", broker="nowhere:1", group="research").group == "research"
    for wrong in ("", "x" * 257, "a\nb"):
        with pytest.raises(ConfigError, match="group"):
            Fleet("a", broker="nowhere:1", group=wrong)
