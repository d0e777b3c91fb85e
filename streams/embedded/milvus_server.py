"""Run Milvus Lite with a compaction that does what it is asked to, and what is searched flushed now and then.

As it comes, Milvus Lite answers a request to compact and does nothing: it merges four files of like size where there
are four, so in a small store rows that were deleted or replaced lie in its files for months, and erased ones with them.
Here a request rewrites all files of a collection without them. Its own code does so, one partition at a time in memory.
"""

from __future__ import annotations

import logging
import os
import sys
from threading import Event, Thread
from typing import Any

from milvus_lite.adapter.grpc.servicer import MilvusServicer
from milvus_lite.cmdline import main
from pymilvus.grpc_gen import common_pb2, milvus_pb2

from fleetlore.store.connection import connect, message_of, milvus_errors
from sinks.collections import COLLECTIONS

log = logging.getLogger(__name__)

# A flush costs Milvus Lite some 0.3 ms of CPU a row; of rows that are written again and again it needs the last alone.
_FLUSH_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0


def _manual_compaction(servicer: Any, request: Any, context: Any) -> Any:
    database = servicer._database_name(request, context)
    collection = servicer._db.get_collection(request.collection_name, database_name=database)
    collection.flush()
    # The thread of its own maintenance does one thing after the other.
    collection._bg_executor.submit(_rewrite, collection).result()
    return milvus_pb2.ManualCompactionResponse(status=common_pb2.Status())


def _rewrite(collection: Any) -> None:
    manifest, manager = collection._manifest, collection._compaction_mgr
    with collection._maintenance_lock:
        for partition in manifest.list_partitions():
            if files := list(manifest.get_data_files(partition)):
                folder = os.path.join(collection._data_dir, "partitions", partition)
                manager._compact_files(partition, folder, files, manifest, collection._delta_index)
        # No file holds a deleted row now, so what says which were deleted, by their ids, has nothing left to say.
        manager._gc_delta_files(manifest, manifest.current_seq + 1)
        collection._refresh_segment_cache()
        collection._cleanup_orphan_index_files()
    collection._ensure_loaded_segments_indexed()


def keep_searchable(address: str, stopped: Event, every_seconds: float = _FLUSH_SECONDS) -> None:
    """Flush what is searched, until stopped. A flush that fails is tried again with the next.

    Milvus Lite weighs the words of rows that are not flushed anew for each search, at 0.13 ms of CPU a row, and by
    itself it flushes at 128 MiB: a search of 10,000 items took 1.3 s of CPU, and takes 0.1 s.
    """
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


if __name__ == "__main__":
    MilvusServicer.ManualCompaction = _manual_compaction
    address = f"http://127.0.0.1:{sys.argv[sys.argv.index('--port') + 1]}"
    # Here, and not in `fleetlore up`: a process that supervises needs no client of a store, which takes 50 MB.
    Thread(target=keep_searchable, args=(address, Event()), daemon=True).start()
    sys.exit(main())
