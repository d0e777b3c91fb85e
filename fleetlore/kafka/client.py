"""Starting and stopping what aiokafka offers (producers, consumers) so that no connection stays open where that is cancelled.

An agent ends whenever it likes: while the broker is slow to answer, or while a connection that has failed is being closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from traceback import walk_tb
from types import TracebackType
from typing import Any

from aiokafka.errors import KafkaError

STOP_SECONDS = 1.0


async def connect(client: Any) -> None:
    """`client.start()`; whoever calls it stops the client also where this raises.

    A start that is cancelled half-way leaves the connection over which aiokafka 0.14 asks who is in the cluster: no `stop()` knows of
    it, and its socket stays open for as long as anybody keeps the error.
    """
    try:
        await client.start()
    except BaseException as error:
        _close_first_connection(error.__traceback__)
        raise


async def disconnect(client: Any) -> None:
    """`client.stop()` to its end, also where the caller is cancelled meanwhile. Raises nothing else and never hangs.

    A stop that is cancelled half-way cannot be made again, and leaves connections and tasks. Or it swallows the cancellation, and the
    task that was to end goes on for ever: aiokafka takes it for that of its own task, for whose end it waits.
    """
    stopping = asyncio.create_task(_stop(client))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await asyncio.wait([stopping])
        raise


async def _stop(client: Any) -> None:
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        try:
            await asyncio.wait_for(client.stop(), STOP_SECONDS)
        except TimeoutError:
            # It waits for answers that a broker that hangs will not give. Without connections it waits for nothing.
            connections = client.client if hasattr(client, "client") else client._client
            await asyncio.wait_for(connections.close(), STOP_SECONDS)


def _close_first_connection(trace: TracebackType | None) -> None:
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "bootstrap" and (connection := frame.f_locals.get("bootstrap_conn")) is not None:
            connection.close()
