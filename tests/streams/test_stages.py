"""The stages together: the same tests on the in-memory log and on a real broker, Milvus and worker process."""

from collections import Counter
from typing import Any

import pytest

from benchmarks.replay import Knowledge
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.principals import session_key
from fleetlore.wire.topics import topic
from streams.stages.s1_sessions.open_session import PART_EVENTS
from tests.streams.broker_pipeline import BrokerPipeline, Reference
from tests.streams.log_pipeline import LogPipeline

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


async def test_an_hour_on_the_clock_closes_nothing() -> None:
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("s", WRONG, outcome=None))
    pipeline.clock.advance(100 * HOUR)
    await pipeline.take(pipeline.story.session("other", RIGHT, start=1_760_000_010.0))
    assert "s" not in {row["session"] for row in await pipeline.bodies("judgments")}


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


async def test_a_session_in_any_script_fits_the_store() -> None:
    """The in-memory store refuses the same rows as Milvus, which would stop the worker."""
    pipeline = LogPipeline()
    for number, letter in enumerate(("語", "\x01", "😀")):
        data = {
            ev.TOOL: "😀" * 256,
            ev.ARGUMENTS: {f"{letter}{key}": letter * 100 for key in range(200)},
            ev.RESULT: letter * 3000,
            ev.ERROR_TYPE: letter * 3000,
            ev.ERROR_MESSAGE: letter * 3000,
            ev.ADVICE: [letter * 500] * 100,
            ev.ADAPTER: letter * 3000,
        }
        session = f"s{number}"
        kinds: list[tuple[ev.Kind, dict[str, Any]]] = [
            ("session.started", {ev.GOAL: letter * 3000, ev.TASK: letter * 3000}),
            *[("outcome", data)] * 40,
            ("message", {ev.ROLE: letter * 3000, ev.CONTENT: letter * 3000}),
            ("session.ended", {ev.OUTCOME: "failure"}),
        ]
        await pipeline.send(
            [
                Event(kind, pipeline.tenant, "語" * 256, session, sequence, 1_760_000_000.0, fields)
                for sequence, (kind, fields) in enumerate(kinds)
            ]
        )
    await pipeline.drain()
    assert labels(await pipeline.knowledge()) == {"failure": 3}


async def test_observations_that_say_nothing_new_are_committed_all_the_same() -> None:
    pipeline = LogPipeline()
    events = pipeline.story.session("s", WRONG, RIGHT)
    await pipeline.take(events)
    pipeline.crash()
    for record in pipeline.log.read_all(topic(pipeline.tenant, "observations")):
        pipeline.log.append(record.topic, record.value, partition=record.partition)
    await pipeline.drain()
    assert all(committed == end for committed, end in pipeline.committed("observations").values())


async def test_a_new_pattern_goes_out_at_once_and_a_known_one_waits_for_its_row() -> None:
    pipeline = LogPipeline(batch_records=100)
    name = topic(pipeline.tenant, "patterns")
    await pipeline.send(pipeline.story.session("s1", WRONG, RIGHT))
    await pipeline.step()
    while await pipeline.batch(pipeline.stages[2], 0) or await pipeline.batch(pipeline.stages[2], 1):
        pipeline.commit()
    assert pipeline.log.read_all(name)
    assert not await pipeline.bodies("patterns")
    assert any(committed < end for committed, end in pipeline.committed("observations").values())
    await pipeline.drain()
    assert await pipeline.bodies("patterns")
    assert all(committed == end for committed, end in pipeline.committed("observations").values())


async def test_what_waits_is_not_written_over_the_collection_of_a_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = LogPipeline(batch_records=100)
    patterns = pipeline.stages[2]
    await pipeline.send(pipeline.story.session("s1", WRONG, RIGHT))
    await pipeline.step()
    while await pipeline.batch(patterns, 0) or await pipeline.batch(patterns, 1):
        pass
    assert patterns.holds

    async def renamed(collection: str) -> str:
        return f"{collection}_v2"

    monkeypatch.setattr(pipeline.store, "resolve", renamed)
    await pipeline.run(patterns, [])
    assert not await pipeline.bodies("patterns")
    assert not patterns.holds
    pipeline.commit()
    assert all(committed == end for committed, end in pipeline.committed("observations").values())


async def _worked(pipeline: Any, stage: int) -> None:
    """The stage has read the whole topic, and held no record back longer than necessary."""
    while await pipeline.batch(pipeline.stages[stage], 0) or await pipeline.batch(pipeline.stages[stage], 1):
        pipeline.commit()


async def test_a_new_item_goes_out_and_a_wrong_one_is_taken_back_at_once_and_rows_wait() -> None:
    pipeline = LogPipeline(batch_records=100)
    story, name = pipeline.story, topic(pipeline.tenant, "items")

    def told() -> dict[bytes, list[bytes | None]]:
        by_key: dict[bytes, list[bytes | None]] = {}
        for record in pipeline.log.read_all(name):
            by_key.setdefault(record.key, []).append(record.value)
        return by_key

    for session in ("one", "two", "three"):
        await pipeline.send(story.session(session, RIGHT))
    for stage in (0, 1, 3, 4):
        await _worked(pipeline, stage)
    [way] = told()
    assert len(told()[way]) == 1
    assert not await pipeline.bodies("items")
    assert any(committed < end for committed, end in pipeline.committed("candidates").values())
    # The same again, by another agent: agents know the item, so it waits.
    await pipeline.send(story.session("four", RIGHT, agent="other"))
    for stage in (0, 1, 3, 4):
        await _worked(pipeline, stage)
    assert len(told()[way]) == 1
    for session in ("three", "four"):
        await pipeline.send([story.feedback(session, "failure")])
    for stage in (0, 1, 3, 4):
        await _worked(pipeline, stage)
    assert told()[way][-1] is None
    await pipeline.drain()
    assert told()[way][-1] is None
    assert all(committed == end for committed, end in pipeline.committed("candidates").values())
