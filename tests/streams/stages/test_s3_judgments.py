"""Rules judge sessions without a reward, and judges are compared with rewards and feedback."""

from typing import Any

import pytest

from fleetlore.wire.trajectory import Trajectory
from models.judge import REWARD, RULES, JudgeChain
from streams.stage.base import Effects
from streams.stages.s2_patterns import PatternsStage
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
