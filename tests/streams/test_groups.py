"""What one group of agents has found or met is told to that group, and to the tenant once another has, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from fleetlore.agent.fleet import Fleet
from fleetlore.errors import ConfigError
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from streams.stages.s1_sessions.open_session import PART_EVENTS
from tests.doubles.recorder import Recorder
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


def knows(pipeline: LogPipeline, group: str | None, most_bytes: float | None = None) -> LoreIndex:
    """What an agent of a group knows."""
    replica = LoreReplica("nowhere:1", pipeline.tenant, group=group, most_bytes=most_bytes)
    for name in ("patterns", "items"):
        for record in pipeline.log.read_all(topic(pipeline.tenant, name)):
            replica._receive(record.topic, record.key, record.value, False)
    return replica.index


def told(pipeline: LogPipeline, group: str | None) -> set[str]:
    """Ids of the items that an agent of a group knows."""
    return set(knows(pipeline, group).items)


def warned(pipeline: LogPipeline, group: str | None, most_bytes: float | None = None) -> set[str]:
    """Ids of the patterns with the text of an error that an agent of a group knows."""
    found = knows(pipeline, group, most_bytes).patterns.values()
    return {each.id for each in found if each.level in ("class", "exact")}


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
    patterns = warned(pipeline, None)
    assert len(patterns) == 2
    for bound in (None, 1e6):
        if group is not None:
            assert (warned(pipeline, "red", bound) == patterns) is group
        for name in ("green", ""):
            assert warned(pipeline, name, bound) == (patterns if others else set())
    # How often calls fail is counted for all.
    assert {each.level for each in knows(pipeline, "green").patterns.values()} >= {"tool", "call", "family"}


async def test_a_later_part_of_a_long_session_is_the_groups_too(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    session = pipeline.story.session("long", *[RIGHT] * PART_EVENTS, WRONG, RIGHT, agent="a")
    for event in session:
        if event.kind == "outcome":  # as an agent of a group sends it
            event.data[ev.AGENT_GROUP] = "red"
    session[0].data[ev.AGENT_GROUP] = "red"
    await pipeline.send(session)
    await pipeline.drain()
    assert warned(pipeline, "red") and not warned(pipeline, "green")
    assert told(pipeline, "red") and not told(pipeline, "green")


async def test_a_pattern_of_one_group_is_the_same_in_any_order_and_read_twice(log_pipeline: MakePipeline) -> None:
    published = []
    for seed in range(4):
        pipeline = log_pipeline()
        sessions = found_by(pipeline, ("a", "red"), ("b", "red"), ("c", "red"))
        events = pipeline.story.interleaved(sessions, seed)
        await pipeline.send(events)
        await pipeline.send(events)
        await pipeline.drain()
        known = knows(pipeline, None)
        assert {each.group for each in known.patterns.values() if each.level == "class"} == {stable_hash("red")}
        published.append({id: replace(each, tenant="") for id, each in known.patterns.items()})
    assert all(each == published[0] for each in published)


async def test_what_a_second_group_finds_is_told_to_all_and_is_not_once_it_is_distrusted(
    log_pipeline: MakePipeline,
) -> None:
    pipeline = log_pipeline()
    first, second = found_by(pipeline, ("a", "red"), ("b", "blue"))
    await pipeline.send(first)
    await pipeline.drain()
    for knowing in (told, warned):
        assert knowing(pipeline, "red") and not knowing(pipeline, "green")
    await pipeline.send(second)
    await pipeline.drain()
    for knowing in (told, warned):
        assert knowing(pipeline, "green") == knowing(pipeline, "red")
    await decide(pipeline, decision("b", on=True))
    for knowing in (told, warned):
        assert knowing(pipeline, "red") and not knowing(pipeline, "green")


def test_a_group_is_a_name() -> None:
    assert Fleet("a", broker="nowhere:1", group="research").group == "research"
    for wrong in ("", "x" * 257, "a\nb"):
        with pytest.raises(ConfigError, match="group"):
            Fleet("a", broker="nowhere:1", group=wrong)


def test_an_agent_says_its_group_with_each_outcome() -> None:
    recorder, fleet = Recorder(), Fleet("a", broker="nowhere:1", group="red")
    fleet.emitter = fleet.reviews = recorder  # type: ignore[assignment]
    with fleet.session("find a bicycle") as session:
        session.record("bash", {"command": "ls"}, result="a")
    said = {event.kind: event.data.get(ev.AGENT_GROUP) for event in recorder.events}
    assert said["session.started"] == said["outcome"] == "red"
