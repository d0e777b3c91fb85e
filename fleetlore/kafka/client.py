"""Make, start and stop all Kafka clients of the project, without leaving connections open.

Stops are bounded, even while the broker hangs.
"""

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

from fleetlore.cluster import TOKEN, Bootstrap, Cluster, Relay, StackFolder
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.batches import Consumer, InOrder
from fleetlore.kafka.by_relay import RelayConsumer, RelayProducer

STOP_SECONDS = 1.0
_FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0
ANSWER_SECONDS = 10.0

_Client = TypeVar("_Client")

_settings_of: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def backoff() -> Iterator[float]:
    """Yield seconds between retries: 0.1, 0.2, 0.4, …, 2."""
    delay = _FIRST_DELAY_SECONDS
    while True:
        yield delay
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)


def make_consumer(
    bootstrap: Bootstrap, *topics: str, group: str | None = None, in_order: bool = False, **settings: Any
) -> AIOKafkaConsumer:
    """Make a consumer of committed transactions, without automatic commits, from the commit or the beginning.

    Args:
        in_order: fetch only once all records were read; `getmany` must ask for all partitions.
    """
    if isinstance(bootstrap, Relay):
        return RelayConsumer(bootstrap, topics)
    settings = {
        "group_id": group,
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        # Without it the client polls every 200 ms; it wakes on events anyway.
        "consumer_timeout_ms": 5_000,
        **settings,
    }
    return _made(InOrder if in_order else Consumer, bootstrap, *topics, **settings)


def make_producer(bootstrap: Bootstrap, **settings: Any) -> AIOKafkaProducer:
    """Make an idempotent producer: a timed-out request must not be appended after its own retry."""
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
    client = logging.getLogger("aiokafka")
    if client.level == logging.NOTSET:  # it logs several errors a second in an outage
        client.setLevel(logging.CRITICAL)
    cluster = _found(bootstrap)
    # `_choose_server` leaves one server at start.
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
    """Raise ConnectionRefused if a folder's stack has another address than the client."""
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
    def __init__(self, tried: object, why: str) -> None:
        super().__init__(f"{tried}: {why}")
        self.why = why


def no_broker(bootstrap: Bootstrap, error: KafkaError) -> BrokerUnavailable:
    if isinstance(error, ConnectionRefused):
        why = f": {error.why}"
    else:
        # The client's message repeats the address as a tuple.
        why = "" if isinstance(error, KafkaConnectionError) else f": {error}"
    return BrokerUnavailable(f"no Kafka broker at {bootstrap}{why}")


async def connect(client: Any) -> None:
    settings = _settings_of.get(client, {})
    try:
        await _choose_server(settings)
        try:
            await client.start()
        except UnknownError:
            # The embedded broker answers this way to a request for a producer id.
            if not settings.get("enable_idempotence"):
                raise
            await disconnect(client)
            settings["enable_idempotence"] = False
            client.__init__(**settings)  # the same object, which callers hold
            await client.start()
    except BaseException as error:
        _close_first_connection(error.__traceback__)
        await disconnect(client)
        if isinstance(error, KafkaConnectionError) and (why := await _refusal(settings)) is not None:
            raise ConnectionRefused(error.args[0], why) from error
        raise


async def disconnect(client: Any, seconds: float = STOP_SECONDS) -> None:
    """Stop a client, even if the caller is cancelled: aiokafka's cancelled `stop` leaks connections and tasks."""
    stopping = asyncio.create_task(_stop(client, seconds))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await asyncio.wait([stopping])
        # aiokafka may raise its own task's cancellation.
        caller = asyncio.current_task()
        if not stopping.cancelled() or (caller is not None and caller.cancelling()):
            raise


@asynccontextmanager
async def connected(client: _Client) -> AsyncIterator[_Client]:
    await connect(client)
    try:
        yield client
    finally:
        await disconnect(client)


async def _stop(client: Any, seconds: float) -> None:
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        try:
            await asyncio.wait_for((client.stop if hasattr(client, "stop") else client.close)(), seconds)
        except TimeoutError:
            # `stop` waits for a hanging broker. Without connections it does not.
            await asyncio.wait_for(connections(client).close(), seconds)


def _close_first_connection(trace: TracebackType | None) -> None:
    for frame, _ in walk_tb(trace):
        if frame.f_code.co_name == "bootstrap" and (connection := frame.f_locals.get("bootstrap_conn")) is not None:
            connection.close()


async def _refusal(settings: Mapping[str, Any]) -> str | None:
    """aiokafka only logs why a secured cluster refuses."""
    if settings.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
        return None
    host, port, _ = collect_hosts(settings["bootstrap_servers"])[0]
    try:
        (await _open(settings, host, port)).close()
    except Exception as error:  # of a broker, a certificate or a token function
        return f"{type(error).__name__}: {error}"
    return None


async def _choose_server(settings: Mapping[str, Any]) -> None:
    """aiokafka waits a whole time-out for a server that hangs."""
    servers: list[str] = settings.get("bootstrap_servers", [])
    if len(servers) < 2:
        return

    async def answering(host: str, port: int) -> str:
        (await _open(settings, host, port)).close()
        return f"[{host}]:{port}"

    tries = [asyncio.create_task(answering(host, port)) for host, port, _ in collect_hosts(servers)]
    try:
        for each in asyncio.as_completed(tries, timeout=ANSWER_SECONDS):
            with contextlib.suppress(Exception):  # of this server, or in time none answers
                servers[:] = [await each]
                return
    finally:
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)


async def _open(settings: Mapping[str, Any], host: str, port: int) -> Any:
    names = ["request_timeout_ms", "security_protocol", "ssl_context", "sasl_mechanism"]
    names += ["sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider"]
    return await create_conn(host, port, **{name: settings[name] for name in names if name in settings})


def connections(client: Any) -> AIOKafkaClient:
    """Return a client's connections, which only producers expose."""
    return client.client if hasattr(client, "client") else client._client


class _Tokens(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    def __init__(self, token: Callable[[], str]) -> None:
        super().__init__()
        self._make = token

    async def token(self) -> str:
        return await asyncio.to_thread(self._make)
