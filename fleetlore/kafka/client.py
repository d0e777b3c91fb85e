"""Make Kafka clients, start them and stop them so that no connection stays open.

All consumers, producers and admin clients of the project are made here, so how a broker is reached is said once. Faust
makes its own; it takes its settings from here too. A process may end whenever it likes: while the broker is slow to
answer, or while a connection that has failed is being closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from traceback import walk_tb
from types import TracebackType
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

STOP_SECONDS = 1.0
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0

C = TypeVar("C")


def backoff() -> Iterator[float]:
    """Yield the seconds to wait before each next try, without end: 0.1, 0.2, 0.4, …, at most 2."""
    delay = FIRST_DELAY_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)


def make_consumer(bootstrap: str, *topics: str, group: str | None = None, **settings: Any) -> AIOKafkaConsumer:
    """A consumer that commits nothing by itself and reads from the beginning where nothing is committed."""
    return AIOKafkaConsumer(
        *topics,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **_connection(bootstrap),
        **settings,
    )


def make_producer(bootstrap: str, **settings: Any) -> AIOKafkaProducer:
    """A producer whose records count as sent once all replicas have them."""
    return AIOKafkaProducer(acks="all", **_connection(bootstrap), **settings)


def make_admin(bootstrap: str) -> AIOKafkaAdminClient:
    """A client that creates and alters topics."""
    return AIOKafkaAdminClient(**_connection(bootstrap))


def faust_settings(bootstrap: str, session_timeout_seconds: float) -> dict[str, Any]:
    """The same for Faust, which makes its clients itself."""
    _quiet_client_logs()
    return {
        "broker": [f"kafka://{host}" for host in bootstrap.split(",")],
        "broker_session_timeout": session_timeout_seconds,
        "broker_heartbeat_interval": heartbeat_seconds(session_timeout_seconds),
        "broker_rebalance_timeout": session_timeout_seconds,
    }


def heartbeat_seconds(session_timeout_seconds: float) -> float:
    """How often a member of a group reports: Kafka's default, but six times a session timeout at least."""
    return min(3.0, session_timeout_seconds / 6)


async def connect(client: Any) -> None:
    """Start a client. Where that fails or is cancelled, nothing is left open.

    A start that is cancelled half-way leaves the connection over which aiokafka 0.14 asks who is in the cluster. No
    `stop()` knows of it, and its socket stays open for as long as anybody keeps the error.
    """
    try:
        await client.start()
    except BaseException as error:
        _close_first_connection(error.__traceback__)
        await disconnect(client)
        raise


async def disconnect(client: Any, seconds: float = STOP_SECONDS) -> None:
    """Stop a client to the end, also where the caller is cancelled meanwhile. Raises nothing else and never hangs.

    A stop that is cancelled half-way cannot be made again, and leaves connections and tasks. Or it swallows the
    cancellation, and the task that was to end goes on for ever: aiokafka takes it for that of its own task.
    """
    stopping = asyncio.create_task(_stop(client, seconds))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await asyncio.wait([stopping])
        raise


@asynccontextmanager
async def connected(client: C, stop_seconds: float = STOP_SECONDS) -> AsyncIterator[C]:
    """The client, started for as long as the context lasts."""
    await connect(client)
    try:
        yield client
    finally:
        await disconnect(client, stop_seconds)


async def _stop(client: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        try:
            # An admin client has no `stop`.
            await asyncio.wait_for((client.stop if hasattr(client, "stop") else client.close)(), seconds)
        except TimeoutError:
            # It waits for answers that a broker that hangs will not give. Without connections it waits for nothing.
            connections = client.client if hasattr(client, "client") else client._client
            await asyncio.wait_for(connections.close(), seconds)


def _close_first_connection(trace: TracebackType | None) -> None:
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "bootstrap" and (connection := frame.f_locals.get("bootstrap_conn")) is not None:
            connection.close()


def _connection(bootstrap: str) -> dict[str, Any]:
    _quiet_client_logs()
    return {"bootstrap_servers": bootstrap}


def _quiet_client_logs() -> None:
    """Silence aiokafka below CRITICAL, unless its level was set on purpose.

    While a broker is away, aiokafka logs several errors a second from every connection: a flood in the log of an agent,
    where fleetlore reports an outage once.
    """
    client = logging.getLogger("aiokafka")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)
