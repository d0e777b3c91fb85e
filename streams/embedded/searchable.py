"""Flush the embedded Milvus now and then: it weighs the words of rows that are not flushed anew for each search.

That is 0.13 ms of CPU a row, and Milvus Lite by itself flushes at 128 MiB: a search of 10,000 items took 1.3 s of CPU,
and takes 0.1 s.
"""

from __future__ import annotations

import asyncio
import logging

from fleetlore.config import Settings
from fleetlore.store.connection import connect, message_of, milvus_errors
from sinks.collections import COLLECTIONS

log = logging.getLogger(__name__)

# A flush costs Milvus Lite some 0.3 ms of CPU a row; of rows that are written again and again it needs the last alone.
_FLUSH_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0


async def keep_searchable(settings: Settings, every_seconds: float = _FLUSH_SECONDS) -> None:
    """Flush what is searched, until cancelled. A flush that fails is tried again with the next."""
    client = await asyncio.to_thread(connect, settings.milvus, settings.milvus_token, _TIMEOUT_SECONDS)
    try:
        while True:
            await asyncio.sleep(every_seconds)
            for collection in (each.name for each in COLLECTIONS if each.by_words):
                try:
                    await asyncio.to_thread(client.flush, collection, _TIMEOUT_SECONDS)
                except milvus_errors() as error:
                    log.warning("the collection %s was not flushed: %s", collection, message_of(error))
    finally:
        client.close()
