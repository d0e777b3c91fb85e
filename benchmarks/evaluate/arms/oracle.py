"""Bound what is possible: an agent that is told by the world itself, at every step, a call that brings the session
forward.

No arm: it learns nothing and no memory could know more. It stands beside the arms so that their steps can be read.
Slips, the network's weather, injected restarts and preparations that wear off cost it what they cost every other agent.
There are two:

`oracle`          listens as the agent of all arms listens to its texts, at their best: +1 for the right call, −1 for
all others, times `TRUST`; habits and moods remain. The most that a memory of texts can reach with this agent.
`oracle-obeyed`   takes the right call whatever it is inclined to. The most that any memory can reach in this world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.evaluate.arms.agent import TRUST, Mind
from benchmarks.evaluate.arms.memory import Recall
from benchmarks.evaluate.worlds.world import Call, Environment

# How much each of them is moved by what the world says.
REFERENCES: Mapping[str, float] = {"oracle": TRUST, "oracle-obeyed": math.inf}


# The mind of an agent in a session: (agent, luck, session).
Minds = Callable[[str, str, Environment], Mind]


class KnowingMind(Mind):
    """A mind that listens to the world instead of to its log and texts.

    Args:
        solve: a call that brings the session forward from where it stands.
        trust: weight of what it says, infinite for an agent without a mind of its own.
    """

    def __init__(self, agent: str, luck: str, solve: Callable[[], Call], trust: float) -> None:
        super().__init__(agent, luck, keeps_log=False)
        self._solve = solve
        self._trust = trust

    def told(self, calls: Sequence[Call], recall: Recall) -> list[float]:
        right = self._solve().key
        return [self._trust if call.key == right else -self._trust for call in calls]


def mind_of(reference: str) -> Minds:
    """How a reference decides in a session. Raises KeyError for one that does not exist."""
    trust = REFERENCES[reference]
    return lambda agent, luck, environment: KnowingMind(agent, luck, environment.solve, trust)
