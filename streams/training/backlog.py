"""What waits to be learned: as much of it as is worth the trainer's time, and how much of that time it may take."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from fleetlore.wire.adapter_manifest import Place
from streams.training.judgment_log import Judged


class Backlog:
    """Judged sessions that were read and not offered to the learner yet, at most `most` of them.

    A fleet can judge more sessions than are worth learning: making an episode of one costs a millisecond, learning it five. Agents
    take turns, and where more wait than `most`, the agent with the most of them loses its oldest. So what is learned is a sample
    in which no agent counts for more than another because it sends more; a version's manifest names the sessions that it was.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: OrderedDict[str, deque[Judged]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, judged: Judged) -> bool:
        """Whether there was room for it; else another one went."""
        self._of.setdefault(judged.judgment.trajectory.agent, deque()).append(judged)
        self._size += 1
        if self._size <= self._most:
            return True
        loudest = max(self._of, key=lambda agent: (len(self._of[agent]), agent))
        self._pop(loudest)
        return False

    def take(self) -> Judged:
        """The oldest of the agent whose turn it is. Raises IndexError where nothing waits."""
        if not self._of:
            raise IndexError("nothing waits")
        agent = next(iter(self._of))
        self._of.move_to_end(agent)
        return self._pop(agent)

    def places(self) -> Iterator[Place]:
        """Of all that wait."""
        return (judged.place for queue in self._of.values() for judged in queue)

    def _pop(self, agent: str) -> Judged:
        queue = self._of[agent]
        judged = queue.popleft()
        if not queue:
            del self._of[agent]
        self._size -= 1
        return judged


class CpuBudget:
    """CPU seconds that learning may take: `share` of a core in the long run, and up to `burst_seconds` at once after a rest.

    A nice value alone does not bound it: on a machine where others wait for each other, every gap of theirs is taken.
    """

    def __init__(self, share: float, burst_seconds: float) -> None:
        self._share, self._burst = share, burst_seconds
        self._credit = burst_seconds
        self._last: tuple[float, float] | None = None

    def affords(self, now: float, spent: float) -> bool:
        """Whether to go on, at the time `now`, having spent so many CPU seconds since the process began."""
        then, before = self._last or (now, spent)
        self._last = now, spent
        self._credit = min(self._burst, self._credit + self._share * (now - then) - (spent - before))
        return self._credit > 0
