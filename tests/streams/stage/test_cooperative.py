"""Long work in pieces: others get their turn in between, whatever they do."""

from __future__ import annotations

import asyncio

from streams.stage.cooperative import PIECE, yielding


async def test_all_come_in_order_and_others_get_a_turn_now_and_then() -> None:
    turns: list[int] = []
    seen: list[int] = []

    async def others() -> None:
        while len(seen) < 3 * PIECE:
            turns.append(len(seen))
            await asyncio.sleep(0)

    async def work() -> None:
        async for value in yielding(range(3 * PIECE)):
            seen.append(value)

    await asyncio.gather(work(), others())
    assert seen == list(range(3 * PIECE))
    assert turns == [PIECE, 2 * PIECE]
