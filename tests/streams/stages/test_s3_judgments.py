"""Rules judge sessions without a reward, and judges are compared with rewards and feedback."""

from collections.abc import Callable

from models.judge.chain import JudgeChain, RewardJudge, RulesJudge
from tests.streams.log_pipeline import LogPipeline

MakePipeline = Callable[..., LogPipeline]

WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)


async def cases(pipeline: LogPipeline) -> dict[tuple[str, str], float]:
    return {
        (source, result): await pipeline.metric("fleetlore_judge_cases_total", source=source, result=result)
        for source in ("rules", "reward")
        for result in ("agreed", "contradicted")
    }


async def test_verdicts_are_compared_with_rewards_and_feedback_once(log_pipeline: MakePipeline) -> None:
    class AlwaysAudited(RulesJudge):
        audited = 1.0

    pipeline = log_pipeline(judge=JudgeChain((RewardJudge(), AlwaysAudited())))
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
    await pipeline.send(events)
    await pipeline.drain()
    assert await cases(pipeline) == expected
    await pipeline.send(list(reversed(events)))
    await pipeline.send(events)
    await pipeline.drain()
    assert await cases(pipeline) == expected


async def test_a_session_that_ends_in_a_loop_has_failed(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    again = ("bash", {"command": "ls"}, "a.txt", None)
    await pipeline.send(pipeline.story.session("stuck", again, again, again, outcome="unknown"))
    await pipeline.send(pipeline.story.session("left", again, again, again, RIGHT, outcome="unknown"))
    await pipeline.drain()
    found = {row["session"]: (row["label"], row["source"]) for row in await pipeline.bodies("judgments")}
    assert found == {"stuck": ("failure", "rules"), "left": ("abstained", "none")}
