"""Find records that a former owner wrote over its successor's, and request them again.

A worker that loses its network keeps writing into its sockets. The broker receives those bytes minutes later, and no
lease or deadline can stop them. So each record of a compacted topic carries its writer's position in the source topic
(`POSITION`). If an earlier record had a greater position, the key is sent to the source topic and the owner publishes
it again. Such a request lies behind all earlier positions, so requests end.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from aiokafka import TopicPartition as Asked

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import RecordsRefused
from fleetlore.kafka.read import Fetched, Follower, end_offsets, observer
from fleetlore.wire.topics import tenant_of, topic
from sinks.producer import POSITION, BatchProducer
from streams.stage.base import Outgoing, TopicPartition
from streams.stage.operators import Forget

__all__ = ["mend_stale"]

log = logging.getLogger(__name__)

# The source of each compacted topic. A key has the same partition in both.
SOURCES = {"patterns": "observations", "items": "candidates"}
# Records of each partition read from before the start, to cover time without an owner.
_LOOK_BACK = 1_000
# Seconds that a key of an unowned partition waits for its owner.
WAIT_SECONDS = 120.0
_MAX_DIGITS = 19


class StaleRecords:
    """`see` must get the records in order. `owned`: whether this worker owns a partition of a source."""

    def __init__(self, owned: Callable[[TopicPartition], bool], clock: Clock | None = None) -> None:
        self._owned = owned
        self._clock = clock or SystemClock()
        # By source partition: the greatest position, and when each key to request was found.
        self._greatest: dict[TopicPartition, int] = {}
        self._found: dict[TopicPartition, dict[str, float]] = {}

    def see(self, name: str, partition: int, key: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> None:
        said = dict(headers).get(POSITION) or b""
        if key is None or not said.isdigit() or len(said) > _MAX_DIGITS:
            return  # `republish` compares with the store
        tenant, _, short = name.removeprefix("fleetlore.").partition(".")
        source = TopicPartition(topic(tenant, SOURCES[short]), partition)
        position = int(said)
        if position < self._greatest.get(source, 0):
            with suppress(UnicodeDecodeError):  # no stage writes such a key, so no stage would publish it again
                self._found.setdefault(source, {})[key.decode()] = self._clock.monotonic()
        else:
            self._greatest[source] = position

    @property
    def found(self) -> list[TopicPartition]:
        return list(self._found)

    def check(self, ends: Mapping[TopicPartition, int]) -> None:
        for source, end in ends.items():
            if self._greatest.get(source, 0) > end:
                self._greatest[source] = 0
                self._found.pop(source, None)

    async def ask(self, deliver: Callable[[Sequence[Outgoing]], Awaitable[None]]) -> None:
        """Request the keys of owned partitions. Drop them only after `deliver` returns: no later fetch brings them.
        Raises BrokerUnavailable."""
        owned = [source for source in self._found if self._owned(source)]
        asked = [
            Outgoing(tenant_of(source.topic), source.topic.rpartition(".")[2], key, Forget(key, ()).to_json())
            for source in owned
            for key in self._found[source]
        ]
        try:
            await deliver(asked)
        except RecordsRefused as error:
            log.warning("%s; these keys stay stale until they change", error)
        late = self._clock.monotonic() - WAIT_SECONDS
        for source, keys in list(self._found.items()):
            if source in owned or max(keys.values()) < late:
                del self._found[source]


async def mend_stale(settings: Settings, producer: BatchProducer, owned: Callable[[TopicPartition], bool]) -> None:
    stale = StaleRecords(owned)

    async def take(fetched: Fetched) -> None:
        for record in chain.from_iterable(fetched.values()):
            stale.see(record.topic, record.partition, record.key, record.headers)
        if stale.found:
            async with observer(settings.cluster) as consumer:
                stale.check(await end_offsets(consumer, [Asked(*each) for each in stale.found]))
            await stale.ask(producer.deliver)

    names, wait_ms = [topic(tenant, name) for tenant in settings.tenants for name in SOURCES], settings.fetch_wait_ms
    await Follower(settings.cluster, names, take, what="stale lore", fetch_wait_ms=wait_ms, newest=_LOOK_BACK).run()
