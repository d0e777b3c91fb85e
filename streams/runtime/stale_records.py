"""Find what a former owner wrote over what its successor has written, and ask for it again.

A worker whose network stands still goes on writing into its sockets. The group moves its partitions on, and minutes
later, with the network, the broker gets those bytes: no lease and no deadline of a client reaches them there. So each
record of a compacted topic says how far its writer had read the topic that it was made from (`POSITION`). Who goes on
behind a former owner reads at least as far, so within a partition these positions only grow, but for the first seconds
of an owner. A record that is behind an earlier one may be older than what it replaces; its owner is asked to publish
that key again, by a value on the topic that it reads. That lies behind all positions there were, so asking ends.

A position is an offset and no generation of a group, which a broker may begin anew, and no transaction, which the
embedded broker does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from aiokafka import TopicPartition as Asked

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.errors import RecordsRefused
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import end_offsets, observer
from fleetlore.wire.topics import tenant_of, topic
from sinks.producer import POSITION, BatchProducer
from streams.stage.base import Outgoing, TopicPartition
from streams.stage.operators import Forget

log = logging.getLogger(__name__)

# The source topic of each compacted topic of the stages. A key has the same partition on both.
SOURCES = {"patterns": "observations", "items": "candidates"}
# Records of each partition that are looked at from before the start: what came while nobody owned it.
_LOOK_BACK = 1_000
_POLL_MS = 500
# How long a key that nobody owns waits for its owner.
WAIT_SECONDS = 120.0
# An offset has at most so many digits.
_MAX_DIGITS = 19


class StaleRecords:
    """Finds them among the records of compacted topics, which `see` is given in order.

    Args:
        owned: whether this worker owns a partition of a source, and is to ask.
    """

    def __init__(self, owned: Callable[[TopicPartition], bool], clock: Clock | None = None) -> None:
        self._owned = owned
        self._clock = clock or SystemClock()
        # By partition of a source: the greatest position; and the keys to ask for, with the time they were found at.
        self._greatest: dict[TopicPartition, int] = {}
        self._found: dict[TopicPartition, dict[str, float]] = {}

    def see(self, name: str, partition: int, key: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Look at one record of the topic `name`."""
        said = dict(headers).get(POSITION) or b""
        if key is None or not said.isdigit() or len(said) > _MAX_DIGITS:
            return  # `republish` compares with the store itself
        tenant, _, short = name.removeprefix("fleetlore.").partition(".")
        source = TopicPartition(topic(tenant, SOURCES[short]), partition)
        position = int(said)
        if position < self._greatest.get(source, 0):
            with suppress(UnicodeDecodeError):  # no stage writes such a key, so nobody would publish it again
                self._found.setdefault(source, {})[key.decode()] = self._clock.monotonic()
        else:
            self._greatest[source] = position

    @property
    def found(self) -> list[TopicPartition]:
        """Partitions of the sources with keys to ask for."""
        return list(self._found)

    def check(self, ends: Mapping[TopicPartition, int]) -> None:
        """Forget what was found where a source ends before the greatest position: it was made anew since."""
        for source, end in ends.items():
            if self._greatest.get(source, 0) > end:
                self._greatest[source] = 0
                self._found.pop(source, None)

    async def ask(self, deliver: Callable[[Sequence[Outgoing]], Awaitable[None]]) -> None:
        """Ask for the keys of the partitions that this worker owns; the keys of other partitions wait for their owner.

        A key is dropped only after `deliver` has returned: no later fetch brings it again.

        Raises:
            BrokerUnavailable: the broker has not taken all requests. The next call repeats them.
        """
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


async def mend_stale(
    bootstrap: Bootstrap,
    tenants: Iterable[str],
    producer: BatchProducer,
    owned: Callable[[TopicPartition], bool],
    fetch_wait_ms: int,
) -> None:
    """Follow the compacted topics of the stages and ask for what is stale, until cancelled."""
    stale = StaleRecords(owned)

    async def take(fetched: Fetched) -> None:
        for part, records in fetched.items():
            for record in records:
                stale.see(part.topic, part.partition, record.key, record.headers)
        if stale.found:
            stale.check(await _ends(bootstrap, stale.found))
            await stale.ask(producer.deliver)

    names = [topic(tenant, name) for tenant in tenants for name in SOURCES]
    follower = Follower(
        bootstrap, names, take, what="stale lore", fetch_wait_ms=fetch_wait_ms, poll_ms=_POLL_MS, newest=_LOOK_BACK
    )
    await follower.run()


async def _ends(bootstrap: Bootstrap, sources: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    async with observer(bootstrap) as consumer:
        found = await end_offsets(consumer, [Asked(*each) for each in sources])
        return {TopicPartition(*each): end for each, end in found.items()}
