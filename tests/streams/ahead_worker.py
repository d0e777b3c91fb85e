"""Run a worker whose wall clock is HOURS ahead: `python -m tests.streams.ahead_worker HOURS`."""

import sys
import time

from fleetlore.cli.main import main
from fleetlore.clock import SystemClock

if __name__ == "__main__":
    ahead = 3600.0 * int(sys.argv.pop())
    # `time.time` itself stays as it is: gRPC would compute deadlines from it and compare them with its own clock.
    SystemClock.now = staticmethod(lambda: time.time() + ahead)
    main(["worker"])
