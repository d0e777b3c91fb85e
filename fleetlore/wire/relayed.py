"""Say what an agent and its relay send each other of the compacted topics, in MessagePack."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["ADAPTERS", "LORE", "Followed", "Following", "RelayedRecord"]

# What an agent follows: both sets are read by consumers of their own, at an agent as at a relay.
LORE = ("patterns", "items", "decisions")
ADAPTERS = ("adapters.weights", "adapters.manifests", "adapters.pointers")


class RelayedRecord(NamedTuple):
    """A record as the log has it; a topic goes by its last part."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None


class Following(msgspec.Struct):
    """What an agent asks.

    Attributes:
        topics: `LORE` or `ADAPTERS`.
        positions: by topic and partition the offset of the next record; 0 where it is left out.
        wait: seconds to wait for a record where there is none; 0 asks for the ends as of now, and no records.
    """

    topics: tuple[str, ...]
    positions: dict[str, dict[int, int]]
    wait: float


class Followed(msgspec.Struct):
    """What a relay answers.

    Attributes:
        ends: by topic and partition the offset after the last record that the relay has.
        records: from the positions on, those of a partition in order; the newest of each key at the least.
    """

    ends: dict[str, dict[int, int]]
    records: list[RelayedRecord]
