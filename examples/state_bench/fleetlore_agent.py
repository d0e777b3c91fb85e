"""Let an agent of STATE-Bench ask a fleet what it has learned: its hook `retrieve_learnings`, answered by fleetlore.

Copy this file into the benchmark's folder `agents/`; README.md beside it says how the fleet learns and how to run it.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache

from state_bench.agents.state_bench import RETRIEVE_LEARNINGS_TOOL_NAME, StateBenchAgent

from fleetlore import BlockingFleet


class FleetloreAgent(StateBenchAgent):
    """The benchmark's own agent with fleetlore behind its retrieval hook.

    The fleet's broker and store are those of `FLEETLORE_BROKER` and `FLEETLORE_MILVUS`. Asking changes nothing of the
    benchmark, and as a share of what is told is withheld at random, an exam wants `FLEETLORE_HOLDOUT_SHARE=0`.
    """

    #: Also search the store for the query, where what the fleet says by itself is less than asked for (extra `recall`).
    searches = True

    def retrieve_learnings(self, query: str, top_k: int = 3) -> list[str]:
        """What the fleet tells an agent with these tools before it chooses, then what its store has for the query."""
        tools = [tool["name"] for tool in self.tools if tool["name"] != RETRIEVE_LEARNINGS_TOOL_NAME]
        with fleet().session(query) as session:
            tips = list(session.brief(tools, most=top_k).tips)
            if self.searches and len(tips) < top_k:
                tips += session.recall(query, top_k - len(tips)).tips
        return [tip.text for tip in tips[:top_k]]


#: Ends what `fleet` began, at the latest with the process.
ending = ExitStack()
atexit.register(ending.close)


@cache
def fleet() -> BlockingFleet:
    """One for all agents of the run, whose tasks run side by side."""
    return ending.enter_context(BlockingFleet("state-bench", ready_seconds=30.0))
