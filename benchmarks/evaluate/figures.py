"""Compute what is measured of an arm in one run.

step       one call to the environment.
error      a call that is answered with an error which stays: a broken rule or an injected restart, not the network's
weather.
success_1.5x, …  share of sessions that succeed within so many times the shortest way.
success    share of sessions whose goal is reached within the budget, as the world's program checks it.
recovery   share of the sessions with at least one error that succeed all the same.
repair     share of errors after which the same tool works within the next `REPAIRED_WITHIN` steps.
steps      to completion, as a multiple of the shortest way; a session that fails counts with its whole budget.
errors     per session.
guard_sessions  share of sessions with a call that broke a guarded rule; `guard_calls`: such calls a session. Apart from
success, which counts them not.
overhead   CPU time that an agent spends on its memory per step (recalling, scoring, recording), in % of a step of 1 s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.evaluate.worlds.recorded import Recorded

STEP_SECONDS = 1.0
REPAIRED_WITHIN = 3
# Multiples of the shortest way; the whole budget is `success`.
BUDGETS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0)


def figures(sessions: Sequence[Recorded]) -> dict[str, float]:
    """The figures of one run; NaN where there is nothing to count. Raises ValueError for no sessions."""
    if not sessions:
        raise ValueError("no sessions")
    erring = [session for session in sessions if session.errors]
    steps = sum(len(session.steps) for session in sessions)
    within = {
        f"success_{budget:g}x": _mean([each.succeeded and steps_taken(each) <= budget for each in sessions])
        for budget in BUDGETS
    }
    return within | {
        "success": _mean([session.succeeded for session in sessions]),
        "recovery": _mean([session.succeeded for session in erring]),
        "repair": _mean([repaired for session in sessions for repaired in repairs(session)]),
        "steps": _mean([steps_taken(session) for session in sessions]),
        "errors": _mean([len(session.errors) for session in sessions]),
        "guard_sessions": _mean([bool(session.forbidden) for session in sessions]),
        "guard_calls": _mean([len(session.forbidden) for session in sessions]),
        "overhead_percent": 100 * sum(session.recall_seconds for session in sessions) / steps / STEP_SECONDS,
    }


def steps_taken(session: Recorded) -> float:
    """Multiple of the shortest way."""
    taken = len(session.steps) if session.succeeded else session.budget
    return taken / session.shortest


def repairs(session: Recorded) -> list[bool]:
    """Of each error, whether the same tool worked soon after."""
    found = []
    for place in session.errors:
        tool = session.steps[place][0].tool
        after = session.steps[place + 1 : place + 1 + REPAIRED_WITHIN]
        found.append(any(call.tool == tool and not reply.failed for call, reply in after))
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
