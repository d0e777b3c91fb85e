"""Attack verdicts by feedback: an agent without that right cannot change an environment's verdict."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from benchmarks.cloudevents import encode_record
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Feedback
from models.judge import JudgeChain, SessionState
from streams.commands.topics import accesses
from tests import build as sessions
from tests.rows import for_each
from tests.streams.log_pipeline import BASE_TIME, LogPipeline


def feedback(by: str, time: float = 5.0, **fields: Any) -> Feedback:
    return Feedback(session="s", label="failure", time=time, by=by, **fields)


def claim(session: str, by: str, label: str, number: int) -> Event:
    return Event("feedback", "acme", by, session, number, BASE_TIME + 500 + number, {ev.OUTCOME: label})


async def among_the_events(pipeline: LogPipeline, claims: Sequence[Event]) -> None:
    """A session id that an agent chose and no other agent uses."""
    value = encode_record(list(claims))
    await pipeline.send_raw(value, headers=BATCH_HEADERS)


async def verdicts(pipeline: LogPipeline) -> set[tuple[str, str, str, str]]:
    await pipeline.drain()
    return {
        (each["session"], each["label"], each["source"], each.get("by", ""))
        for each in await pipeline.bodies("judgments")
    }


async def test_what_agents_say_of_sessions_among_the_events_overturns_no_reward() -> None:
    pipeline = LogPipeline()
    for name in ("one", "two", "three"):
        await pipeline.send(pipeline.story.session(name, agent="honest"))
    await pipeline.drain()
    claims = [claim(name, "mallory", "failure", n) for n, name in enumerate(("one", "two", "three"))]
    await among_the_events(pipeline, [*claims, claim("one", "honest", "failure", 9)])
    assert {(label, source) for _, label, source, _ in await verdicts(pipeline)} == {("success", "reward")}


async def test_who_may_write_the_topic_of_feedback_corrects_and_the_verdict_says_who() -> None:
    pipeline = LogPipeline()
    await pipeline.send(pipeline.story.session("one", agent="honest"))
    await pipeline.send([pipeline.story.feedback("one", "failure")])
    await among_the_events(pipeline, [claim("one", "mallory", "success", 3)])
    assert await verdicts(pipeline) == {("one", "failure", "feedback", "reviewer")}


async def test_the_topic_of_feedback_takes_nothing_else() -> None:
    pipeline = LogPipeline()
    session = pipeline.story.session("one", agent="honest")
    pipeline.log.append(topic("acme", "feedback"), encode_record(session), headers=BATCH_HEADERS)
    assert await verdicts(pipeline) == set()
    refused = [headers for headers, _ in await pipeline.dead_letters() if "unknown_type" in headers.values()]
    assert len(refused) == len(session)


@for_each(
    "given, reward, source",
    (feedback("reviewer"), 1.0, "feedback"),
    *((feedback(own), 1.0, "reward") for own in ("agent", "agent:1", "agent:2")),  # though it may write there
    (feedback("agent", claimed=True), 1.0, "reward"),
    (feedback("mallory", claimed=True), 1.0, "reward"),
    (feedback("agent"), None, "feedback"),
    (feedback("agent:2", claimed=True), None, "feedback"),
    (feedback("agent", claimed=True), None, "feedback"),
    (feedback("mallory", claimed=True), None, "none"),
)
def test_an_agents_word_counts_where_no_environment_spoke(given: Feedback, reward: float | None, source: str) -> None:
    step = sessions.call("sql", "SELECT 1", "1")
    session = sessions.trajectory(step, agent="agent:1", ending="unknown", reward=reward, feedback=given)
    verdict = JudgeChain().judge(session)
    assert verdict.source == source
    assert verdict.by == (given.by if source == "feedback" else "")


def test_a_later_claim_does_not_hide_a_correction_in_any_order() -> None:
    given = [feedback("reviewer", 1.0), feedback("mallory", 9.0, claimed=True), feedback("agent", 8.0, claimed=True)]
    for order in permutations(given):
        state = SessionState()
        for each in order:
            state.merge(each)
        assert state.feedback == given[0]


def test_agents_have_no_right_to_write_feedback_and_reviewers_nothing_else() -> None:
    may = {(each.user, name) for each in accesses(["a"], "g") if "Write" in each.operations for name in each.names}
    assert ("fleetlore-agent-a", topic("a", "feedback")) not in may
    assert {name for user, name in may if user == "fleetlore-reviewer-a"} == {topic("a", "feedback")}
