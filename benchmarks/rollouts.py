"""Make sessions of agents that act more or less at random in the demo's world, as plain data.

for session in rollouts(world_seed=7, sessions=1000):
    session["session"], session["agent"], session["task"], session["goal"]      # str
    session["steps"]      # list of {"tool": str, "arguments": dict, "result": str,
                          #          "error_type": str | None, "error_message": str | None}
    session["outcome"]    # "success" | "failure"
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from benchmarks.demo.world import Environment, World
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev


def rollouts(world_seed: int, sessions: int, *, seed: int = 0, agents: int = 20) -> Iterator[dict[str, Any]]:
    """Yield sessions of agents that act more or less at random in the world of `world_seed`, as plain data.

    Each session has a skill between 0 and 1: the chance that a call is one that works. The other calls are attempts
    (two of three) or preparations; one that just failed is seldom repeated. About half of the sessions succeed.
    `seed` chooses other sessions of the same world. Yields `sessions` dicts, the same ones for the same arguments.
    """
    world = World(world_seed)
    for number in range(sessions):
        rng = Random(f"rollout/{world_seed}/{seed}/{number}")
        environment = world.open(rng.choice(world.tasks), f"{seed}/{number}")
        steps = wander(environment, rng)
        yield {
            "session": f"{world_seed}-{seed}-{number}",
            "agent": f"agent-{rng.randrange(agents)}",
            "task": environment.task.id,
            "goal": environment.goal,
            "steps": steps,
            "outcome": "success" if environment.succeeded else "failure",
        }


def logged(rollout: dict[str, Any]) -> LoggedSession:
    """Return a session of `rollouts` as a logged run."""
    run = LoggedSession(rollout["session"], rollout["agent"], rollout["task"], rollout["goal"], rollout["outcome"])
    for step in rollout["steps"]:
        data = {ev.TOOL: step["tool"], ev.ARGUMENTS: step["arguments"], ev.RESULT: step["result"]}
        if step["error_type"]:
            data |= {ev.ERROR_TYPE: step["error_type"], ev.ERROR_MESSAGE: step["error_message"]}
        run.events.append(("outcome", data))
    return run


def wander(environment: Environment, rng: Random) -> list[dict[str, Any]]:
    """Return the steps of an agent that acts more or less at random until the session is done; see `rollouts`."""
    steps: list[dict[str, Any]] = []
    failed: set[str] = set()
    skill = rng.random()
    while not environment.done:
        step = environment.step
        pool = step.attempts if rng.random() < 2 / 3 else step.preparations
        fresh = [call for call in pool if call.key not in failed]
        guess = rng.choice(fresh if fresh and rng.random() < 0.8 else pool)
        call = environment.solve() if rng.random() < skill else guess
        reply = environment.perform(call)
        failed = failed | {call.key} if reply.failed else set()
        steps.append(
            {
                "tool": call.tool,
                "arguments": call.arguments,
                "result": reply.result,
                "error_type": reply.error_type,
                "error_message": reply.error_message,
            }
        )
    return steps
