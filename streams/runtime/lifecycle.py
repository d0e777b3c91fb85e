"""How a role ends: in order at the first signal, at once at the second, and in any case when its time is up.

At SIGTERM or SIGINT a role is no longer ready, fetches no more, finishes what is under way within `Settings.drain_seconds`
or leaves it to the next, commits what is done, leaves its group and exits with 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

# Beyond the budget of the work under way: to commit, leave the group and close. Where the broker hangs, that never ends.
LEAVE_SECONDS = 5.0
GIVEN_UP = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def at_first_signal(loop: asyncio.AbstractEventLoop, stop: Callable[[], object], drain_seconds: float) -> None:
    """Call `stop` at the first SIGTERM or SIGINT."""

    def begin() -> None:
        for number in SIGNALS:
            # From now on a signal kills the process as it does any other, even where the event loop is blocked.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        watchdog = threading.Timer(drain_seconds + LEAVE_SECONDS, leave, (GIVEN_UP,))
        watchdog.daemon = True
        watchdog.start()
        stop()

    for number in SIGNALS:
        loop.add_signal_handler(number, begin)


def leave(code: int) -> NoReturn:
    """End the process now. What is under way on a thread cannot be ended, and the interpreter's own exit waits for it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
