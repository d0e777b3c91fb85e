"""A language model is asked once about sessions that no judge could judge, and nothing waits for it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from fleetlore.config import Settings
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import cached_hash
from models.llm.questions import LanguageModel
from sinks.metrics import Metrics
from streams.stages.pipeline import language_model
from tests.doubles.model_endpoint import ModelEndpoint, Reply
from tests.streams.broker_pipeline import LonePipeline, StartWorker
from tests.streams.log_pipeline import LogPipeline

WRONG = ("bash", {"command": "git comit -m x"}, "", "git: 'comit' is not a git command")
LOOKED = ("bash", {"command": "git status"}, "1 file", None)
RIGHT = ("bash", {"command": "git commit -m x"}, "1 file changed", None)
FAILED = {"thoughts": "", "complete": "no", "grounded": "yes", "right_target": "yes", "verdict": "failure"}
WORKED = {"thoughts": "", "complete": "yes", "grounded": "yes", "right_target": "yes", "verdict": "success"}


def answer(request: dict[str, Any]) -> Any:
    """A session whose goal says so has failed; others have worked."""
    return FAILED if "hopeless" in request["messages"][1]["content"] else WORKED


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint(answer) as running:
        yield running


MakeModel = Callable[..., LanguageModel]


@pytest.fixture
async def model(endpoint: ModelEndpoint, tmp_path: Path) -> Any:
    made: list[LanguageModel] = []

    def make(**changes: Any) -> LanguageModel:
        values: dict[str, Any] = {"llm_url": endpoint.url, "llm_model": "m1", "llm_retries": 0, "llm_audit_share": 0.0}
        values |= {"llm_answers": str(tmp_path / "answers")}
        made.append(LanguageModel(Settings(**(values | changes))))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def judgments(pipeline: LogPipeline) -> dict[str, tuple[str, str]]:
    return {row["session"]: (row["label"], row["source"]) for row in await pipeline.bodies("judgments")}


async def send_unsure(pipeline: LogPipeline, *sessions: str) -> None:
    for name in sessions:
        task = "hopeless" if name.startswith("bad") else "task-1"
        await pipeline.send(pipeline.story.session(name, LOOKED, RIGHT, outcome="unknown", task=task))


async def test_only_what_nobody_could_judge_is_asked_about(endpoint: ModelEndpoint, model: MakeModel) -> None:
    pipeline = LogPipeline(model=model())
    await send_unsure(pipeline, "good", "bad")
    await pipeline.send(pipeline.story.session("rewarded", RIGHT))
    await pipeline.take(pipeline.story.session("ruled", RIGHT, WRONG, outcome="unknown"))
    expected = {"good": ("success", "llm"), "bad": ("failure", "llm")}
    assert await judgments(pipeline) == expected | {"rewarded": ("success", "reward"), "ruled": ("failure", "rules")}
    assert len(endpoint.requests) == 2
    assert all(committed == end for committed, end in pipeline.committed("judgments").values())
    # A model is not sure enough for its verdict to teach the way of a task.
    taught = {each["session"] for each in pipeline.published("candidates") if each["kind"] == "strategy"}
    assert taught == {session_key("agent-of-rewarded", "rewarded")}


async def test_a_replay_and_a_new_worker_ask_nothing_twice_and_come_to_the_same(
    endpoint: ModelEndpoint, model: MakeModel
) -> None:
    pipeline = LogPipeline(model=model())
    await send_unsure(pipeline, "good", "bad")
    await pipeline.drain()
    known, asked = await pipeline.knowledge(), len(endpoint.requests)
    assert asked == 2
    pipeline.crash()
    await send_unsure(pipeline, "good", "bad")
    await pipeline.drain()
    assert await pipeline.knowledge() == known
    other = LogPipeline(model=model(), batch_records=1)
    await send_unsure(other, "bad", "good")
    await other.drain()
    assert await other.knowledge() == known
    assert len(endpoint.requests) == asked


GONE = "AttributeError: 'DataFrame' object has no attribute 'append'"
APPENDED = ("python", {"code": "df = df.append(row)"}, "", GONE)
JOINED = ("python", {"code": "import pandas as pd; df = pd.concat([df, row])"}, "3 rows", None)


def teach(request: dict[str, Any]) -> Any:
    """Teach what got past the failure, and no verdict."""
    rows = [orjson.loads(line) for line in request["messages"][1]["content"].split("\n")[1:-1]]
    [failed], [worked] = (
        [row["step"] for row in rows if word in row.get("arguments", "")] for word in (".append", "concat")
    )
    return {"lessons": [{"failed": failed, "rejected": "append", "worked": worked, "instead": "concat"}]}


async def taught_items(pipeline: LogPipeline) -> list[tuple[list[str], list[str], int]]:
    items = [row for row in await pipeline.bodies("items") if row and row["kind"] == "recovery"]
    return [(row["was"], row["now"], row["agents"]) for row in items if row["now"] == ["concat"]]


async def test_what_a_model_teaches_becomes_an_item(endpoint: ModelEndpoint, model: MakeModel) -> None:
    endpoint.model = teach
    pipeline, other = LogPipeline(model=model()), LogPipeline()
    for each in (pipeline, other):
        for name in ("one", "two"):
            await each.send(each.story.session(name, APPENDED, JOINED))
        await each.drain()
    assert await taught_items(pipeline) == [(["append"], ["concat"], 2)]
    assert await taught_items(other) == [], "without a model nobody can tell which of the changes mattered"
    assert 1 <= len(endpoint.requests) <= 2, "both sessions are the same recording"


async def test_a_session_that_is_erased_while_the_model_is_asked_teaches_nothing(
    endpoint: ModelEndpoint, model: MakeModel
) -> None:
    pipeline = LogPipeline(model=model())

    def erase_and_teach(request: dict[str, Any]) -> Any:
        names = [session_key(f"agent-of-{name}", name) for name in ("one", "two")]
        pipeline.operators.erased.add_sessions(pipeline.tenant, map(cached_hash, names))
        return teach(request)

    endpoint.model = erase_and_teach
    for name in ("one", "two"):
        await pipeline.send(pipeline.story.session(name, APPENDED, JOINED))
    await pipeline.drain()
    assert endpoint.requests and await taught_items(pipeline) == []


async def test_feedback_outranks_a_model_before_and_after_it(model: MakeModel) -> None:
    pipeline = LogPipeline(model=model())
    await pipeline.send([pipeline.story.feedback("bad-1", "success")])
    await send_unsure(pipeline, "bad-1", "bad-2")
    await pipeline.drain()
    await pipeline.take([pipeline.story.feedback("bad-2", "success")])
    assert set((await judgments(pipeline)).values()) == {("success", "feedback")}


async def test_sessions_do_not_wait_for_a_slow_model_and_the_commit_does(
    endpoint: ModelEndpoint, model: MakeModel
) -> None:
    answer = threading.Event()

    def slow(_: dict[str, Any]) -> Reply:
        assert answer.wait(120)
        return Reply(orjson.dumps(WORKED).decode())

    endpoint.model = slow
    pipeline = LogPipeline(model=model(llm_timeout_seconds=120))
    await send_unsure(pipeline, "slow")
    await pipeline.send(pipeline.story.session("rewarded", RIGHT))
    while len(await judgments(pipeline)) < 2:
        await pipeline.step()
        pipeline.commit()
    assert await judgments(pipeline) == {"slow": ("abstained", "none"), "rewarded": ("success", "reward")}
    for _ in range(4):
        await pipeline.step()
        pipeline.commit()
    assert any(committed < end for committed, end in pipeline.committed("judgments").values())
    answer.set()
    pipeline.crash()
    await pipeline.drain()
    assert (await judgments(pipeline))["slow"] == ("success", "llm")
    assert all(committed == end for committed, end in pipeline.committed("judgments").values())


async def test_where_the_model_gives_no_answer_the_session_stays_undecided_and_the_stream_goes_on(
    endpoint: ModelEndpoint, tmp_path: Path
) -> None:
    endpoint.model = lambda request: Reply("overloaded", 500)
    metrics = Metrics("worker")
    values = {"llm_url": endpoint.url, "llm_model": "m1", "llm_retries": 0, "llm_answers": str(tmp_path / "a")}
    asking = language_model(Settings(**values), metrics)
    assert asking is not None
    pipeline = LogPipeline(model=asking)
    await send_unsure(pipeline, "good")
    await pipeline.drain()
    assert await judgments(pipeline) == {"good": ("abstained", "none")}
    assert metrics.registry.get_sample_value("fleetlore_llm_questions_total", {"result": "failed"}) == 1
    assert all(committed == end for committed, end in pipeline.committed("judgments").values())
    await asking.close()


async def test_not_more_is_asked_at_once_than_was_set(endpoint: ModelEndpoint, model: MakeModel) -> None:
    endpoint.model = lambda request: Reply(orjson.dumps(WORKED).decode(), seconds=0.02)
    pipeline = LogPipeline(model=model(), batch_records=50)
    await send_unsure(pipeline, *(f"s{n}" for n in range(20)))
    await pipeline.drain()
    # Sessions that did the same are one question; how many are in flight when the first is answered depends on the
    # machine.
    assert 1 <= endpoint.most_at_once <= 4
    assert set((await judgments(pipeline)).values()) == {("success", "llm")}


async def test_a_worker_asks_the_model_and_ends_in_order(
    lone_pipeline: LonePipeline, milvus: str, start_worker: StartWorker, endpoint: ModelEndpoint, tmp_path: Path
) -> None:
    asking = {"llm_url": endpoint.url, "llm_model": "m1", "llm_answers": str(tmp_path / "a")}
    # An audit draws by the tenant, and this one is another in each run.
    pipeline = await lone_pipeline(milvus, **asking, llm_audit_share=0.0)
    worker = start_worker(pipeline.settings)
    await send_unsure(pipeline, "good", "bad")
    expected = {"good": ("success", "llm"), "bad": ("failure", "llm")}
    async with asyncio.timeout(120):
        while await judgments(pipeline) != expected:
            await asyncio.sleep(0.1)
        while any(committed < end for committed, end in (await pipeline.committed_offsets("judgments")).values()):
            await asyncio.sleep(0.1)
    assert await pipeline.metric("fleetlore_llm_questions_total", result="ok") == 2
    # While it is asking.
    endpoint.model = lambda request: Reply("{}", seconds=3.0)
    await pipeline.send(pipeline.story.session("last", ("sh", {"c": "ls"}, "x", None), outcome="unknown"))
    async with asyncio.timeout(120):
        while len(endpoint.requests) < 3:
            await asyncio.sleep(0.05)
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 120) == 0
