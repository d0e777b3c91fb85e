"""The stages together: the same tests on the in-memory log and on a real broker, Milvus and worker process."""

from collections import Counter
from typing import Any

import orjson
import pytest

from benchmarks.replay import Knowledge
from fleetlore.recall.index import LoreIndex, worth_showing
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import health
from streams.stages.s1_sessions.open_session import PART_EVENTS
from tests.streams.broker_pipeline import BrokerPipeline, Reference
from tests.streams.log_pipeline import LogPipeline, flat

Pipeline = LogPipeline | BrokerPipeline
WRONG = ("bash", {"command": "git comit -m x"}, "", "git: 'comit' is not a git command")
RIGHT = ("bash", {"command": "git commit -m x"}, "1 file changed", None)
HOUR = 3600.0


def labels(knowledge: Knowledge) -> Counter[str]:
    return Counter(label for _, label, _ in knowledge.judgments)


async def test_failed_and_good_sessions_of_one_task_become_lore(pipeline: Pipeline) -> None:
    story = pipeline.story
    await pipeline.send(story.session("good", WRONG, RIGHT) + story.session("bad", WRONG, WRONG, outcome="failure"))
    await pipeline.take(story.session("best", RIGHT) + story.session("also", RIGHT))

    patterns = await pipeline.bodies("patterns")
    rows = {(row["level"], row["error_class"]): row for row in patterns}
    assert {level for level, _ in rows} == {"tool", "call", "family", "class", "exact"}
    [family], [class_], [exact] = (
        [row for row in patterns if row["level"] == level] for level in ("family", "class", "exact")
    )
    assert (exact["parent"], class_["parent"]) == (class_["id"], family["id"])
    assert (class_["failures"], class_["calls"], class_["sessions"], class_["agents"]) == (3, 3, 2, 2)
    [tool] = [row for row in patterns if row["level"] == "tool"]
    assert (tool["calls"], tool["failures"], tool["sessions"]) == (6, 3, 4)
    assert exact["call"] in {row["id"] for row in patterns if row["level"] == "call"}

    judgments = {row["session"]: row for row in await pipeline.bodies("judgments")}
    labels = {session: row["label"] for session, row in judgments.items()}
    assert labels == dict.fromkeys(("good", "best", "also"), "success") | {"bad": "failure"}
    assert {row["source"] for row in judgments.values()} == {"reward"}
    assert {session: row["events"] for session, row in judgments.items()} == {"good": 4, "bad": 4, "best": 3, "also": 3}

    items = {row["kind"]: row for row in await pipeline.bodies("items")}
    assert set(items) == {"recovery", "strategy"}
    assert items["recovery"]["now"] == ["commit"]
    keys = {name: session_key(f"agent-of-{name}", name) for name in ("also", "best", "good")}
    assert items["recovery"]["sessions"] == [keys["good"]]
    assert items["strategy"]["sessions"] == sorted(keys.values())
    assert items["recovery"]["pattern"] == class_["id"]
    assert await pipeline.dead_letters() == []


async def test_everything_twice_is_the_same_as_once(pipeline: Pipeline) -> None:
    events = pipeline.story.interleaved(pipeline.story.fleet(), seed=1)
    await pipeline.take(events)
    once = await pipeline.knowledge()
    await pipeline.send(events)
    await pipeline.take(events, per_record=5)
    assert await pipeline.knowledge() == once
    assert await pipeline.dead_letters() == []
    for name in ("events", "observations", "trajectories", "candidates"):
        assert all(committed == end for committed, end in (await pipeline.committed_offsets(name)).values()), name


async def test_the_interleaving_of_agents_and_the_size_of_records_leave_no_trace(
    pipeline: Pipeline, reference: Reference
) -> None:
    story = pipeline.story
    await pipeline.take(story.interleaved(story.fleet(), seed=2), per_record=3)
    known = await pipeline.knowledge()
    assert known == await reference(pipeline.tenant, story.interleaved(story.fleet(), seed=3))
    assert labels(known) == {"success": 5, "failure": 2, "abstained": 1}
    assert sum(events for _, _, events in known.judgments) == sum(len(session) for session in story.fleet())


@pytest.mark.parametrize("outcome", ["success", "failure"])
async def test_feedback_counts_the_same_before_and_after_the_end(
    pipeline: Pipeline, reference: Reference, outcome: str
) -> None:
    story = pipeline.story
    other = "failure" if outcome == "success" else "success"
    session = story.session("s", WRONG, RIGHT, outcome=other)
    await pipeline.take([*session, story.feedback("s", outcome)])
    [judgment] = await pipeline.bodies("judgments")
    assert (judgment["label"], judgment["source"]) == (outcome, "feedback")
    before = await reference(pipeline.tenant, [story.feedback("s", outcome), *session])
    assert await pipeline.knowledge() == before


async def test_a_session_without_an_end_stays_open_and_holds_the_commit_back(pipeline: Pipeline) -> None:
    story = pipeline.story
    open_session = story.session("s", WRONG, RIGHT, outcome=None)
    await pipeline.take(story.session("s-before", RIGHT))
    before = await pipeline.committed_offsets("events")
    await pipeline.send(open_session)
    await pipeline.work()

    assert "s" not in {row["session"] for row in await pipeline.bodies("judgments")}
    # The other agents already know its failure.
    assert any(row["failures"] == 1 for row in await pipeline.bodies("patterns") if row["level"] == "class")
    held = {
        partition: committed
        for partition, (committed, end) in (await pipeline.committed_offsets("events")).items()
        if committed < end
    }
    [(partition, offset)] = held.items()
    assert offset == before[partition][1]

    await pipeline.take(
        [Event("session.ended", pipeline.tenant, "agent-of-s", "s", 3, 1_760_000_050.0, {ev.OUTCOME: "success"})]
    )
    assert "s" in {row["session"] for row in await pipeline.bodies("judgments")}
    assert all(committed == end for committed, end in (await pipeline.committed_offsets("events")).values())


