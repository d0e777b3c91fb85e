"""Bound what a call costs, whatever else the machine does."""

import gc
import time
from collections.abc import Callable

from benchmarks.cpu import forget_answers

__all__ = ["costs_less_than"]


def costs_less_than(seconds: float, work: Callable[[], object], tries: int = 4) -> bool:
    """Whether one of a few calls takes less CPU time of this thread, each with empty caches.

    A collection of garbage among the objects of other tests costs a tenth of a second, and so do the caches of a busy
    processor. Neither spoils all calls. What grows with the square of its input is too slow each time.
    """
    for _ in range(tries):
        gc.disable()
        try:
            began = time.thread_time()
            work()
            if time.thread_time() - began < seconds:
                return True
        finally:
            gc.enable()
        forget_answers()
    return False
