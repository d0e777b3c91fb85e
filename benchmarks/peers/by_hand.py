"""Do the worker's roles as one would write them by hand in an afternoon, with aiokafka and pymilvus: `BROKER MILVUS`,
until SIGTERM.

Sessions in a dictionary, error signatures by a few regular expressions, the reward as the judge, a lesson from a
failure and a recovery from an error that was overcome; judgments, patterns and items go to Milvus by upsert and the
last two to agents as well. It redacts nothing, drops what is malformed, counts an event that arrives twice twice,
forgets open sessions when it dies, and knows no second worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from pymilvus import DataType, MilvusClient

from fleetlore.recall.encoder import shared_encoder

PREFIX = "fleetlore.default."
GROUP = "by-hand"
COLLECTION = "by_hand_"
TOOL, ARGUMENTS, RESULT = "gen_ai.tool.name", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
ROWS_PER_CALL = 1_000
MASKS = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{12,}\b"), "<id>"),
    (re.compile(r"(?:/[\w.\-]+){2,}"), "<path>"),
    (re.compile(r"\b\d+\b"), "<n>"),
)


def signature(tool: str, error: str) -> tuple[str, str]:
    """(id, template) of an error."""
    template = error[:500]
    for mask, name in MASKS:
        template = mask.sub(name, template)
    return hashlib.blake2b(f"{tool}\x1f{template}".encode(), digest_size=16).hexdigest(), template


class ByHand:
    def __init__(self, milvus: str) -> None:
        self._client = MilvusClient(uri=milvus)
        self._encoder = shared_encoder()
        self._sessions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._patterns: dict[str, dict[str, Any]] = {}
        self._agents: dict[str, set[str]] = defaultdict(set)
        self._items: dict[str, dict[str, Any]] = {}
        for name in (f"{COLLECTION}patterns", f"{COLLECTION}judgments", f"{COLLECTION}items"):
            if not self._client.has_collection(name):
                schema = self._client.create_schema(auto_id=False)
                schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1100)
                schema.add_field("body", DataType.VARCHAR, max_length=65_535)
                schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._encoder.dimensions)
                index = self._client.prepare_index_params()
                index.add_index("vector", index_type="AUTOINDEX", metric_type="COSINE")
                self._client.create_collection(name, schema=schema, index_params=index)
            self._client.load_collection(name)

    def take(self, events: list[dict[str, Any]]) -> dict[str, dict[str, tuple[bytes, str]]]:
        """Rows that have changed: collection → id → (body, text to embed)."""
        changed: dict[str, dict[str, tuple[bytes, str]]] = {"patterns": {}, "judgments": {}, "items": {}}
        for event in events:
            session, data = event["session"], event["data"]
            steps = self._sessions[session]
            kind = event["type"].split(".", 2)[2]
            if kind.startswith("outcome"):
                self._observe(event, data, changed["patterns"])
            steps.append(data)
            if kind.startswith("session.ended"):
                del self._sessions[session]
                self._judge(session, event["agent"], steps, changed)
        return changed

    def _observe(self, event: dict[str, Any], data: dict[str, Any], changed: dict[str, tuple[bytes, str]]) -> None:
        tool, error = data[TOOL], data.get("error.message") or ""
        id, template = signature(tool, error) if error else (f"tool-{tool}", "")
        data["signature"] = id if error else None
        pattern = self._patterns.setdefault(id, {"id": id, "tool": tool, "template": template, "calls": 0})
        pattern["calls"] += 1
        self._agents[id].add(event["agent"])
        changed[id] = orjson.dumps(pattern | {"agents": len(self._agents[id])}), f"{tool} {template}"

    def _judge(
        self, session: str, agent: str, steps: list[dict[str, Any]], changed: dict[str, dict[str, tuple[bytes, str]]]
    ) -> None:
        start, end = steps[0], steps[-1]
        goal, task = start.get("fleetlore.goal") or "", start.get("fleetlore.task") or ""
        label = end.get("fleetlore.outcome", "unknown")
        calls = [step for step in steps if TOOL in step]
        digest = [[call[TOOL], str(call.get(ARGUMENTS))[:500], call.get("error.message")] for call in calls]
        body = orjson.dumps({"agent": agent, "task": task, "label": label, "steps": digest[-40:]})
        changed["judgments"][session] = body, f"{goal} {task}"
        failed = [call for call in calls if call["signature"]]
        if label == "failure" and failed:
            self._learn("lesson", failed[-1], None, changed["items"])
        elif label == "success":
            for call, following in pairwise(calls):
                if call["signature"] and not following["signature"] and call[TOOL] == following[TOOL]:
                    self._learn("recovery", call, following, changed["items"])

    def _learn(
        self, kind: str, failed: dict[str, Any], fix: dict[str, Any] | None, changed: dict[str, tuple[bytes, str]]
    ) -> None:
        id = f"{kind}-{failed['signature']}"
        item = self._items.setdefault(id, {"id": id, "kind": kind, "tool": failed[TOOL], "support": 0})
        item["support"] += 1
        item["error"] = failed["error.message"][:500]
        item["remedy"] = str(fix.get(ARGUMENTS))[:1000] if fix else None
        changed[id] = orjson.dumps(item), f"{item['tool']} {item['error']}"

    def upsert(self, changed: dict[str, dict[str, tuple[bytes, str]]]) -> None:
        for name, rows in changed.items():
            ids = list(rows)
            for start in range(0, len(ids), ROWS_PER_CALL):
                part = ids[start : start + ROWS_PER_CALL]
                vectors = self._encoder.encode([rows[id][1] for id in part])
                self._client.upsert(
                    f"{COLLECTION}{name}",
                    [
                        {"id": id, "body": rows[id][0].decode(), "vector": vector}
                        for id, vector in zip(part, vectors, strict=True)
                    ],
                )


async def main(broker: str, milvus: str) -> None:
    roles = ByHand(milvus)
    producer = AIOKafkaProducer(bootstrap_servers=broker, acks="all", linger_ms=5)
    await producer.start()
    consumer = AIOKafkaConsumer(
        f"{PREFIX}events",
        bootstrap_servers=broker,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    while True:
        fetched = await consumer.getmany(timeout_ms=200, max_records=256)
        if not fetched:
            continue
        events = [event for records in fetched.values() for record in records for event in orjson.loads(record.value)]
        changed = roles.take(events)
        await asyncio.to_thread(roles.upsert, changed)
        await publish(producer, ((name, changed[name]) for name in ("patterns", "items")))
        await consumer.commit({TopicPartition(*tp): records[-1].offset + 1 for tp, records in fetched.items()})


async def publish(producer: Any, changed: Iterable[tuple[str, dict[str, tuple[bytes, str]]]]) -> None:
    sent = [
        await producer.send(f"{PREFIX}{name}", body, key=id.encode())
        for name, rows in changed
        for id, (body, _) in rows.items()
    ]
    await asyncio.gather(*sent)


asyncio.run(main(sys.argv[1], sys.argv[2]))
