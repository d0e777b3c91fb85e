"""Count the adapter versions that agents refused, as a metric to alert on: agents export no metrics.

Agents report on `adapters.acks` whether they run a version. The trainer follows these topics from their end at its
start. `fleetlore adapters show` lists earlier refusals.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from fleetlore.config import Settings
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics

# Refusals are not urgent, and each waiting fetch costs the broker some work.
_FETCH_WAIT_MS = 2_000
# The reasons of `AdapterRefused`. They bound the values of the label: clients control the acks.
REASONS = frozenset(
    [
        "foreign",
        "malformed",
        "missing",
        "not_allowed",
        "not_finite",
        "outranked",
        "oversized",
        "probe",
        "schema",
        "stale",
        "structure",
        "tampered",
        "truncated",
        "unknown_key",
        "unreachable",
        "unwritable",
    ]
)
_ACCEPTED = frozenset({"applied", "revoked"})


def refusal_of(ack: bytes | None) -> str | None:
    """Return the reason of a refusal, `other` if it is unknown; None for an ack of no refusal."""
    try:
        result = orjson.loads(ack or b"null")["result"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if not isinstance(result, str) or result in _ACCEPTED:
        return None
    return result if result in REASONS else "other"


async def count_refusals(settings: Settings, tenants: Iterable[str], metrics: Metrics) -> None:
    """Count until cancelled, across outages of the broker."""

    async def count(fetched: Fetched) -> None:
        for record in (record for records in fetched.values() for record in records):
            if (reason := refusal_of(record.value)) is not None:
                metrics.adapters_refused(reason).inc()

    names = [topic(tenant, "adapters.acks") for tenant in tenants]
    await Follower(settings.cluster, names, count, what="acks", fetch_wait_ms=_FETCH_WAIT_MS, newest=0).run()
