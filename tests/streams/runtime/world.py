"""A stage, a store and a producer whose every call a test can hold back or let fail."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleetlore.wire.dead_letter import RawRecord
from streams.stage.base import Effects, Outgoing, Record, TopicPartition

EVENTS = "fleetlore.acme.events"
PARTITION = TopicPartition(EVENTS, 0)


class World:
    """Store, producer and stage in one; notes the order of what happens. `outages` are raised first, one an attempt."""

    name = "sessions"
    reads = "events"
    principals = None

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.outages: dict[str, list[Exception]] = {}
        self.effects = Effects(
            rows={"items": [{"id": "acme/1", "tenant": "acme"}]},
            outgoing=[Outgoing("acme", "items", "1", b"{}")],
            dead_letters=[],
            processed=2,
        )
        self.dead_letters: list[RawRecord] = []
        self.held_back = 0

    def _happen(self, what: str) -> None:
        left = self.outages.get(what)
        if left:
            self.happened.append(f"{what} fails")
            raise left.pop(0)
        self.happened.append(what)

    async def process(self, batch: Sequence[Record]) -> Effects:
        self._happen("process")
        return self.effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        self._happen("allow")
        return next_offset - self.held_back

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        self._happen("upsert")

    async def resolve(self, collection: str) -> str:
        return collection

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        return {}

    async def deliver(self, values: Sequence[Outgoing], positions: Mapping[tuple[str, int], int]) -> None:
        self._happen("deliver")

    async def send(self, letters: Sequence[RawRecord]) -> None:
        self._happen("bury")
        self.dead_letters += letters


def record(offset: int, partition: int = 0, value: bytes = b"{}") -> Record:
    return Record(EVENTS, partition, offset, b"key", value, {})
