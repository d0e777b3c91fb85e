"""Long work in pieces: a worker's stages share one event loop, and a failure that is news waits for whatever runs on it.

A batch of judgments, or all patterns that are written at once, take 50 to 100 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

PIECE = 16  # sessions to judge or states to write: some milliseconds


async def yielding(values: Sequence[T]) -> AsyncIterator[T]:
    """The values, and now and then a turn for the others in between.

    A sequence of its own, because one of the others may be a rebalance, and then a stage forgets all that it holds.
    """
    for number, value in enumerate(values, 1):
        yield value
        if number % PIECE == 0:
            await asyncio.sleep(0)
