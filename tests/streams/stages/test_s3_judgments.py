"""A judge that feedback contradicts again and again loses its vote, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from fleetlore.cli.main import main
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.wire.trajectory import Feedback, Verdict
from models.judge.chain import JudgeChain, RewardJudge, RulesJudge
from models.judge.record import FEWEST_CASES, JudgeRecord
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.commands.judges import tally
from streams.offline.memory_pipeline import MemoryStore
from streams.stages.s3_judgments import LABEL, JudgeRecords, RecordKey
from tests.build import call, trajectory
from tests.streams.log_pipeline import LogPipeline

MakePipeline = Callable[..., LogPipeline]

WRONG = ("bash", {"command": "pip instal numpy"}, "", "ERROR: unknown command 'instal'")
RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)
MANY = 4 * FEWEST_CASES  # they are spread over two partitions


async def rows(pipeline: LogPipeline) -> list[dict[str, Any]]:
    return tally(
        [
            JudgeRecord.from_json(row["state"])
            async for row in pipeline.store.rows("judgments", pipeline.tenant, "state", label=LABEL)
        ]
    )


async def send_unsure(pipeline: LogPipeline, name: str, corrected: bool) -> None:
    """Sessions that end on a failed call, which the rules call failures, and perhaps feedback that they were none."""
    story = pipeline.story
    for n in range(MANY):
        await pipeline.send(story.session(f"{name}{n}", RIGHT, WRONG, outcome="unknown"))
    await pipeline.drain()
    if corrected:
        await pipeline.send([story.feedback(f"{name}{n}", "success") for n in range(MANY)])
        await pipeline.drain()


async def test_a_judge_that_is_contradicted_too_often_abstains_also_after_a_restart(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    await send_unsure(pipeline, "early", corrected=True)
    [row] = await rows(pipeline)
    assert (row["judge"], row["tools"], row["said"]) == ("rules-2", "bash", "failure")
    assert (row["right"], row["wrong"], row["silenced"]) == (0, MANY, True)
    assert await pipeline.metric("fleetlore_judge_cases_total", source="rules", result="contradicted") == MANY
    pipeline.crash()
    await send_unsure(pipeline, "late", corrected=False)
    late = [row for row in await pipeline.bodies("judgments") if row["session"].startswith("late")]
    assert {(row["label"], row["source"]) for row in late} == {("abstained", "none")}
    assert await pipeline.metric("fleetlore_judge_silenced_total", source="rules") >= MANY


async def test_a_judge_that_is_right_is_heard(log_pipeline: MakePipeline) -> None:
    class OftenAudited(RulesJudge):
        audited = 0.5

    pipeline = log_pipeline(judge=JudgeChain((RewardJudge(), OftenAudited())))
    for n in range(2 * MANY):
        await pipeline.send(pipeline.story.session(f"s{n}", RIGHT, WRONG, outcome="failure"))
    await send_unsure(pipeline, "late", corrected=False)
    [row] = await rows(pipeline)
    assert (row["judge"], row["wrong"], row["silenced"]) == ("rules-2", 0, False)
    assert MANY / 2 < row["right"] < 2 * MANY
    late = [row for row in await pipeline.bodies("judgments") if row["session"].startswith("late")]
    assert {(row["label"], row["source"]) for row in late} == {("failure", "rules")}


@pytest.mark.parametrize(
    ("right", "wrong", "heard"),
    [
        (0, 0, 0.9),
        (FEWEST_CASES - 1, 0, 0.9),
        (26, 40, None),
        (41, 52, None),
        (16, 0, 0.80),
        (262, 55, 0.78),
        (99, 0, 0.96),
    ],
)
async def test_a_model_is_as_sure_as_its_record(right: int, wrong: int, heard: float | None) -> None:
    records = JudgeRecords(MemoryStore(), Metrics("test"))
    vote = Verdict(label="failure", probability=0.1, source="llm", version="llm-1")
    place = "acme", 0, "bash"
    await records.load("judgments", [(RecordKey("acme", 0, vote.version, "bash"), "llm")])
    said_success = replace(vote, label="success", probability=0.9)
    for n in range(2 * FEWEST_CASES):  # a record keeps a sample
        feedback = Feedback(session=f"good{n}", label="success", time=5.0, by="b")
        records.note(place, trajectory(call("bash"), session=f"good{n}", feedback=feedback), [said_success], ())
    for n in range(right + wrong):
        feedback = Feedback(session=f"s{n}", label="failure" if n < right else "success", time=5.0, by="b")
        session = trajectory(call("bash"), session=f"s{n}", feedback=feedback)
        records.note(place, session, [vote], ())
    counted = records.counted(place, [vote])
    assert [each.label for each in counted] == ([] if heard is None else ["failure"])
    assert heard is None or 1 - counted[0].probability == pytest.approx(heard, abs=0.01)


async def test_a_session_that_ends_in_a_loop_has_failed(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    again = ("bash", {"command": "ls"}, "a.txt", None)
    await pipeline.send(pipeline.story.session("stuck", again, again, again, outcome="unknown"))
    await pipeline.send(pipeline.story.session("left", again, again, again, RIGHT, outcome="unknown"))
    await pipeline.drain()
    found = {row["session"]: (row["label"], row["source"]) for row in await pipeline.bodies("judgments")}
    assert found == {"stuck": ("failure", "rules"), "left": ("abstained", "none")}


async def test_everything_twice_is_counted_once(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline()
    story = pipeline.story
    events = [
        *story.session("a", RIGHT, WRONG, outcome="failure"),
        *story.session("b", RIGHT, WRONG, outcome="unknown"),
        story.feedback("b", "success"),
        story.feedback("a", "success", 1),
        story.feedback("a", "failure", 2, 1_760_000_300.0),
    ]
    await pipeline.send(events)
    await pipeline.drain()
    once = await rows(pipeline)
    # Session `a` is none of those on which the rules are asked beside the environment.
    assert {(row["judge"], row["right"], row["wrong"]) for row in once} == {("rules-2", 0, 1), ("reward-1", 1, 0)}
    pipeline.crash()
    await pipeline.send(list(reversed(events)))
    await pipeline.send(events)
    await pipeline.drain()
    assert await rows(pipeline) == once


async def test_the_command_says_it(
    log_pipeline: MakePipeline, milvus: str, tenant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = log_pipeline(tenant)
    await send_unsure(pipeline, "early", corrected=True)
    store = MilvusStore(milvus, "", StaticEncoder(), Metrics("test"))
    await store.open()
    await store.upsert("judgments", list(pipeline.store.collections["judgments"].values()))
    await store.close()

    def said(*options: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(["judges", "--milvus", milvus, *options])
        assert not end.value.code
        return capsys.readouterr().out

    told = await asyncio.to_thread(said, "--tenant", tenant, "--json")
    assert orjson.loads(told)["judges"] == await rows(pipeline)
    [line] = [line for line in (await asyncio.to_thread(said, "--tenant", tenant)).splitlines() if "rules-2" in line]
    assert line.split()[1:5] == ["bash", "failure", "0", str(MANY)] and line.endswith("[silenced]")
    assert "measured" in await asyncio.to_thread(said, "--tenant", "nobody")
