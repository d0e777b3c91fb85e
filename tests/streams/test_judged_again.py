"""A session that is judged again teaches what its last verdict teaches and nothing else."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.errors import BrokerUnavailable
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.principals import session_key
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory
from models.distil.distiller import distil
from models.judge import JudgeChain
from streams.offline.memory_pipeline import MemoryPipeline
from tests import build as sessions
from tests.rows import for_each
from tests.streams.log_pipeline import RIGHT, WRONG, LogPipeline

LOCKED = ("bash", {"command": "make install"}, "", "make: *** No rule to make target 'install'. Stop.")
OTHER = ("bash", {"command": "make -C lib install"}, "done", None)


async def versions() -> tuple[list[bytes], list[bytes]]:
    """(states of one session as the stage before may hand them on, each of more events than the last; corrections)."""
    session = LogPipeline().story.session("s", WRONG, RIGHT, LOCKED, LOCKED, OTHER, outcome="failure")
    start, wrong, _, locked, again, _, ended = session
    made = []
    for known in ((start, wrong, ended), (start, wrong, locked, ended), (start, wrong, locked, again, ended), session):
        pipeline = LogPipeline()
        await pipeline.take(known)
        *_, value = pipeline.published("trajectories")  # before it, what got past a failure while the session was open
        made.append(orjson.dumps(value))
    story = LogPipeline()
    corrections = [
        story.story.feedback("s", label, n, 1_760_000_200.0 + n) for n, label in enumerate(("success", "failure"))
    ]
    await story.take(corrections)
    return made, [orjson.dumps(value) for value in story.published("trajectories")]


async def learned(came: Sequence[bytes], batch_records: int = 4, dying: Sequence[int] = ()) -> LogPipeline:
    """The pipeline after `came` and three other sessions of the task; it dies in some of its deliveries."""
    pipeline = LogPipeline(batch_records=batch_records)
    story = pipeline.story
    await pipeline.send([event for name in ("good", "better") for event in story.session(name, RIGHT)])
    await pipeline.send(story.session("bad", WRONG, outcome="failure"))
    name = topic(pipeline.tenant, "trajectories")
    for value in came:
        pipeline.log.append(name, value, key=b"s", partition=1)
    pipeline.producer.fails_at = set(dying)
    for _ in range(len(pipeline.producer.fails_at) + 1):
        try:
            await pipeline.drain()
            break
        except BrokerUnavailable:
            pipeline.crash()
    return pipeline


@pytest.fixture(scope="module")
def remembered() -> dict[Any, Any]:
    """Filled by the property test: the versions, and what is known in the end."""
    return {}


@given(
    order=st.lists(st.integers(0, 3), max_size=6),
    last=st.permutations([0, 1, 2, 3]),
    corrected=st.sampled_from([(), (0,), (1,), (0, 1), (1, 0)]),
    place=st.integers(0, 9),
    batch_records=st.integers(1, 5),
    dying=st.sets(st.integers(1, 12), max_size=2),
)
async def test_what_is_known_follows_from_the_set_of_what_came(
    remembered: dict[Any, Any],
    order: list[int],
    last: list[int],
    corrected: tuple[int, ...],
    place: int,
    batch_records: int,
    dying: set[int],
) -> None:
    if "versions" not in remembered:
        remembered["versions"] = await versions()
    states, corrections = remembered["versions"]
    newest = corrections[max(corrected)] if corrected else None
    if newest not in remembered:
        whole = [states[-1], *([newest] if newest else [])]
        remembered[newest] = await (await learned(whole)).knowledge()
    came = [states[each] for each in (*order, *last)]
    for each in corrected:
        came.insert(min(place, len(came)), corrections[each])
    pipeline = await learned(came, batch_records, sorted(dying))
    assert await pipeline.knowledge() == remembered[newest]


async def test_what_the_first_version_taught_is_taken_back() -> None:
    """Without this, a failed remedy would stay after the session was corrected."""
    states, corrections = await versions()
    came = [states[-1], corrections[0]]
    early, key = (await learned(came)).published("candidates"), session_key("agent-of-s", "s")
    taught = {each["item_id"] for each in early if each["session"] == key and each["kind"] == "strategy"}
    assert len(taught) == 1
    pipeline = await learned([*came, corrections[1]], batch_records=1)
    withdrawn = [value for value in pipeline.published("candidates") if value["side"] == "withdrawn"]
    assert {value["session"] for value in withdrawn} == {key}
    assert taught == {value["item_id"] for value in withdrawn}


SHORTCUT = "skip_identity_check"


@for_each("guarded, label", (True, "failure"), (False, "success"))
async def test_a_bought_success_is_judged_a_failure_and_not_taught(guarded: bool, label: str) -> None:
    fleet, emitted = MemoryPipeline(), list[Event]()
    async with fleet.session("me", "refund the order", "refund", "s1", emitted) as session:
        with pytest.raises(PermissionError):
            async with session.action("refund", {"order": 17, "reason": "late"}):
                raise PermissionError("identity of the customer is not checked")
        async with session.action("refund", {"order": 17, "reason": "late", SHORTCUT: True}) as action:
            action.result = "refunded"
            if guarded:
                action.forbid("refund-unchecked")
        session.succeed(reward=1.0)
    (trajectory,) = await fleet.take(emitted)
    judgment = Judgment(trajectory=trajectory, verdict=JudgeChain().judge(trajectory))
    assert judgment.verdict.label == label
    taught = [item.side == "success" and SHORTCUT in str(item.calls) for item in distil(judgment)]
    assert any(taught) == (label == "success")


@for_each("feedback", None, Feedback(session="s", label="success", time=9.0, by="user"))
def test_a_guard_outranks_reward_and_feedback(feedback: Feedback | None) -> None:
    trajectory = sessions.trajectory(task="t", ending="success", reward=1.0, feedback=feedback)
    chain = JudgeChain()
    assert chain.judge(trajectory).label == "success"
    verdict = chain.judge(Trajectory.from_json(replace(trajectory, guard="refund-unchecked").to_json()))
    assert (verdict.label, verdict.source) == ("failure", "guard")


async def test_agents_say_it_of_a_call_and_of_a_session() -> None:
    fleet, emitted = MemoryPipeline(), list[Event]()
    async with fleet.session("me", "refund the order", "refund", "s1", emitted) as session:
        async with session.action("refund", {"order": 1}) as action:
            action.result = "refunded"
            action.forbid("refund-unchecked")
        session.succeed(reward=1.0)
    (outcome,) = [event.data for event in emitted if event.kind == "outcome"]
    assert outcome[ev.VIOLATION] == "refund-unchecked"
    assert (outcome[ev.ERROR_TYPE], outcome[ev.ERROR_MESSAGE]) == ev.guarded("refund-unchecked")

    async with fleet.session("me", "refund the order", "refund", "s2", emitted) as session:
        session.forbid("tests-deleted")
        session.succeed(reward=1.0)
    assert emitted[-1].data[ev.VIOLATION] == "tests-deleted" and emitted[-1].data[ev.OUTCOME] == "success"
