"""Make Kafka clients, start them and stop them so that no connection stays open.

All consumers, producers and admin clients of the project are made here, so how a broker is reached is said once. A
process may end whenever it likes: while the broker is slow to answer, or while a connection that has failed is being
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from traceback import walk_tb
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownError

from fleetlore.cluster import TOKEN, Bootstrap, Cluster, Relay
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.batches import Consumer
from fleetlore.kafka.by_relay import RelayConsumer, RelayProducer
from fleetlore.stack_folder import StackFolder

STOP_SECONDS = 1.0
_FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0
# Longest wait for an answer that waits for nobody else.
ANSWER_SECONDS = 10.0

_Client = TypeVar("_Client")

# By client: what it was made with.
_settings_of: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def backoff() -> Iterator[float]:
    """Yield the seconds to wait before each next try, without end: 0.1, 0.2, 0.4, …, at most 2."""
    delay = _FIRST_DELAY_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)


def make_consumer(bootstrap: Bootstrap, *topics: str, group: str | None = None, **settings: Any) -> AIOKafkaConsumer:
    """A consumer that commits nothing by itself and reads from the beginning where nothing is committed.

    What a transaction wrote that was aborted never happened, and what an open one has written waits for its end.
    """
    if isinstance(bootstrap, Relay):
        return RelayConsumer(bootstrap, topics)
    settings = {
        "group_id": group,
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        **settings,
    }
    return _made(Consumer, bootstrap, *topics, **settings)


def make_producer(bootstrap: Bootstrap, **settings: Any) -> AIOKafkaProducer:
    """A producer whose records count as sent once all replicas have them, and that the broker takes once each.

    Without that second promise a request that timed out here and still waits at the broker is appended after its own
    retry and after what followed it: on a compacted topic an older value would become the newest of its key.
    """
    if isinstance(bootstrap, Relay):
        return RelayProducer(bootstrap)
    return _made(AIOKafkaProducer, bootstrap, acks="all", enable_idempotence=True, **settings)


def make_admin(bootstrap: Bootstrap) -> AIOKafkaAdminClient:
    return _made(AIOKafkaAdminClient, bootstrap)


def _made(kind: Callable[..., Any], bootstrap: Bootstrap, *topics: str, **settings: Any) -> Any:
    settings = _connection_settings(bootstrap) | settings
    client = kind(*topics, **settings)
    _settings_of[client] = settings
    return client


def _connection_settings(bootstrap: Bootstrap) -> dict[str, Any]:
    """How aiokafka reaches the brokers: the keyword arguments that all of its clients take.

    Raises:
        ConfigError: a file or a function that the cluster names cannot be used.
        ConnectionRefused: no stack runs on the folder.
    """
    _quiet_client_logs()
    cluster = _found(bootstrap)
    # A list, of which a client takes the servers when it starts: `_choose_server` leaves one.
    servers = str(cluster.address).split(",")
    settings: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": cluster.security_protocol}
    if (context := cluster.ssl_context()) is not None:
        settings["ssl_context"] = context
    if cluster.sasl_mechanism == TOKEN:
        settings |= {"sasl_mechanism": TOKEN, "sasl_oauth_token_provider": _Tokens(cluster.token_function())}
    elif cluster.sasl_mechanism:
        settings |= {
            "sasl_mechanism": cluster.sasl_mechanism,
            "sasl_plain_username": cluster.sasl_username,
            "sasl_plain_password": cluster.sasl_password,
        }
    return settings


def check_place(client: Any, bootstrap: Bootstrap) -> None:
    """Check that the stack of a folder still is where a client was connected to.

    A stack that starts again takes other ports if its own are taken, and then another broker may listen there.

    Raises:
        ConnectionRefused: it is elsewhere, or away.
    """
    if isinstance(bootstrap, StackFolder):
        address = str(_found(bootstrap).address)
        if address not in _settings_of[client]["bootstrap_servers"]:
            raise ConnectionRefused(bootstrap, f"it has moved to {address}")


def _found(bootstrap: Bootstrap) -> Cluster:
    try:
        return Cluster.of(bootstrap)
    except ConfigError as error:
        if isinstance(bootstrap, StackFolder):
            raise ConnectionRefused(bootstrap, str(error)) from None
        raise


class ConnectionRefused(KafkaConnectionError):  # type: ignore[misc]  # aiokafka has no types
    """A broker is there and takes no connection.

    Attributes:
        why: what it, or TLS, said.
    """

    def __init__(self, tried: object, why: str) -> None:
        super().__init__(f"{tried}: {why}")
        self.why = why


def no_broker(bootstrap: Bootstrap, error: KafkaError) -> BrokerUnavailable:
    """What to raise where a connection cannot be made."""
    if isinstance(error, ConnectionRefused):
        why = f": {error.why}"
    else:
        # The client's own words repeat the address, as a tuple.
        why = "" if isinstance(error, KafkaConnectionError) else f": {error}"
    return BrokerUnavailable(f"no Kafka broker at {bootstrap}{why}")


async def connect(client: Any) -> None:
    """Start a client. Where that fails or is cancelled, nothing is left open.

    A start that is cancelled half-way leaves the connection over which aiokafka 0.14 asks who is in the cluster. No
    `stop()` knows of it, and its socket stays open for as long as anybody keeps the error.
    """
    settings = _settings_of.get(client, {})
    try:
        await _choose_server(settings)
        try:
            await client.start()
        except UnknownError:
            # So the embedded broker answers a producer that asks for the id by which a broker knows its records.
            if not settings.get("enable_idempotence"):
                raise
            await disconnect(client)
            settings["enable_idempotence"] = False
            client.__init__(**settings)  # the same object, for whoever has it
            await client.start()
    except BaseException as error:
        _close_first_connection(error.__traceback__)
        await disconnect(client)
        if isinstance(error, KafkaConnectionError) and (why := await _refusal(settings)) is not None:
            raise ConnectionRefused(error.args[0], why) from error
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
        # aiokafka may let the cancellation of its own task through; that is none of the caller.
        caller = asyncio.current_task()
        if not stopping.cancelled() or (caller is not None and caller.cancelling()):
            raise


@asynccontextmanager
async def connected(client: _Client) -> AsyncIterator[_Client]:
    """The client, started for as long as the context lasts."""
    await connect(client)
    try:
        yield client
    finally:
        await disconnect(client)


async def _stop(client: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        try:
            # An admin client has no `stop`.
            await asyncio.wait_for((client.stop if hasattr(client, "stop") else client.close)(), seconds)
        except TimeoutError:
            # It waits for answers that a broker that hangs will not give. Without connections it waits for nothing.
            await asyncio.wait_for(connections(client).close(), seconds)


def _close_first_connection(trace: TracebackType | None) -> None:
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "bootstrap" and (connection := frame.f_locals.get("bootstrap_conn")) is not None:
            connection.close()


async def _refusal(settings: Mapping[str, Any]) -> str | None:
    """What a secured cluster says to a connection: aiokafka tells only its log, where a password was wrong."""
    if settings.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
        return None
    host, port, _ = collect_hosts(settings["bootstrap_servers"])[0]
    try:
        (await _open(settings, host, port)).close()
    except Exception as error:  # whatever a broker, a certificate or a function that makes tokens has to say
        return f"{type(error).__name__}: {error}"
    return None


async def _choose_server(settings: Mapping[str, Any]) -> None:
    """Leave the server that answers first of those that a client may begin with; all of them where none does.

    aiokafka asks one after the other, and waits for one that takes connections and hangs for as long as for a request.
    """
    servers: list[str] = settings.get("bootstrap_servers", [])
    if len(servers) < 2:
        return
    tries = {
        asyncio.create_task(_open(settings, host, port)): f"[{host}]:{port}" for host, port, _ in collect_hosts(servers)
    }
    try:
        waiting = set(tries)
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for each in done:
                if each.exception() is None:
                    servers[:] = [tries[each]]
                    return
    finally:
        for each in tries:
            each.cancel()
        for opened in await asyncio.gather(*tries, return_exceptions=True):
            if not isinstance(opened, BaseException):
                opened.close()


async def _open(settings: Mapping[str, Any], host: str, port: int) -> Any:
    names = ["request_timeout_ms", "security_protocol", "ssl_context", "sasl_mechanism"]
    names += ["sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"]
    return await create_conn(host, port, **{name: settings[name] for name in names if name in settings})


def connections(client: Any) -> AIOKafkaClient:
    """The connections of a client, which only a producer shows: a stop that waits for a broker that hangs ends without
    them, and a consumer says nothing of topics that it is not assigned to.
    """
    return client.client if hasattr(client, "client") else client._client


class _Tokens(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    """Bearer tokens of a function that may block."""

    def __init__(self, token: Callable[[], str]) -> None:
        super().__init__()
        self._make = token

    async def token(self) -> str:
        return await asyncio.to_thread(self._make)


def _quiet_client_logs() -> None:
    """Silence aiokafka below CRITICAL, unless its level was set on purpose.

    While a broker is away, aiokafka logs several errors a second from every connection: a flood in the log of an agent,
    where fleetlore reports an outage once.
    """
    client = logging.getLogger("aiokafka")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)
