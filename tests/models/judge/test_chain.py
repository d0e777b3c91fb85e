from typing import Any

from msgspec.structs import replace

from fleetlore.wire.trajectory import Feedback, Step, Trajectory
from models.judge import REWARD, RULES, JudgeChain
from tests import build as sessions
from tests.rows import for_each


def call(arguments: str, result: str = "", error: str | None = None, tool: str = "sql") -> Step:
    return sessions.call(tool, arguments, result, error=error)


def says(text: str, role: str = "assistant") -> Step:
    return Step(sequence=0, role=role, result=text)


def session(*steps: Step, **fields: Any) -> Trajectory:
    return sessions.trajectory(*steps, **({"task": "t"} | fields))


FAILED = call("SELECT 1", error="no such table")
WORKED = call("SELECT 2", "[(2,)]")
LOOPED = replace(WORKED, loop="0" * 32)


def feedback(label: Any) -> Feedback:
    return Feedback(session="s", label=label, time=2.0, by="someone")


def test_where_an_environment_spoke_rules_vote_on_a_small_share() -> None:
    chain = JudgeChain()
    voted = [
        {verdict.version for verdict in chain.votes(session(FAILED, ending="failure", reward=0.0, session=f"s{n}"))}
        for n in range(3_200)
    ]
    assert all(REWARD.version in versions for versions in voted)
    assert 60 < sum(RULES.version in versions for versions in voted) < 140  # 100 are expected
    alone = [chain.votes(session(FAILED, session=f"s{n}")) for n in range(20)]
    assert all(verdicts[0].version == RULES.version for verdicts in alone)


@for_each(
    "ending, reward, said",
    ("success", None, ("success", 1.0)),
    ("failure", None, ("failure", 0.0)),
    ("unknown", 1.0, ("success", 1.0)),
    ("unknown", 0.0, ("failure", 0.0)),
    ("unknown", -3.0, ("failure", 0.0)),
    ("failure", 0.6, ("failure", 0.0)),
    ("success", 0.6, ("success", 1.0)),
    *((*pair, None) for pair in (("unknown", None), ("unknown", 0.5), ("unknown", float("nan")))),
    *((*pair, None) for pair in (("success", 0.0), ("failure", 1.0))),  # they contradict each other
)
def test_the_environment_decides_or_abstains(ending: Any, reward: float | None, said: tuple[str, float] | None) -> None:
    verdict = REWARD.judge(session(WORKED, ending=ending, reward=reward))
    assert (verdict and (verdict.label, verdict.probability, verdict.source)) == (said and (*said, "reward"))


@for_each(
    "name, steps, fails",
    ("ended on a failed call", [WORKED, FAILED], True),
    ("no call worked, though the agent went on talking", [FAILED, FAILED, says("The answer is 3.")], True),
    ("the last call was in a loop", [FAILED, WORKED, LOOPED], True),
    ("gave up in words", [WORKED, says("I give up.")], True),
    ("gave up in the answer", [WORKED, call("I can't solve this task.", tool="answer")], True),
    ("nothing at all", [], False),
    ("a call that worked", [FAILED, WORKED], False),
    ("one failure, then an answer", [WORKED, FAILED, says("The answer is 3.")], False),
    ("a loop that was left", [FAILED, WORKED, LOOPED, says("So it is 2.")], False),
    ("refusing what a policy forbids", [WORKED, says("I am unable to refund it. I cannot proceed.")], False),
    ("the user gives up", [WORKED, says("I give up.", role="user")], False),
)
def test_rules_see_a_failure_or_abstain(name: str, steps: list[Step], fails: bool) -> None:
    verdict = RULES.judge(session(*steps))
    found = verdict and (verdict.label, verdict.source, verdict.probability)
    assert found == (("failure", "rules", 0.05) if fails else None)


def test_an_unknown_outcome_is_abstained_and_not_guessed() -> None:
    chain = JudgeChain()
    verdict = chain.judge(session(WORKED))
    assert (verdict.label, verdict.probability, verdict.source) == ("abstained", 0.5, "none")
    assert verdict.version == chain.version == "guard-1+feedback-2+reward-1+rules-2"


def test_no_judge_judges_a_part_of_a_session() -> None:
    part = session(FAILED, ending="continued", reward=1.0, feedback=feedback("success"))
    assert JudgeChain().judge(part).label == "abstained"
    assert RULES.judge(part) is None
