"""Make the events of the chaos runs: the same events in the same order for the same seed."""

from random import Random
from typing import Any

from benchmarks.rollouts import logged, rollouts
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
    return [
        Event(kind, tenant, run["agent"], name, sequence, BASE_TIME + sequence, data)
        for sequence, (kind, data) in enumerate(logged(run).all_events())
    ]
