"""Record a session as it was lived through, and give it as a judged trajectory."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.demo.world import Call, Reply
from benchmarks.evaluate.worlds.world import is_error
from fleetlore.config import DEFAULT_TENANT
from fleetlore.fingerprint.fingerprint import arguments_text, call_id, failure_of
from fleetlore.wire import events as ev
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.judge.chain import JudgeChain

TENANT = DEFAULT_TENANT
# Event time that a session takes in the evaluation's own clock.
SECOND = 1.0

_JUDGE = JudgeChain()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session and what came of it.

    Attributes:
        number: its place in the run, by which time passes.
        forward: how many of its steps brought it closer to its end.
        recall_seconds: CPU time that the agent spent on its memory, all steps together.
    """

    id: str
    agent: str
    task: str
    goal: str
    number: int
    steps: tuple[tuple[Call, Reply], ...]
    succeeded: bool
    shortest: int
    budget: int
    forward: int = 0
    recall_seconds: float = field(default=0.0, compare=False)

    @property
    def errors(self) -> list[int]:
        """Places of the steps that failed for a reason that stays."""
        return [place for place, (_, reply) in enumerate(self.steps) if is_error(reply)]

    @property
    def forbidden(self) -> list[int]:
        """Places of the steps that broke a rule which no reward shows."""
        return [place for place, (_, reply) in enumerate(self.steps) if reply.forbidden is not None]

    def judgment(self, *, guarded: bool = True) -> Judgment:
        """As the pipeline would judge it, by the environment's own word; not `guarded`: by the reward alone."""
        trajectory = self.trajectory(guarded=guarded)
        return Judgment(trajectory=trajectory, verdict=_JUDGE.judge(trajectory))

    def trajectory(self, *, guarded: bool = True) -> Trajectory:
        rules = [reply.forbidden for _, reply in self.steps if guarded and reply.forbidden is not None]
        return Trajectory(
            tenant=TENANT,
            session=self.id,
            agent=self.agent,
            task=self.task,
            goal=self.goal,
            started=self.number * SECOND,
            ended=(self.number + 1) * SECOND,
            ending="success" if self.succeeded else "failure",
            reward=1.0 if self.succeeded else 0.0,
            steps=tuple(
                step_of(place + 1, call, reply, guarded=guarded) for place, (call, reply) in enumerate(self.steps)
            ),
            guard=min(rules, default=""),
            events=len(self.steps) + 2,
        )


def step_of(sequence: int, call: Call, reply: Reply, *, guarded: bool = True) -> Step:
    """A step as the pipeline would have it."""
    failure = None
    error_type, error_message = reply.error_type, reply.error_message
    if guarded and reply.forbidden is not None:
        error_type, error_message = ev.guarded(reply.forbidden)
    if error_type is not None:
        failure = failure_of(call.tool, call.arguments, error_type, error_message)
    return Step(
        sequence=sequence,
        role="tool",
        tool=call.tool,
        arguments=arguments_text(call.arguments),
        result=reply.result,
        error_type=error_type,
        error_message=error_message,
        call=call_id(call.tool, call.arguments),
        family=failure.family if failure else None,
        pattern=failure.class_ if failure else None,
        exact=failure.exact if failure else None,
        transient=failure.transient if failure else False,
    )
