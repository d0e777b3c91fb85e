"""Summarize the stored knowledge of a tenant as counts and as one hash.

Two runs over the same events must give the same hash, whatever process died in between and however agents were
interleaved. So the hash covers ids and contents and leaves out all times, which say when something was seen and not
what is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import orjson

from sinks.collections import COLLECTIONS
from sinks.milvus import MilvusStore

_TIMES = frozenset({"first_seen", "last_seen", "agents_lately", "hours", "days", "by_agent"})


@dataclass(slots=True)
class Knowledge:
    """Contents of one tenant's collections.

    Attributes:
        patterns: counts by level, health rows (`tool`, `call`) included.
        items: counts by kind.
        judgments: (session, label, number of events behind it) of each.
        state_hash: 32 hex digits.
    """

    patterns: Counter[str] = field(default_factory=Counter)
    items: Counter[str] = field(default_factory=Counter)
    judgments: list[tuple[str, str, int]] = field(default_factory=list)
    state_hash: str = ""


async def read_knowledge(store: MilvusStore, tenant: str) -> Knowledge:
    """Read all rows of a tenant.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    knowledge = Knowledge()
    lines: list[bytes] = []
    for collection in COLLECTIONS:
        async for row in store.rows(collection.name, tenant, "body"):
            if not row["body"]:
                continue  # incomplete: an item that lacks a side, or feedback on a session that has not ended
            body = orjson.loads(row["body"])
            _count(knowledge, collection.name, body)
            content = {name: value for name, value in body.items() if name not in _TIMES}
            lines.append(orjson.dumps([collection.name, row["id"], content], option=orjson.OPT_SORT_KEYS))
    knowledge.state_hash = blake2b(b"\n".join(sorted(lines)), digest_size=16).hexdigest()
    return knowledge


def _count(knowledge: Knowledge, collection: str, body: dict[str, object]) -> None:
    match collection:
        case "patterns":
            knowledge.patterns[str(body["level"])] += 1
        case "items":
            knowledge.items[str(body["kind"])] += 1
        case _:
            knowledge.judgments.append((str(body["session"]), str(body["label"]), int(str(body["events"]))))


async def stale_keys(
    store: MilvusStore, tenant: str, newest: Mapping[str, Mapping[str, bytes | None]]
) -> dict[str, list[str]]:
    """Keys of the compacted topics whose newest record is not what the store has, times left out.

    Args:
        newest: by collection and key: the newest value on its topic. Agents read these, and never the store.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    stale: dict[str, list[str]] = {}
    for collection, values in newest.items():
        rows = {row["id"].partition("/")[2]: row["body"] async for row in store.rows(collection, tenant, "body")}
        stale[collection] = sorted(
            key for key in rows.keys() | values.keys() if _content(rows.get(key)) != _content(values.get(key))
        )
    return stale


def _content(body: str | bytes | None) -> dict[str, object] | None:
    return {name: value for name, value in orjson.loads(body).items() if name not in _TIMES} if body else None
