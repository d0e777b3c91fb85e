"""Offer a clock that only moves when a test says so."""


class FakeClock:
    """A `fleetlore.clock.Clock` that starts at 2026-01-01T00:00:00Z."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks by `seconds`, at least 0."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds
        self._monotonic += seconds

    def set(self, now: float) -> None:
        """Set the wall clock alone, as NTP does."""
        self._now = now
