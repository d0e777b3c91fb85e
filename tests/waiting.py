import asyncio
from collections.abc import Callable
from typing import Any


async def until(is_so: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait for what comes by itself."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.01)
