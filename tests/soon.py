"""Bound how late news may be, on a machine that is busy at times."""

import math
from collections.abc import Awaitable, Callable

__all__ = ["twice_within"]


async def twice_within(seconds: float, measure: Callable[[], Awaitable[float]], tries: int = 12) -> bool:
    """Whether two tries in a row take less than `seconds`.

    A busy machine is late in some tries. News that waits for a poll is early in some, but seldom twice in a row.
    """
    before = math.inf
    for _ in range(tries):
        now = await measure()
        if max(before, now) < seconds:
            return True
        before = now
    return False
