"""Bound the CPU time that training may take."""

from __future__ import annotations

# Of CPU, at once after a rest.
BURST_SECONDS = 5.0


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
