"""Send what models were given besides their goals, once a day for all the sessions that name it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from aiokafka.errors import KafkaError

from fleetlore.clock import Clock
from fleetlore.cluster import Bootstrap
from fleetlore.errors import ConfigError
from fleetlore.kafka.client import STOP_SECONDS, backoff, connected, make_producer
from fleetlore.redact.values import redact_value
from fleetlore.wire.events import Definitions, definitions_id
from fleetlore.wire.topics import DAY_SECONDS, topic

if TYPE_CHECKING:  # comes with the extra [personal]
    from fleetlore.redact.personal import PersonalData

__all__ = ["DefinitionSender"]

log = logging.getLogger(__name__)

MAX_BYTES = 512 * 1024
# Different ones that are known to be sent, and that wait for the broker at most.
_REMEMBERED, _WAITING = 1024, 16


class DefinitionSender:
    """Keeps the definitions that the sessions of one process name on the log. Any thread may name some.

    They are sent again each day: a record is kept as long as the sessions that name it. What the broker does not take
    waits for the next session, and for `close`.
    """

    def __init__(self, bootstrap: Bootstrap, tenant: str, clock: Clock, personal: PersonalData | None = None) -> None:
        self._bootstrap = bootstrap
        self._topic = topic(tenant, "definitions")
        self._clock = clock
        self._personal = personal
        self._lock = threading.Lock()
        # By the hash of what was given, so that it is masked once: the id, and when it was sent or began to wait.
        self._named: dict[bytes, tuple[str, float]] = {}
        self._waiting: dict[str, bytes] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: asyncio.Task[None] | None = None

    def name(self, system: str, tools: Sequence[Mapping[str, Any]]) -> str:
        """Id of what a model is given, to be named in an event. Secrets in it are masked.

        Raises:
            ConfigError: `system` is no text, a tool no JSON object, or all is larger than 512 KiB.
        """
        try:
            given = orjson.dumps([system, list(tools)], option=orjson.OPT_SORT_KEYS)
            if len(given) > MAX_BYTES:
                raise ConfigError(f"system and tools have {len(given):,} bytes; at most {MAX_BYTES:,} are kept")
            shape = blake2b(given, digest_size=16).digest()
            with self._lock:
                id, since = self._named.pop(shape, ("", 0.0))
                now = self._clock.monotonic()
                if not id or now - since >= DAY_SECONDS:
                    value = self._definitions(given).to_json()
                    id, since = definitions_id(value), now
                    self._waiting[id] = value
                    _keep(self._waiting, _WAITING)
                self._named[shape] = id, since
                _keep(self._named, _REMEMBERED)
        except (TypeError, msgspec.ValidationError) as error:
            raise ConfigError(f"system is a text, and tools are JSON objects as a model takes them: {error}") from None
        if self._waiting and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and the agent with it
                self._loop.call_soon_threadsafe(self._begin)
        return id

    async def start(self) -> None:
        """Begin to send; returns at once, whether or not the broker answers."""
        self._loop = asyncio.get_running_loop()
        if self._waiting:
            self._begin()

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until the broker has all that was named; False where it does not take it in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                for delay in backoff():
                    if not self._waiting:
                        break
                    await asyncio.shield(self._begin())
                    if self._waiting:
                        await asyncio.sleep(delay)
        return not self._waiting

    async def close(self, timeout_seconds: float = 2.0) -> None:
        """Flush within the limit, then stop."""
        if not await self.flush(timeout_seconds):
            log.warning(
                "%d definitions were not sent: broker %s did not take them", len(self._waiting), self._bootstrap
            )
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending], timeout=3 * STOP_SECONDS)

    def _definitions(self, given: bytes) -> Definitions:
        masked = redact_value(orjson.loads(given))
        system, tools = masked if self._personal is None else self._personal.masked(masked)
        return msgspec.convert({"system": system, "tools": tools}, Definitions)

    def _begin(self) -> asyncio.Task[None]:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="fleetlore-definitions")
        return self._sending

    async def _send(self) -> None:
        with self._lock:
            some = dict(self._waiting)
        try:
            # A producer for the moment: definitions are rare, and a standing connection is not.
            async with connected(make_producer(self._bootstrap, max_request_size=2 * MAX_BYTES)) as producer:
                sent = [await producer.send(self._topic, value, key=id.encode()) for id, value in some.items()]
                await asyncio.gather(*sent)
        except (KafkaError, OSError) as error:
            log.info("definitions not sent, they are sent later: %s", error)
            return
        with self._lock:
            for id in some:
                self._waiting.pop(id, None)


def _keep(kept: dict[Any, Any], most: int) -> None:
    if len(kept) > most:
        del kept[next(iter(kept))]
