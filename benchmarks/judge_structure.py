"""Judge sessions by their shape alone: how many calls of which tool, how many failed, and how the last one ended.

It reads no word of a goal, call or result. In logs whose environment stops an agent that is right, or at a limit, the
shape alone tells how a session ended; a judge that reads more has to be better than this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fleetlore.wire.trajectory import Trajectory, Verdict

VERSION = "structure-1"
_TOOLS = 12


def structure(trajectories: Sequence[Trajectory]) -> Callable[[Trajectory], Verdict | None]:
    """Gradient boosting on the shapes of these sessions, whose endings are known."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    tools = _tools(trajectories)
    model = HistGradientBoostingClassifier(max_iter=60, max_depth=4, random_state=0)
    model.fit(
        np.array([_shape(each, tools) for each in trajectories]), [each.ending == "success" for each in trajectories]
    )

    def judge(trajectory: Trajectory) -> Verdict:
        chance = float(model.predict_proba(np.array([_shape(trajectory, tools)]))[0, 1])
        return Verdict(
            label="success" if chance > 0.5 else "failure", probability=chance, source="rules", version=VERSION
        )

    return judge


def shapes(trajectories: Sequence[Trajectory]) -> npt.NDArray[np.float64]:
    """The shape of each session, one a row."""
    tools = _tools(trajectories)
    return np.array([_shape(each, tools) for each in trajectories])


def without_last_call(trajectory: Trajectory) -> Trajectory:
    """The session before its last call: what its end says of itself is not there."""
    calls = [place for place, step in enumerate(trajectory.steps) if step.role == "tool"]
    return replace(trajectory, steps=trajectory.steps[: calls[-1]]) if calls else trajectory


def _tools(trajectories: Sequence[Trajectory]) -> list[str]:
    """The most frequent ones."""
    counts = Counter(step.tool for each in trajectories for step in each.calls)
    return [tool for tool, _ in counts.most_common(_TOOLS)]


def _shape(trajectory: Trajectory, tools: Sequence[str]) -> list[float]:
    calls = trajectory.calls
    counts = Counter(step.tool for step in calls)
    last = calls[-1] if calls else None
    return [
        len(calls),
        len(trajectory.steps) - len(calls),
        sum(step.failed for step in calls),
        len({(step.tool, step.arguments) for step in calls}),
        last is not None and last.failed,
        last is not None and not last.result.strip(),
        *(counts[tool] for tool in tools),
        *(last is not None and last.tool == tool for tool in tools),
    ]
