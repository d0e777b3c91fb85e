"""Shut a process down cleanly at the first signal, and at once at the second or on time-out.

At SIGTERM or SIGINT a role stops fetching, finishes its work within `Settings.drain_seconds`, commits and leaves.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

__all__ = ["at_first_signal", "leave", "leave_within"]

# Seconds to commit, leave and close. A broker that hangs would block these for ever.
LEAVE_SECONDS = 5.0
_GIVEN_UP = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def at_first_signal(loop: asyncio.AbstractEventLoop, stop: Callable[[], object], drain_seconds: float) -> None:
    def begin() -> None:
        for number in _SIGNALS:
            # The next signal kills the process, even if the event loop is blocked.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        leave_within(drain_seconds)
        stop()

    for number in _SIGNALS:
        loop.add_signal_handler(number, begin)


def leave_within(drain_seconds: float) -> None:
    watchdog = threading.Timer(drain_seconds + LEAVE_SECONDS, leave, (_GIVEN_UP,))
    watchdog.daemon = True
    watchdog.start()


def leave(code: int) -> NoReturn:
    """Exit now. The interpreter's own exit would wait for threads."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
