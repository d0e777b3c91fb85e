"""Long work leaves turns to the other tasks of the event loop."""

from __future__ import annotations

import asyncio

from streams.stage.base import YIELD_EVERY, yielding


async def test_all_come_in_order_and_others_get_a_turn_now_and_then() -> None:
    turns: list[int] = []
    seen: list[int] = []

    async def others() -> None:
        while len(seen) < 3 * YIELD_EVERY:
            turns.append(len(seen))
            await asyncio.sleep(0)

    async def work() -> None:
        async for value in yielding(range(3 * YIELD_EVERY)):
            seen.append(value)

    await asyncio.gather(work(), others())
    assert seen == list(range(3 * YIELD_EVERY))
    assert turns == [YIELD_EVERY, 2 * YIELD_EVERY]
