"""Offer a clock that only moves when a test says so, for tests of agents and of the project itself."""

from __future__ import annotations


class FakeClock:
    """Implements `fleetlore.clock.Clock`; starts at 2026-01-01T00:00:00Z unless told otherwise."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` (not below 0) pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds
        self._monotonic += seconds

    def set(self, now: float) -> None:
        """Step the wall clock, as NTP or an operator does; the monotonic one stays."""
        self._now = now
