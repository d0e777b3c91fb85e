"""Read what operators decide from a small compacted topic: all of it at the start, then each new record."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from fleetlore.clock import Clock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.topics import tenant_of, topic

__all__ = ["OperatorTopic"]

log = logging.getLogger(__name__)

_READ_SECONDS = 30.0


class OperatorTopic(ABC):
    """What operators decided on one topic, by tenant.

    Attributes:
        topic: the last part of its name.
    """

    topic: ClassVar[str]

    @abstractmethod
    def decode(self, tenant: str, value: bytes) -> None:
        """Take in a record's value.

        Raises:
            ValueError: it is none of the topic's.
        """

    def take(self, tenant: str, value: bytes | None) -> None:
        """Take in a record; what cannot be read is logged."""
        if value is None:
            return
        try:
            self.decode(tenant, value)
        except ValueError as error:
            log.warning("a record of %s of tenant %s cannot be read: %s", self.topic, tenant, error)

    async def read(self, bootstrap: Bootstrap, tenants: Iterable[str]) -> None:
        """Take in all that the topics hold now.

        Raises:
            BrokerUnavailable: they cannot be read.
        """
        for record in await read_to_end(bootstrap, self._topics(tenants), _READ_SECONDS):
            self.take(tenant_of(record.topic), record.value)

    async def follow(self, bootstrap: Bootstrap, tenants: Iterable[str], clock: Clock, fetch_wait_ms: int) -> None:
        """Take in what comes, until cancelled, across outages."""

        async def take(fetched: Fetched) -> None:
            for part, records in fetched.items():
                for record in records:
                    self.take(tenant_of(part.topic), record.value)

        await Follower(
            bootstrap, self._topics(tenants), take, what=self.topic, fetch_wait_ms=fetch_wait_ms, clock=clock
        ).run()

    def _topics(self, tenants: Iterable[str]) -> list[str]:
        return [topic(tenant, self.topic) for tenant in tenants]
