"""Cut a session to its beginning: what was known after its first tool steps."""

from __future__ import annotations

from msgspec.structs import replace

from fleetlore.wire.trajectory import Step, Trajectory


def first_steps(trajectory: Trajectory, calls: int | None) -> tuple[Step, ...]:
    """The steps up to tool step number `calls`; all of them if there are fewer, or for None."""
    if calls is None:
        return trajectory.steps
    seen = 0
    for place, step in enumerate(trajectory.steps):
        seen += step.role == "tool"
        if seen >= calls and step.role == "tool":
            return trajectory.steps[: place + 1]
    return trajectory.steps


def first_calls(trajectory: Trajectory, calls: int) -> Trajectory | None:
    """The session as of the end of tool step number `calls`; None if it did not go on after that.

    Everything that only the end tells is taken out: ending, reward, feedback and number of events.
    """
    if calls < 1:
        raise ValueError(f"calls is {calls}, but a session begins with its first")
    steps = first_steps(trajectory, calls)
    if len(steps) == len(trajectory.steps):
        return None
    return replace(
        trajectory,
        steps=steps,
        ending="unknown",
        reward=None,
        feedback=None,
        events=len(steps),
        ended=trajectory.started,
    )
