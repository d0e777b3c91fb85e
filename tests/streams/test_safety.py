"""Calls made in spite of a safety warning are counted over the fleet by their results, and warnings use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from fleetlore.recall.index import LoreIndex
from fleetlore.watch.safety import PREFIX, SafetyLessons, SafetyWatch, rule_id
from fleetlore.wire import events as ev
from fleetlore.wire.lore import Pattern
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events
from streams.stages.s1_sessions.sanitize import clean
from streams.stages.s1_sessions.steps import bound_warnings
from tests.streams.log_pipeline import LogPipeline

MakePipeline = Callable[..., LogPipeline]

NOW = 1_767_225_600.0
FORCE = "git-force-push"
PUSH = ("bash", {"command": "git push --force"}, "done", None)
REFUSED = ("bash", {"command": "git push --force"}, "", "remote rejected: protected branch 'main'")
SAFE = ("bash", {"command": "git push"}, "done", None)


def warned(pipeline: LogPipeline, name: str, *calls: Any, rule: str = FORCE, **story: Any) -> list[Any]:
    """A session whose calls were all made after the warning of the rule."""
    events = pipeline.story.session(name, *calls, **story)
    for event in events:
        if event.kind == "outcome":
            event.data[ev.ADVICE] = [f"{PREFIX}{rule}"]
    return list(events)


async def lessons(pipeline: LogPipeline) -> SafetyLessons:
    index = LoreIndex()
    for body in await pipeline.bodies("patterns"):
        index.put_pattern(Pattern.from_json(orjson.dumps(body)), NOW)
    return SafetyLessons(index)


async def row(pipeline: LogPipeline) -> tuple[int, int, int]:
    found = (await lessons(pipeline)).index
    assert found is not None
    pattern = found.patterns[rule_id(FORCE)]
    return pattern.calls, pattern.failures, pattern.agents


async def test_right_warnings_and_false_alarms_are_told_apart_by_outcome(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    await pipeline.send(warned(pipeline, "refused", REFUSED))
    await pipeline.send(warned(pipeline, "failed", PUSH, outcome="failure"))
    await pipeline.send(warned(pipeline, "fine", PUSH))
    await pipeline.send(warned(pipeline, "heeded", SAFE))  # it did something else
    await pipeline.send(warned(pipeline, "unknown", PUSH, outcome="unknown"))
    await pipeline.send(pipeline.story.session("not-warned", PUSH))
    await pipeline.drain()
    assert await row(pipeline) == (3, 2, 4)
    again = await pipeline.knowledge()
    await pipeline.send(warned(pipeline, "fine", PUSH))
    pipeline.crash()
    await pipeline.send(warned(pipeline, "failed", PUSH, outcome="failure"))
    await pipeline.drain()
    assert await pipeline.knowledge() == again


async def test_a_rule_that_is_mostly_a_false_alarm_falls_silent_for_the_fleet(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    for number in range(20):
        await pipeline.send(warned(pipeline, f"fine-{number}", PUSH, agent=f"a{number % 3}"))
    await pipeline.drain()
    fleet = await lessons(pipeline)
    assert fleet.confidence(FORCE) < 0.5 and not fleet.is_shown(FORCE)
    assert SafetyWatch(fleet).cautions(*PUSH[:2]) == ()
    assert SafetyLessons().is_shown(FORCE)


async def test_one_agent_alone_silences_nothing_for_others(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    for number in range(20):
        await pipeline.send(warned(pipeline, f"fine-{number}", PUSH, agent="alone"))
    await pipeline.drain()
    assert (await lessons(pipeline)).is_shown(FORCE)


async def test_a_critical_one_never_falls_silent(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    wipe = ("bash", {"command": "rm -rf /"}, "", None)
    (caution,) = SafetyWatch(SafetyLessons()).cautions(*wipe[:2])
    rule = caution.id.removeprefix(PREFIX)
    for number in range(30):
        await pipeline.send(warned(pipeline, f"fine-{number}", wipe, rule=rule, agent=f"a{number % 3}"))
    await pipeline.drain()
    fleet = await lessons(pipeline)
    assert fleet.confidence(rule) < 0.5 and fleet.is_shown(rule)


async def test_an_agents_own_count_is_not_added_to_the_fleets(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    for number in range(4):
        await pipeline.send(warned(pipeline, f"fine-{number}", PUSH, agent=f"a{number % 2}"))
    await pipeline.drain()
    fleet = await lessons(pipeline)
    before = fleet.confidence(FORCE)
    fleet.credit(FORCE, right=False)
    assert fleet.confidence(FORCE) == before


def test_of_one_record_only_so_much_is_taken_apart() -> None:
    arguments = {"command": "git push --force # " + "x" * 1500}
    told = {ev.TOOL: "bash", ev.ARGUMENTS: arguments, ev.ADVICE: [f"{PREFIX}{FORCE}", "item-1"]}
    sent = [ev.to_cloudevent(ev.Event("outcome", "default", "a", "s", number, NOW, told)) for number in range(40)]
    record = Record("fleetlore.default.events", 0, 0, None, orjson.dumps(sent), {})
    events = read_events(record, Effects())
    clean(events)
    bound_warnings(events)
    assert [event.data.advice for event in events[:10]] == [[f"{PREFIX}{FORCE}", "item-1"]] * 10
    assert all(event.data.advice == ["item-1"] for event in events[10:])
