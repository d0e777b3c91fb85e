"""Define the topics. A name is `fleetlore.<tenant>.<topic>`: ACLs match by prefix and so keep tenants apart."""

from dataclasses import dataclass
from functools import lru_cache

from fleetlore.config import check_tenant
from fleetlore.errors import ConfigError

PREFIX = "fleetlore"

DAY_SECONDS = 86_400
_HOUR_SECONDS = 3_600
_HISTORY_DAYS = 5 * 365
TOMBSTONE_SECONDS = 7 * DAY_SECONDS
MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default; a cluster's may be lower


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic of every tenant.

    Attributes:
        key: meaning of a record's key, or `-` if only its partition matters.
        partitions: default: the setting.
        keyed: more partitions would split the records of a key.
    """

    name: str
    key: str
    compacted: bool
    retention_days: int | None
    holds: str
    partitions: int | None = None
    keyed: bool = True

    @property
    def kept(self) -> str:
        return "compacted" if self.compacted else f"{self.retention_days} days"

    def configs(self, replication: int) -> dict[str, str]:
        stated = {
            "cleanup.policy": "compact" if self.compacted else "delete",
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "min.insync.replicas": str(max(1, replication - 1)),
            # Clients' clocks differ: early timestamps are refused, late ones delete unread records.
            "message.timestamp.type": "LogAppendTime",
            # A replica that lacks acknowledged records may not lead.
            "unclean.leader.election.enable": "false",
        }
        if self.compacted:
            # Only closed segments are compacted: with Kafka's defaults (a week, 1 GiB) a starting agent would read days
            # of replaced counts. Tombstones stay a week, for absent readers. Erased records leave the log within a day
            # of the next write. Agents read without zstd, snappy and lz4, so the broker's `compression.type` must not
            # apply.
            stated |= {
                "compression.type": "producer",
                "segment.ms": str(_HOUR_SECONDS * 1000),
                "min.cleanable.dirty.ratio": "0.1",
                "delete.retention.ms": str(TOMBSTONE_SECONDS * 1000),
                "max.compaction.lag.ms": str(DAY_SECONDS * 1000),
            }
        if self.retention_days is not None:
            stated["retention.ms"] = str(self.retention_days * DAY_SECONDS * 1000)
        return stated


TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec("events", "session", False, 30, "events, one or a JSON array of them"),
    TopicSpec("feedback", "session", False, 30,
              "corrections of how a session ended; who may write here outranks rewards"),
    TopicSpec("observations", "-", False, 7, "what sessions saw of tools and patterns, cumulative"),
    TopicSpec("patterns", "pattern", True, None, "failure pattern or call health with counts"),
    TopicSpec("trajectories", "-", False, 30,
              "closed sessions: goal, steps, how they ended; corrections, and what a model said of them"),
    TopicSpec("judgments", "-", False, 30, "trajectories with a verdict"),
    TopicSpec("candidates", "-", False, 7, "what one session contributes to a memory item"),
    TopicSpec("items", "item", True, None, "memory items with lineage; tombstone = forgotten"),
    TopicSpec("erasures", "what is erased", True, None, "hashes of sessions and agents that were erased", partitions=1),
    TopicSpec("decisions", "what it is about", True, None,
              "what operators revoked, approved and wrote, and which agents they distrust: who, when and why",
              partitions=1),
    TopicSpec("decisions.history", "what it is about, and when", False, _HISTORY_DAYS,
              "every decision, in order, for an audit", partitions=1, keyed=False),
    TopicSpec("adapters", "adapter/sha256 of the weights", True, None,
              "one version: signed manifest, channel, epoch and weights; or a revocation", partitions=1),
    TopicSpec("adapters.acks", "adapter/agent", False, 7, "version, result, load time"),
    TopicSpec("dead-letters", "source record", False, 30, "the untouched bytes and why", keyed=False),
)  # fmt: skip
NAMES = frozenset(spec.name for spec in TOPICS)
ADAPTER_TOPICS = ("adapters",)


@lru_cache(maxsize=1024)
def topic(tenant: str, name: str) -> str:
    if name not in NAMES:
        raise ConfigError(f"no topic is called {name!r}; there are {', '.join(sorted(NAMES))}")
    return f"{PREFIX}.{check_tenant(tenant)}.{name}"


@lru_cache(maxsize=1024)
def tenant_of(full_name: str) -> str:
    """Raises ConfigError for a foreign name."""
    parts = full_name.split(".", 2)
    if len(parts) != 3 or parts[0] != PREFIX or parts[2] not in NAMES:
        raise ConfigError(f"{full_name!r} is not a topic of fleetlore")
    return check_tenant(parts[1])


def partition_for(key: str, partitions: int) -> int:
    """As the default (Java) partitioner does."""
    return 0 if partitions == 1 else _hash_of(key) % partitions


@lru_cache(maxsize=65_536)
def _hash_of(key: str) -> int:
    from aiokafka.partitioner import murmur2  # the command line lists topics before it needs a client

    return int(murmur2(key.encode("utf-8", "replace")) & 0x7FFFFFFF)