async def test_a_long_session_is_closed_in_parts(pipeline: Pipeline) -> None:
    calls = [RIGHT] * (PART_EVENTS + 88)
    session = pipeline.story.session("long", *calls)
    await pipeline.take(session, per_record=64)
    judgments = {row["part"]: row for row in await pipeline.bodies("judgments")}
    assert {part: row["events"] for part, row in judgments.items()} == {0: PART_EVENTS, 1: len(session) - PART_EVENTS}
    assert {part: row["label"] for part, row in judgments.items()} == {0: "abstained", 1: "success"}
    [tool] = [row for row in await pipeline.bodies("patterns") if row["level"] == "tool"]
    assert tool["calls"] == len(calls)
    assert await pipeline.dead_letters() == []


async def test_silence_by_event_time_closes_a_session_as_continued(pipeline: Pipeline) -> None:
    story = pipeline.story
    await pipeline.send(story.session("s", WRONG, outcome=None))
    # Later events of many sessions, so that the partition of the silent one has some.
    for number in range(8):
        later = story.session(f"later-{number}", RIGHT, start=1_760_000_000.0 + 2 * HOUR + number)
        await pipeline.send(later)
    await pipeline.drain()
    judgments = {row["session"]: row["label"] for row in await pipeline.bodies("judgments")}
    assert judgments["s"] == "abstained"
    assert len(judgments) == 9
    assert all(committed == end for committed, end in (await pipeline.committed_offsets("events")).values())


async def test_tenants_learn_nothing_of_each_other() -> None:
    one, other = LogPipeline("one"), LogPipeline("other")
    other.log, other.store = one.log, one.store
    other.producer.log = one.log
    other.start()
    await one.send(one.story.session("same", WRONG, RIGHT))
    await other.send(other.story.session("same", WRONG, outcome="failure"))
    await one.drain()
    await other.drain()
    assert labels(await one.knowledge()) == {"success": 1}
    assert labels(await other.knowledge()) == {"failure": 1}
    assert not {row["id"] for row in await one.bodies("items")} & {row["id"] for row in await other.bodies("items")}


POLL = ("job_status", {"job": 7}, "queued", None)
KICK = ("job_start", {"job": 7}, "started", None)
DONE = ("job_status", {"job": 7}, "finished", None)
LOOK = ("read", {"path": "a"}, "text", None)
HARMLESS = ("find", {"email": "a@x.org"}, "", "Error: user not found")
HARMFUL = ("find", {"email": "a@x.org"}, "", "disk full")
FINE = ("find", {"email": "b@x.org"}, "found", None)


async def loops(pipeline: LogPipeline) -> dict[str, Pattern]:
    """By level."""
    found = [Pattern.from_json(orjson.dumps(body)) for body in await pipeline.bodies("patterns")]
    return {each.level: each for each in found if each.is_loop}


async def index_of(pipeline: LogPipeline) -> LoreIndex:
    index = LoreIndex()
    for body in await pipeline.bodies("patterns"):
        index.put_pattern(Pattern.from_json(orjson.dumps(body)))
    for body in await pipeline.bodies("items"):
        index.put_item(MemoryItem.from_json(orjson.dumps(body)))
    return index


async def test_a_loop_is_counted_as_a_pattern_and_not_as_a_failure() -> None:
    pipeline = LogPipeline()
    await pipeline.send(pipeline.story.session("a", POLL, POLL, POLL, POLL, KICK))
    await pipeline.take(pipeline.story.session("b", *([POLL, LOOK] * 3), outcome="failure"))
    rows = (await index_of(pipeline)).patterns.values()
    classes = [each for each in rows if each.is_loop and each.level == "class"]
    assert sorted((each.tool, each.template, each.calls, each.sessions) for each in classes) == [
        ("job_status", "the same call gives the same result", 2, 1),
        ("job_status → read", "2 calls in turn give the same results", 1, 1),
    ]
    assert [(each.tool, each.calls, each.failures, each.errors) for each in health(rows)] == [
        ("job_start", 1, 0, ()),
        ("job_status", 7, 0, ()),
        ("read", 3, 0, ()),
    ]
    assert health(rows, by="error") == []


async def test_others_hear_of_a_loop_while_the_session_is_still_open() -> None:
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("a", POLL, POLL, POLL, outcome=None))
    assert set(await loops(pipeline)) == {"family", "class", "exact"}


async def test_harmless_and_harmful_patterns_are_told_apart(pipeline: Any) -> None:
    story = pipeline.story
    sessions = [
        story.session(
            f"{name}-{n}", call, FINE, outcome="failure" if n in failing else "success", agent=f"agent-{n % 5}"
        )
        for name, call, failing in (
            ("harmless", HARMLESS, {1, 2}),
            ("harmful", HARMFUL, set(range(9))),
            ("fine", FINE, {1, 2, 3}),
        )
        for n in range(10)
    ]
    unsure = story.session("unsure", HARMFUL, outcome="unknown")
    await pipeline.take(flat(sessions) + unsure)
    rows = [Pattern(**row) for row in await pipeline.bodies("patterns")]
    [tool] = [row for row in rows if row.level == "tool"]
    shown = {
        row.template: (row.sessions, row.sessions_ended, row.sessions_failed) for row in rows if row.level == "class"
    }
    assert shown == {"user not found": (10, 10, 2), "disk full": (11, 10, 9)}
    assert (tool.sessions_ended, tool.sessions_failed) == (30, 14)
    assert {row.template for row in rows if row.level == "class" and worth_showing(row, tool)} == {"disk full"}
