"""Say what a past holds for a memory to repeat: how its calls ended, and how many measured tasks it has solved."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.evaluate.worlds.recorded import Recorded


def contents(past: Sequence[Recorded], measured: Sequence[str]) -> dict[str, float]:
    """Shares of a past, 0..1.

    Args:
        measured: tasks of the measured sessions.

    Returns:
        `success` of its sessions; of its calls those that `failed`, that went `forward`, and that worked and led
        nowhere, which no error tells of (`silent`); `solved_before`: measured sessions at a task that it has solved.
    """
    calls = sum(len(session.steps) for session in past)
    failed = sum(len(session.errors) for session in past) / calls
    forward = sum(session.forward for session in past) / calls
    solved = {session.task for session in past if session.succeeded}
    return {
        "success": sum(session.succeeded for session in past) / len(past),
        "failed": failed,
        "forward": forward,
        "silent": 1 - failed - forward,
        "solved_before": sum(task in solved for task in measured) / len(measured),
    }
