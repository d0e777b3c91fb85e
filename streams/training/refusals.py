"""What agents refused of the adapter topics, counted where it can be alerted on: an agent exports no metrics.

Agents tell on `adapters.acks` what came of a version, and the trainer reads along, from where the topics end when it starts: what was
refused before it is told by `fleetlore adapters show`.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from fleetlore.config import Settings
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics

# Nothing hurries, and each fetch that waits costs the broker something.
FETCH_WAIT_MS = 2_000
# Those of `AdapterRefused`. Whoever may write acks must not be able to make series of what comes to his mind.
REASONS = frozenset(
    [
        "foreign",
        "malformed",
        "missing",
        "not_allowed",
        "not_finite",
        "oversized",
        "probe",
        "schema",
        "stale",
        "structure",
        "tampered",
        "truncated",
        "unknown_key",
        "unreachable",
    ]
)
FINE = frozenset({"applied", "revoked"})


def refusal_of(ack: bytes | None) -> str | None:
    """The reason that an ack gives for a refusal, `other` where it is none of ours; None where nothing was refused."""
    try:
        result = orjson.loads(ack or b"null")["result"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if not isinstance(result, str) or result in FINE:
        return None
    return result if result in REASONS else "other"


async def count_refusals(
    settings: Settings, tenants: Iterable[str], metrics: Metrics, fetch_wait_ms: int = FETCH_WAIT_MS
) -> None:
    """Count until cancelled, also over outages of the broker."""

    async def count(fetched: Fetched) -> None:
        for record in (record for records in fetched.values() for record in records):
            if (reason := refusal_of(record.value)) is not None:
                metrics.adapters_refused(reason).inc()

    names = [topic(tenant, "adapters.acks") for tenant in tenants]
    follower = Follower(settings.broker, names, count, what="acks", fetch_wait_ms=fetch_wait_ms, from_end=True)
    await follower.run()
