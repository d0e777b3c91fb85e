"""Flush the embedded Milvus now and then: it weighs the words of rows that are not flushed anew for each search.

That is 0.13 ms of CPU a row, and Milvus Lite by itself flushes at 128 MiB: a search of 10,000 items took 1.3 s of CPU,
and takes 0.1 s.
"""

from __future__ import annotations

import logging
from threading import Event

from fleetlore.store.connection import connect, message_of, milvus_errors
from sinks.collections import COLLECTIONS

log = logging.getLogger(__name__)

# A flush costs Milvus Lite some 0.3 ms of CPU a row; of rows that are written again and again it needs the last alone.
_FLUSH_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0


def keep_searchable(address: str, stopped: Event, every_seconds: float = _FLUSH_SECONDS) -> None:
    """Flush what is searched, until stopped. A flush that fails is tried again with the next."""
    while not stopped.wait(every_seconds):
        try:
            client = connect(address, "", _TIMEOUT_SECONDS)
            try:
                for collection in (each.name for each in COLLECTIONS if each.by_words):
                    client.flush(collection, _TIMEOUT_SECONDS)
            finally:
                client.close()
        except milvus_errors() as error:
            log.warning("the collections were not flushed: %s", message_of(error))
