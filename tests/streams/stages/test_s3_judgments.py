"""Rules judge sessions without a reward, and judges are compared with rewards and feedback."""

from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.config import Settings
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.judge import REWARD, RULES, JudgeChain
from models.memory.item_state import ItemState
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Effects, Record, TopicPartition
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s4_items import READ_AGAIN_SECONDS, ItemsStage
from tests.candidates import candidate
from tests.rows import for_each
from tests.streams.log_pipeline import RIGHT, WRONG, LogPipeline


async def cases(pipeline: LogPipeline) -> dict[tuple[str, str], float]:
    return {
        (source, result): await pipeline.metric("fleetlore_judge_cases_total", source=source, result=result)
        for source in ("rules", "reward")
        for result in ("agreed", "contradicted")
    }


async def test_verdicts_are_compared_with_rewards_and_feedback_once() -> None:
    pipeline = LogPipeline(judge=JudgeChain((REWARD, RULES._replace(audited=1.0))))
    story = pipeline.story
    events = [
        *story.session("rewarded", RIGHT, WRONG, outcome="failure"),
        *story.session("corrected", RIGHT, WRONG, outcome="unknown"),
        *story.session("unknown", RIGHT, WRONG, outcome="unknown"),
        story.feedback("corrected", "success"),
        *story.session("both", RIGHT, WRONG, outcome="success"),
        story.feedback("both", "success"),
    ]
    expected = {
        ("rules", "agreed"): 1,  # rewarded
        ("rules", "contradicted"): 2,  # corrected, both
        ("reward", "agreed"): 1,  # both: only feedback measures a reward
        ("reward", "contradicted"): 0,
    }
    await pipeline.take(events)
    assert await cases(pipeline) == expected
    await pipeline.send(list(reversed(events)))
    await pipeline.take(events)
    assert await cases(pipeline) == expected


async def test_a_session_that_ends_in_a_loop_has_failed() -> None:
    pipeline = LogPipeline()
    again = ("bash", {"command": "ls"}, "a.txt", None)
    await pipeline.send(pipeline.story.session("stuck", again, again, again, outcome="unknown"))
    await pipeline.take(pipeline.story.session("left", again, again, again, RIGHT, outcome="unknown"))
    found = {row["session"]: (row["label"], row["source"]) for row in await pipeline.bodies("judgments")}
    assert found == {"stuck": ("failure", "rules"), "left": ("abstained", "none")}


@pytest.mark.parametrize("method", ["votes", "conclude"])
async def test_a_session_that_a_judge_fails_on_costs_no_other_session(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Any = getattr(JudgeChain, method)

    def judge(self: JudgeChain, trajectory: Trajectory, *rest: Any) -> Any:
        if trajectory.session == "odd":
            raise RecursionError("an odd session")
        return original(self, trajectory, *rest)

    monkeypatch.setattr(JudgeChain, method, judge)
    pipeline = LogPipeline()
    for session in ("before", "odd", "after"):
        await pipeline.send(pipeline.story.session(session, RIGHT, WRONG, outcome="failure"))
    await pipeline.drain()
    assert sorted(row["session"] for row in await pipeline.bodies("judgments")) == ["after", "before"]
    letters = await pipeline.dead_letters()
    assert letters and all(b'"odd"' in (value or b"") for _, value in letters)


async def test_a_failure_that_cannot_be_merged_costs_no_other_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PatternsStage.merge

    def merge(self: PatternsStage, tenant: str, state: Any, values: Any, effects: Effects) -> Any:
        if values[0].subject.level == "exact":
            raise RecursionError("an odd pattern")
        return original(self, tenant, state, values, effects)

    monkeypatch.setattr(PatternsStage, "merge", merge)
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("s", RIGHT, WRONG, outcome="failure"))
    levels = {row["level"] for row in await pipeline.bodies("patterns")}
    assert "class" in levels and "exact" not in levels
    assert await pipeline.dead_letters()


HERE = TopicPartition(topic("acme", "candidates"), 0)


