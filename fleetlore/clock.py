"""Read the time through a dependency, which tests replace (`fleetlore.testing.FakeClock`)."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back."""
        ...


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
