"""Bound the sessions that wait for training, and the CPU time that training may take."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from fleetlore.wire.adapter_manifest import Place
from streams.training.judgment_log import Judged

# Of CPU, at once after a rest.
BURST_SECONDS = 5.0


class Backlog:
    """Judged sessions that were read and not yet offered to the learner, at most `most` of them.

    A fleet can judge more sessions than are worth learning: encoding one costs a millisecond, learning it five. Agents
    take turns. When more than `most` wait, the agent with the most loses its oldest. So the learner gets a sample in
    which an agent that sends more does not count for more. The manifest of a version names its sessions.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_agent: OrderedDict[str, deque[Judged]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, judged: Judged) -> bool:
        """Add a session; return False if another one was dropped for it."""
        self._by_agent.setdefault(judged.judgment.trajectory.agent, deque()).append(judged)
        self._size += 1
        if self._size <= self._most:
            return True
        longest = max(self._by_agent, key=lambda agent: (len(self._by_agent[agent]), agent))
        self._pop(longest)
        return False

    def take(self) -> Judged:
        """Take the oldest session of the next agent. Raises IndexError if the backlog is empty."""
        if not self._by_agent:
            raise IndexError("the backlog is empty")
        agent = next(iter(self._by_agent))
        self._by_agent.move_to_end(agent)
        return self._pop(agent)

    def places(self) -> Iterator[Place]:
        """Yield the log positions of all waiting sessions."""
        return (judged.place for queue in self._by_agent.values() for judged in queue)

    def _pop(self, agent: str) -> Judged:
        queue = self._by_agent[agent]
        judged = queue.popleft()
        if not queue:
            del self._by_agent[agent]
        self._size -= 1
        return judged


class CpuBudget:
    """CPU seconds for training: `share` of a core in the long run, up to `burst_seconds` at once after a rest.

    A nice value alone does not bound it: the trainer would fill every gap in which other processes wait for each other.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share, self._burst = share, burst_seconds
        self._credit = burst_seconds
        self._last: tuple[float, float] | None = None

    def affords(self, now: float, spent: float) -> bool:
        """Return whether training may go on at the time `now`, with `spent` CPU seconds since the process began."""
        then, before = self._last or (now, spent)
        self._last = now, spent
        self._credit = min(self._burst, self._credit + self._share * (now - then) - (spent - before))
        return self._credit > 0
