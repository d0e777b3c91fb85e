"""Run a worker whose wall clock is HOURS ahead: `python -m tests.streams.ahead_worker HOURS`."""

import sys
import time

from fleetlore.cli.main import main
from fleetlore.clock import SystemClock

if __name__ == "__main__":
    ahead = 3600.0 * int(sys.argv.pop())
    # Not `time.time` itself: gRPC would take the time by which a call must end from it and compare that with its own.
    SystemClock.now = staticmethod(lambda: time.time() + ahead)  # type: ignore[method-assign]
    main(["worker"])
