"""A success that a forbidden shortcut bought is not learned, though the reward praises it."""

import pytest
from msgspec.structs import replace

from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory
from models.distil.distiller import distil
from models.judge import JudgeChain
from streams.offline.memory_pipeline import MemoryPipeline
from tests import build as sessions

SHORTCUT = "skip_identity_check"


@pytest.mark.parametrize(("guarded", "label"), [(True, "failure"), (False, "success")])
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


@pytest.mark.parametrize("feedback", [None, Feedback(session="s", label="success", time=9.0, by="user")])
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
