"""Follow topics from their beginning, across outages.

There is no consumer group: each follower reads everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.batches import readable
from fleetlore.kafka.by_relay import RelayConsumer
from fleetlore.kafka.client import LONGEST_DELAY_SECONDS, backoff, check_place, connected, make_consumer
from fleetlore.kafka.read import end_offsets, observer
from fleetlore.wire.topics import DAY_SECONDS, TOMBSTONE_SECONDS

log = logging.getLogger(__name__)

# A new topic is noticed within this time. Each refresh costs the broker work.
_METADATA_AGE_MS = 15_000
_REQUEST_TIMEOUT_MS = 10_000
# The broker keeps tombstones for one day more.
_MOST_AWAY_SECONDS = TOMBSTONE_SECONDS - DAY_SECONDS

Fetched = Mapping[TopicPartition, Sequence[ConsumerRecord]]


class Follower:
    """Passes the records of `topics` to `take`, from the beginning. Run `run()` as a task, and cancel it to stop.

    `take` gets each fetch at least once, and again if it raises; empty after `poll_ms` without a record. `resumes`:
    continue at the last position after an outage. `newest`: start this many records before the end. `begin`: called
    with the ends; returns the offsets to start at. `complete`: awaited after each fetch once the initial content is
    read. `outdated`: called before a restart from the beginning, when known records may be deleted. `skipped` counts
    undecodable records or batches.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        topics: Sequence[str],
        take: Callable[[Fetched], Awaitable[None]],
        *,
        what: str,
        fetch_wait_ms: int,
        poll_ms: int = 1000,
        most: int | None = None,
        resumes: bool = True,
        newest: int | None = None,
        begin: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]] | None = None,
        complete: Callable[[], Awaitable[None]] | None = None,
        outdated: Callable[[], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.skipped = 0
        self._bootstrap = bootstrap
        self._topics = topics
        self._take = take
        self._what = what
        self._fetch_wait_ms = fetch_wait_ms
        self._poll_ms = poll_ms
        self._most = most
        self._resumes = resumes
        self._newest = newest
        self._begin = begin
        self._complete = complete
        self._outdated = outdated
        self._clock = clock or SystemClock()
        self._heard = self._answered = self._clock.now()
        self._positions: dict[TopicPartition, int] = {}
        self._first_ends: dict[TopicPartition, int] | None = None
        self._consumer: Any = None
        self._rewound: set[str] = set()
        self._replaced = False

    @property
    def loaded(self) -> bool:
        ends = self._first_ends
        return ends is not None and not any(self._is_behind(part, end) for part, end in ends.items())

    @property
    def connected(self) -> bool:
        return self._consumer is not None

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return self._positions

    @property
    def age_seconds(self) -> float:
        """Seconds since a broker last answered for the longest waiting partition, or since the start."""
        if (consumer := self._consumer) is not None:
            answered = [consumer.last_poll_timestamp(part) for part in consumer.assignment()]
            self._answered = min((ms / 1000 for ms in answered if ms), default=self._answered)
        return max(0.0, self._clock.now() - self._answered)

    def rewind(self, topic: str) -> None:
        """Read a topic from its beginning, after the current fetch."""
        self._rewound.add(topic)

    async def run(self) -> None:
        """Follow until cancelled. Each outage or failing `take` is logged once."""
        delays, reported = backoff(), False
        while True:
            followed_since = inf
            try:
                async with connected(self._make_consumer()) as consumer:
                    await self._seek(consumer)
                    followed_since = self._clock.monotonic()
                    self._consumer = consumer
                    await self._follow(consumer)
            except ConfigError as failure:  # it lasts until a person acts
                if not reported:
                    log.error("%s: %s", self._what, failure)
                    reported = True
            except Exception as failure:  # continue with the records so far
                if self._clock.monotonic() - followed_since > LONGEST_DELAY_SECONDS:
                    delays, reported = backoff(), False  # a new outage
                if not reported:
                    log.warning(
                        "%s cannot be followed on broker %s: %r; trying again", self._what, self._bootstrap, failure
                    )
                    reported = True
            finally:
                self._consumer = None
            await asyncio.sleep(next(delays))

    async def caught_up(self, timeout_seconds: float | None) -> bool:
        """Wait until the current content is read. Return False on time-out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                ends: dict[TopicPartition, int] | None = None
                while ends is None or any(self._is_behind(part, end) for part, end in ends.items()):
                    if ends is None and self._consumer is not None:
                        with contextlib.suppress(BrokerUnavailable, KafkaError, OSError):
                            ends = await self._present_ends(self._consumer)
                            continue
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return False
        return True

    async def _present_ends(self, consumer: Any) -> dict[TopicPartition, int]:
        if isinstance(consumer, RelayConsumer):
            return await _ends(consumer)
        # On the follower's connection Kafka answers only after the fetch that waits there.
        async with observer(self._bootstrap) as asking:
            return await end_offsets(asking, consumer.assignment())

    def _is_behind(self, part: TopicPartition, end: int) -> bool:
        """`end` is a lower bound on tansu (see `end_offsets`)."""
        newer = self._consumer.last_stable_offset(part) if self._consumer is not None else None
        return self._positions.get(part, 0) < max(end, newer or 0)

    def _is_shorter(self, ends: Mapping[TopicPartition, int]) -> bool:
        return any(self._positions.get(part, 0) > end for part, end in ends.items())

    def _too_long_away(self) -> bool:
        return self._clock.now() - self._heard > _MOST_AWAY_SECONDS

    def _make_consumer(self) -> Any:
        return make_consumer(
            self._bootstrap,
            *self._topics,
            fetch_max_wait_ms=self._fetch_wait_ms,
            metadata_max_age_ms=_METADATA_AGE_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )

    async def _seek(self, consumer: Any) -> None:
        if not self._resumes:
            self._positions.clear()
        if self._outdated is not None and self._too_long_away():
            self._positions.clear()
            self._outdated()
            self._heard = self._clock.now()
        ends = await _ends(consumer)
        if self._newest is not None or self._is_shorter(ends):
            # With a lower bound old records would be read twice.
            async with observer(self._bootstrap) as asking:
                ends = await end_offsets(asking, ends)
        if self._outdated is not None and self._is_shorter(ends):
            # All partitions were replaced, not only shorter ones.
            self._positions.clear()
            self._replaced, self._first_ends = True, None
        self._first_ends = ends if self._first_ends is None else self._first_ends
        if self._newest is not None:
            self._positions = {part: max(0, end - self._newest) for part, end in ends.items()}
            self._newest = None
        elif self._begin is not None and not self._positions:
            self._positions.update(self._begin(ends))
        for part, end in ends.items():
            position = self._positions.get(part, 0)
            if 0 < position <= end:
                consumer.seek(part, position)
            else:
                self._positions.pop(part, None)

    async def _follow(self, consumer: Any) -> None:
        idle_since = self._clock.monotonic()
        while True:
            fetched = await consumer.getmany(timeout_ms=self._poll_ms, max_records=self._most)
            check_place(consumer, self._bootstrap)
            if self._outdated is not None:
                if self._too_long_away():
                    # the process slept
                    raise BrokerUnavailable("the log was not read for days")
                if fetched and self._replaced:
                    self._replaced = False
                    self._outdated()  # old lore stays until the new log is filled
            read = {part: readable(records) for part, records in fetched.items()}
            await self._take({part: records for part, records in read.items() if records})
            self.skipped += sum(len(fetched[part]) - len(records) for part, records in read.items())
            self._heard = self._clock.now()
            for part, records in fetched.items():
                self._positions[part] = records[-1].offset + 1
            if self._complete is not None and self.loaded:
                await self._complete()
            if self._rewound:
                parts = [part for part in consumer.assignment() if part.topic in self._rewound]
                self._rewound.clear()
                for part in parts:
                    self._positions.pop(part, None)
                await consumer.seek_to_beginning(*parts)
            await asyncio.sleep(0)  # fetched records return without yielding to the event loop
            if fetched:
                idle_since = self._clock.monotonic()
            elif not isinstance(consumer, RelayConsumer) and (
                self._clock.monotonic() - idle_since > _REQUEST_TIMEOUT_MS / 1000
            ):
                # The client hides a lost connection. Asking for end offsets fails then, and shows a replaced log.
                idle_since = self._clock.monotonic()
                ends = await _ends(consumer)
                # Tansu returns the first offset of the last batch. The fetch's end is more exact.
                known = {part: max(end, consumer.last_stable_offset(part) or 0) for part, end in ends.items()}
                if self._is_shorter(known):
                    raise BrokerUnavailable("its log is shorter than before")


async def _ends(consumer: Any) -> dict[TopicPartition, int]:
    async with asyncio.timeout(_REQUEST_TIMEOUT_MS / 1000):
        ends: dict[TopicPartition, int] = await consumer.end_offsets(consumer.assignment())
        return ends
