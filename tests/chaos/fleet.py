"""Make the events of the chaos runs: the same events in the same order for the same seed."""

from random import Random
from typing import Any

from benchmarks.rollouts import rollouts
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event

BASE_TIME = 1_760_000_000.0
AT_WORK = 24  # sessions that are open at the same time


def fleet_events(tenant: str, seed: int, sessions: int) -> list[Event]:
    """The events of random agents in the tool world, each session in order, sessions taking turns by chance."""
    rng = Random(seed)
    waiting = [_session(tenant, f"s{number}", run) for number, run in enumerate(rollouts(seed, sessions))]
    active: list[list[Event]] = []
    events: list[Event] = []
    while waiting or active:
        while waiting and len(active) < AT_WORK:
            active.append(waiting.pop())
        session = rng.choice(active)
        events.append(session.pop(0))
        if not session:
            active.remove(session)
    return events


def _session(tenant: str, name: str, run: dict[str, Any]) -> list[Event]:
    steps: list[tuple[ev.Kind, dict[str, Any]]] = [("session.started", {ev.GOAL: run["goal"], ev.TASK: run["task"]})]
    for step in run["steps"]:
        data = {ev.TOOL: step["tool"], ev.ARGUMENTS: step["arguments"], ev.RESULT: step["result"]}
        if step["error_type"] or step["error_message"]:
            data |= {ev.ERROR_TYPE: step["error_type"], ev.ERROR_MESSAGE: step["error_message"]}
        steps.append(("outcome", data))
    steps.append(("session.ended", {ev.OUTCOME: run["outcome"]}))
    return [
        Event(kind, tenant, str(run["agent"]), name, sequence, BASE_TIME + sequence, data)
        for sequence, (kind, data) in enumerate(steps)
    ]
