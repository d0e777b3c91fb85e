"""Keep the trainer's process to its share of a core."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fleetlore.clock import Clock, SystemClock

__all__ = ["CpuBudget"]

# CPU seconds at once after a rest. In any 10 s a share of .25 then stays below .30 of a core.
_BURST_SECONDS = 0.15
# Share of the burst after which the process counts as rested: asking costs some of it.
_RESTED = 0.9
# Reading goes before learning: it waits only for a longer debt.
_READING_DEBT_SECONDS = 0.25


class CpuBudget:
    """CPU seconds of this process: `share` of a core, and a burst after a rest.

    A nice value does not bound the share: the trainer would fill every gap in which others wait for each other.
    Learners call `pace` after each small piece of work, which returns once all that the process has `spent` is paid.
    """

    def __init__(
        self,
        share: float,
        *,
        burst_seconds: float = _BURST_SECONDS,
        clock: Clock | None = None,
        spent: Callable[[], float] = time.process_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.share = share
        self._burst = self._credit = burst_seconds
        self._clock = clock or SystemClock()
        self._spent, self._sleep = spent, sleep
        self._last = self._clock.monotonic(), spent()
        self._lock = threading.Lock()

    def debt_seconds(self, reserve: float = 0.0) -> float:
        """Return how long the process must rest until its share has paid for what it spent, and a reserve."""
        with self._lock:
            now, spent = self._clock.monotonic(), self._spent()
            then, before = self._last
            self._last = now, spent
            # A rest earns no more than the burst, and only then the work is paid.
            self._credit = min(self._burst, self._credit + self.share * (now - then)) - (spent - before)
            return max(0.0, (reserve - self._credit) / self.share)

    def reading_debt_seconds(self) -> float:
        """The same, before it reads on."""
        return max(0.0, self.debt_seconds() - _READING_DEBT_SECONDS)

    def pace(self, reserve: float = 0.0) -> None:
        """Block the calling thread until nothing is owed, and a reserve is earned."""
        while (debt := self.debt_seconds(reserve)) > 0:
            self._sleep(max(debt, 0.001))

    def pace_last(self) -> None:
        """Block the calling thread until the burst is earned, so that other learners go first."""
        self.pace(_RESTED * self._burst)

    @contextlib.contextmanager
    def paced_imports(self) -> Iterator[None]:
        """Call `pace_last` before each module that this thread imports: torch takes seconds of CPU in one go."""
        thread, pace = threading.get_ident(), self.pace_last

        class Pace:
            @staticmethod
            def find_spec(*_: Any) -> None:
                if threading.get_ident() == thread:
                    pace()

        sys.meta_path.insert(0, Pace)
        try:
            yield
        finally:
            sys.meta_path.remove(Pace)