def record(offset: int, session: str) -> Record:
    value = candidate(session, tenant="acme").to_json()
    return Record(HERE.topic, HERE.partition, offset, None, value, {})


def sessions(effects: Effects) -> int:
    """Behind the item whose row is written."""
    [row] = effects.rows["items"]
    return len(ItemState.from_json(row["state"].encode()).contributors.kept)


class Uncached(ItemsStage):
    """It knows only the states that wait or are being written."""

    most_bytes = 0


async def test_what_is_being_written_is_built_on_and_not_committed() -> None:
    clock = FakeClock()
    stage = Uncached(MemoryStore(), clock, Metrics("worker"))
    assert not (await stage.process([record(0, "s0")])).rows, "it waits for more"
    clock.advance(stage.write_seconds)
    first = await stage.process([record(1, "s1")])
    assert sessions(first) == 2
    await stage.process([record(2, "s2")])
    assert stage.committable(HERE, 3) == 0
    assert first.acknowledged is not None
    first.acknowledged()
    assert stage.committable(HERE, 3) == 2
    assert stage.holds
    last = await stage.process([])
    assert sessions(last) == 3 and last.acknowledged is not None
    last.acknowledged()
    assert stage.committable(HERE, 3) == 3
    assert not stage.holds


async def test_a_new_item_goes_out_and_a_wrong_one_is_taken_back_at_once_and_rows_wait() -> None:
    stage = ItemsStage(MemoryStore(), FakeClock(), Metrics("worker"))

    async def told(offset: int, **fields: Any) -> list[bool]:
        value = candidate(**{"session": "s", "tenant": "acme", "now": ("b",)} | fields).to_json()
        effects = await stage.process([Record(HERE.topic, HERE.partition, offset, None, value, {})])
        assert not effects.rows and stage.committable(HERE, offset + 1) == 0
        return [each.value is not None for each in effects.outgoing]

    assert await told(0) == [True]
    assert await told(1, session="t", agent="other") == [], "agents know it, so it waits for its row"
    assert await told(2, session="t", agent="other", side="failure", revision=(2, 0.0)) == []
    assert await told(3, side="failure", revision=(2, 0.0)) == [False]


@for_each("later", 0.0, READ_AGAIN_SECONDS)
async def test_what_a_former_owner_published_and_no_row_says_is_withdrawn(later: float) -> None:
    """It was killed between the batch that made an item and the one that took it back; now both come at once."""
    clock = FakeClock()
    stage = ItemsStage(MemoryStore(), clock, Metrics("worker"))
    clock.advance(later)
    taught = candidate("s", item_id="item1")
    withdrawn = replace(taught, side="withdrawn", revision=(2, 0.0))
    value = b"[" + taught.to_json() + b"," + withdrawn.to_json() + b"]"
    effects = await stage.process([Record(HERE.topic, HERE.partition, 0, None, value, {})])
    if not effects.rows:
        effects = await stage.process([])
    assert [(each.key, each.value) for each in effects.outgoing] == ([("item1", None)] if not later else [])


@for_each(
    "review, danger, proposed",
    ("off", True, False),
    ("risky", True, True),
    ("risky", False, False),
    ("all", False, True),
    ("off,acme=all", False, True),
    ("all,acme=off", True, False),
    ("all,other=off", False, True),
)
async def test_a_new_lesson_is_proposed_where_the_tenant_s_review_says_so(
    review: str, danger: bool, proposed: bool
) -> None:
    settings = Settings(review=tuple(review.split(",")))
    stage = ItemsStage(MemoryStore(), FakeClock(), Metrics("worker"), review_of=settings.review_of)
    values = [candidate(f"s{n}", tenant="acme", agent=f"a{n}", danger=danger, now=("b",)) for n in range(4)]
    value = b"[" + b",".join(each.to_json() for each in values) + b"]"
    effects = await stage.process([Record(HERE.topic, HERE.partition, 0, None, value, {})])
    outgoing = [*effects.outgoing, *(await stage.process([])).outgoing]
    [item] = [MemoryItem.from_json(each.value) for each in outgoing if each.value is not None]
    assert item.danger is danger and item.proposed is proposed
