"""Rows of the embedded Milvus are flushed while the stack runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

from fleetlore.retrieval.encoder import shared_encoder
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.milvus_server import keep_searchable


async def test_what_is_searched_is_flushed(own_milvus: str, tmp_path: Path) -> None:
    store = MilvusStore(own_milvus, "", shared_encoder(), Metrics("test"))
    await store.open()
    await store.upsert("items", [{"id": "a/1", "tenant": "a", "body": "{}", "text": "no such table"}])
    assert not list(tmp_path.rglob("*.parquet"))
    stopped = Event()
    flushing = asyncio.create_task(asyncio.to_thread(keep_searchable, own_milvus, stopped, 0.05))
    async with asyncio.timeout(60):
        while not list(tmp_path.rglob("*.parquet")):
            await asyncio.sleep(0.05)
    stopped.set()
    await flushing
    await store.close()
