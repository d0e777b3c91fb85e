"""Run Milvus Lite so that it keeps acknowledged rows, compacts on request and flushes searched collections.

`correct` corrects five faults of Milvus Lite 3.2.2. Rows reach the disk before they are acknowledged, and files before
their manifest: a power cut lost both. After a failed flush or log write the process ends: the next flush would delete
acknowledged rows. Requests run one by one, because two writes may share sequence numbers. A read during a flush is
repeated: it may miss a moving row. Compaction requests, which were ignored, rewrite a collection's files.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partialmethod, wraps
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any

import fleetlore.recall.without_pandas  # noqa: F401

# isort: split
from milvus_lite.adapter.grpc.servicer import MilvusServicer
from milvus_lite.cmdline import main
from milvus_lite.db import MilvusLite
from milvus_lite.engine.collection import Collection
from milvus_lite.storage.manifest import Manifest
from milvus_lite.storage.wal import WAL
from pymilvus.grpc_gen import common_pb2, milvus_pb2

from fleetlore.recall.search import connect, message_of, milvus_errors
from sinks.collections import COLLECTIONS

log = logging.getLogger(__name__)

# A flush costs 0.3 ms of CPU a row, so flush rows that change often once.
_FLUSH_SECONDS = 60.0
_TIMEOUT_SECONDS = 30.0

_Method = Callable[..., Any]


def correct() -> None:
    opening, writing = RLock(), RLock()
    for name in ("get_collection", "create_collection", "drop_collection"):
        setattr(MilvusLite, name, _in_turn(getattr(MilvusLite, name), opening))
    for name in ("insert", "delete"):
        setattr(Collection, name, _in_turn(getattr(Collection, name), writing))
    for name in ("get", "query", "search"):
        setattr(Collection, name, _of_one_state(getattr(Collection, name)))
    Collection._trigger_flush = _in_turn(_at_rest(_or_end(Collection._trigger_flush, Exception)), writing)
    # The log may hold half a batch, where a replay stops and loses later rows.
    Collection._apply = _or_end(Collection._apply, OSError, MemoryError)
    WAL.__init__ = partialmethod(WAL.__init__, sync_mode="batch")
    Manifest.save = _after_its_files(Manifest.save)
    MilvusServicer.ManualCompaction = _manual_compaction


def _in_turn(method: _Method, lock: RLock) -> _Method:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        with lock:
            return method(*arguments, **options)

    return call


def _of_one_state(read: _Method) -> _Method:
    @wraps(read)
    def call(collection: Any, *arguments: Any, **options: Any) -> Any:
        while True:
            memtable = collection._memtable
            found = read(collection, *arguments, **options)
            if collection._memtable is memtable:
                return found

    return call


def _at_rest(flush: _Method) -> _Method:
    @wraps(flush)
    def call(collection: Any) -> None:
        # The lock makes readers wait until flushed rows are visible in the new file.
        with collection._maintenance_lock:
            flush(collection)

    return call


def _or_end(write: _Method, *errors: type[Exception]) -> _Method:
    @wraps(write)
    def call(collection: Any, *operation: Any) -> None:
        try:
            write(collection, *operation)
        except errors as error:
            message = "collection %s cannot be written, so Milvus ends; its next start replays its log: %s"
            log.critical(message, collection.name, error)
            os._exit(os.EX_IOERR)

    return call


def _after_its_files(save: _Method) -> _Method:
    @wraps(save)
    def call(manifest: Any) -> None:
        # The logs or files that the new files replace are deleted next.
        for path in Path(manifest._data_dir, "partitions").rglob("*"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        save(manifest)

    return call


def _manual_compaction(servicer: Any, request: Any, context: Any) -> Any:
    database = servicer._database_name(request, context)
    collection = servicer._db.get_collection(request.collection_name, database_name=database)
    collection.flush()
    # The maintenance thread runs one job at a time.
    collection._bg_executor.submit(_rewrite, collection).result()
    return milvus_pb2.ManualCompactionResponse(status=common_pb2.Status())


def _rewrite(collection: Any) -> None:
    manifest, manager = collection._manifest, collection._compaction_mgr
    with collection._maintenance_lock:
        for partition in manifest.list_partitions():
            if files := list(manifest.get_data_files(partition)):
                folder = os.path.join(collection._data_dir, "partitions", partition)
                manager._compact_files(partition, folder, files, manifest, collection._delta_index)
        # No file holds deleted rows any more: delta files are obsolete.
        manager._gc_delta_files(manifest, manifest.current_seq + 1)
        collection._refresh_segment_cache()
        collection._cleanup_orphan_index_files()
    collection._ensure_loaded_segments_indexed()


def keep_searchable(address: str, stopped: Event, every_seconds: float = _FLUSH_SECONDS) -> None:
    """Flush the collections with full-text search, until stopped.

    A search weighs each unflushed row at 0.13 ms of CPU, and Milvus Lite flushes only at 128 MiB.
    """
    while not stopped.wait(every_seconds):
        try:
            with closing(connect(address, "", _TIMEOUT_SECONDS)) as client:
                for collection in (each.name for each in COLLECTIONS if each.by_words):
                    client.flush(collection, _TIMEOUT_SECONDS)
        except milvus_errors() as error:
            log.warning("the collections were not flushed: %s", message_of(error))


class _NoPandas:
    """Refuse to import pandas, which costs pyarrow 25 MB needlessly. It takes a `None` of `sys.modules` for pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoPandas)
    correct()
    address = f"http://127.0.0.1:{sys.argv[sys.argv.index('--port') + 1]}"
    # A store client in the supervisor would cost 50 MB.
    Thread(target=keep_searchable, args=(address, Event()), daemon=True).start()
    sys.exit(main())
