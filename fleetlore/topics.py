"""Topics: their names, how they are kept, and which partition a key goes to.

A name is `fleetlore.<tenant>.<topic>`, so that a broker's ACLs, which match by prefix, keep tenants apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from fleetlore.errors import ConfigError

PREFIX = "fleetlore"
DEFAULT_TENANT = "default"

# No dot: it separates the parts of a topic's name, so `a.b` could read the topics of a tenant `a`.
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic of every tenant.

    Attributes:
        name: the last part of the topic's name.
        key: what a record's key is; `-` where a record holds several values and its partition says it all.
        compacted: the newest value of each key is kept for ever; an empty value (a tombstone) deletes the key.
        retention_days: how long a record is kept where the topic is not compacted.
        holds: what the value is, for the documentation.
    """

    name: str
    key: str
    compacted: bool
    retention_days: int | None
    holds: str


TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec("events", "session", False, 30, "events, one or a JSON array of them"),
    TopicSpec("observations", "-", False, 7, "what sessions saw of tools and patterns, cumulative"),
    TopicSpec("patterns", "pattern", True, None, "failure pattern or call health with counts and hint"),
    TopicSpec("trajectories", "-", False, 30, "closed sessions: goal, steps, how they ended"),
    TopicSpec("judgments", "-", False, 30, "trajectories with a verdict"),
    TopicSpec("candidates", "-", False, 7, "what one session contributes to a memory item"),
    TopicSpec("items", "item", True, None, "memory items with lineage; tombstone = forgotten"),
    TopicSpec("adapters.weights", "sha256 of the weights", True, None, "raw safetensors"),
    TopicSpec("adapters.manifests", "adapter/version", True, None, "signed manifest"),
    TopicSpec("adapters.pointers", "adapter/channel", True, None, "which version this channel runs, epoch"),
    TopicSpec("adapters.acks", "agent", False, 7, "version, probe result, load time"),
    TopicSpec("dead-letters", "source record", False, 30, "the untouched bytes and why"),
)
NAMES = frozenset(spec.name for spec in TOPICS)


def check_tenant(tenant: str) -> str:
    """Return `tenant` unchanged.

    Raises:
        ConfigError: it is not 1–63 of `a-z 0-9 _ -`, beginning with a letter or digit.
    """
    if not _TENANT.match(tenant):
        raise ConfigError(
            f"tenant {tenant!r} must be 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit"
        )
    return tenant


@lru_cache(maxsize=1024)
def topic(tenant: str, name: str) -> str:
    """Full name of the tenant's topic `name`."""
    if name not in NAMES:
        raise ConfigError(f"no topic is called {name!r}; there are {', '.join(sorted(NAMES))}")
    return f"{PREFIX}.{check_tenant(tenant)}.{name}"


@lru_cache(maxsize=1024)
def tenant_of(full_name: str) -> str:
    """Tenant of a topic's full name.

    Raises:
        ConfigError: the name is not one of fleetlore's.
    """
    parts = full_name.split(".", 2)
    if len(parts) != 3 or parts[0] != PREFIX or parts[2] not in NAMES:
        raise ConfigError(f"{full_name!r} is not a topic of fleetlore")
    return check_tenant(parts[1])


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 (seed 0x9747b28c), as every Kafka client computes it for a key. Unsigned."""
    length = len(data)
    h = 0x9747B28C ^ length
    cut = length & ~3
    for i in range(0, cut, 4):
        k = (data[i] | data[i + 1] << 8 | data[i + 2] << 16 | data[i + 3] << 24) * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = (h * 0x5BD1E995 & 0xFFFFFFFF) ^ k
    for shift in range(length - cut - 1, -1, -1):
        h ^= data[cut + shift] << 8 * shift
    if length > cut:
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15


@lru_cache(maxsize=65_536)
def partition_for(key: str, partitions: int) -> int:
    """Partition of a key, the same that any Kafka client with the default (Java) partitioner picks.

    Cached, because a session sends many events and murmur2 in Python costs some microseconds.
    """
    return (murmur2(key.encode("utf-8", "replace")) & 0x7FFFFFFF) % partitions
