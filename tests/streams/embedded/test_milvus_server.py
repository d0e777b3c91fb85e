"""Milvus Lite, as the stack runs it, keeps what it acknowledged, answers of one state, and flushes what is searched."""

import asyncio
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from milvus_lite.adapter.grpc.servicer import MilvusServicer
from milvus_lite.db import MilvusLite
from milvus_lite.engine.collection import Collection
from milvus_lite.schema.types import CollectionSchema, DataType, FieldSchema
from milvus_lite.storage.manifest import Manifest
from milvus_lite.storage.wal import WAL

from fleetlore.errors import StoreUnavailable
from fleetlore.recall.encoder import shared_encoder
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.broker import free_port
from streams.embedded.child import Child
from streams.embedded.milvus_server import _rewrite, correct, keep_searchable
from streams.embedded.stack import milvus_command


class Server:
    """Milvus Lite on a folder, and a store that uses it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.store = MilvusStore(f"http://127.0.0.1:{port}", "", shared_encoder(), Metrics("test"))
        self._child = Child("milvus", milvus_command(folder / "milvus", port), folder)

    async def start(self) -> None:
        await self._child.start()
        await self.store.open_within(120)

    async def stop(self) -> None:
        await self._child.stop()
        await self.store.close()

    async def ended(self) -> int:
        async with asyncio.timeout(120):
            return await self._child.ended()

    def files_end_at(self, size: int) -> None:
        """Let each write behind `size` bytes of a file fail, as all do on a full disk."""
        resource.prlimit(self._process(), resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def mapped_files(self) -> str:
        return Path(f"/proc/{self._process()}/maps").read_text()

    def _process(self) -> int:
        (process,) = psutil.Process(self._child.pid).children()
        return process.pid

    async def write(self, *numbers: int) -> None:
        columns = {"tenant": "a", "level": "class", "tool": "t", "error_class": "E", "body": "x" * 2_000, "text": "t"}
        await self.store.upsert("patterns", [{"id": f"a/{number}", **columns} for number in numbers])

    async def flush(self) -> None:
        await self.store.on_client(lambda client: client.flush("patterns", timeout=120))

    async def numbers(self) -> list[int]:
        return sorted([int(row["id"][2:]) async for row in self.store.rows("patterns", "a", "body")])


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    server = Server(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.long
@pytest.mark.parametrize("fails", ["flush", "log"])
async def test_what_was_acknowledged_outlives_a_full_disk(tmp_path: Path, fails: str) -> None:
    async with serving(tmp_path) as server:
        await server.write(*range(500))
        server.files_end_at(4_096)
        with pytest.raises(StoreUnavailable):
            await (server.flush() if fails == "flush" else server.write(500))
        assert await server.ended() == os.EX_IOERR
        assert "cannot be written, so Milvus ends" in (tmp_path / "milvus.log").read_text()
        await server.start()
        await server.write(501)
        await server.flush()
        assert [each for each in await server.numbers() if each != 500] == [*range(500), 501]
    async with serving(tmp_path) as server:
        assert [each for each in await server.numbers() if each != 500] == [*range(500), 501]


@pytest.mark.long
async def test_the_server_loads_no_pandas_for_its_rows(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.write(1, 2)
        await server.flush()
        assert await server.numbers() == [1, 2]
        assert "pyarrow" in server.mapped_files()
        assert "pandas" not in server.mapped_files()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MilvusLite]:
    for owner in (MilvusServicer, MilvusLite, Collection, Manifest, WAL):  # restored after the test
        for name in ("ManualCompaction", "get_collection", "create_collection", "drop_collection", "insert", "delete",
                     "get", "query", "search", "_trigger_flush", "_apply", "save", "__init__"):  # fmt: skip
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, getattr(owner, name))
    correct()
    id = FieldSchema("id", DataType.VARCHAR, is_primary=True, max_length=16)
    engine = MilvusLite(str(tmp_path / "milvus"))
    engine.create_collection("rows", CollectionSchema([id, FieldSchema("near", DataType.FLOAT_VECTOR, dim=2)]))
    yield engine
    engine.close()


def row(id: str) -> dict[str, Any]:
    return {"id": id, "near": [1.0, 0.0]}


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Bytes of each file (inode) that a power cut leaves."""
    sizes, sync = dict[int, int](), os.fsync

    def fsync(descriptor: int) -> None:
        file = os.fstat(descriptor)
        sizes[file.st_ino] = file.st_size
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return sizes


@pytest.mark.parametrize("last", ["write", "flush", "compaction"])
def test_what_was_acknowledged_outlives_a_power_cut(
    on_disk: dict[int, int], engine: MilvusLite, tmp_path: Path, last: str
) -> None:
    rows = engine.get_collection("rows")
    for id in ("a", "b", "c"):
        rows.insert([row(id)])
        if last != "write":
            rows.flush()
    rows.delete(["c"])
    if last == "compaction":
        rows.flush()
        _rewrite(rows)

    def cut(source: str, target: str) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[: on_disk.get(os.stat(source).st_ino, 0)])

    shutil.copytree(tmp_path / "milvus", tmp_path / "after", copy_function=cut)
    after = MilvusLite(str(tmp_path / "after"))
    assert {each["id"] for each in after.get_collection("rows").query()} == {"a", "b"}
    after.close()


class Beside:
    """A thread that `start` starts once and waits for, in vain if the thread has to wait for its caller."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._thread, self._started = Thread(target=work), False

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()
            self._thread.join(0.2)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("reader", ["get", "query"])
def test_a_read_that_overlaps_a_flush_sees_every_row(
    engine: MilvusLite, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    rows = engine.get_collection("rows")
    rows.insert([row("a")])
    snapshot = rows._read_snapshot

    def flushed_meanwhile() -> Any:
        found = snapshot()
        rows.flush()
        return found

    monkeypatch.setattr(rows, "_read_snapshot", flushed_meanwhile)
    assert [each["id"] for each in (rows.get(["a"]) if reader == "get" else rows.query())] == ["a"]


def test_two_writes_at_once_take_turns(engine: MilvusLite, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, applied = engine.get_collection("rows"), list[str]()
    build, apply = rows._build_wal_data_batch, rows._apply
    second = Beside(lambda: rows.insert([row("b")]))

    def slow(records: Any, *others: Any) -> Any:
        second.start()
        return build(records, *others)

    monkeypatch.setattr(rows, "_build_wal_data_batch", slow)
    monkeypatch.setattr(rows, "_apply", lambda each: (applied.extend(each.batch.column("id").to_pylist()), apply(each)))
    rows.insert([row("a")])
    second.join()
    assert applied == ["a", "b"]
    assert {each["id"] for each in rows.query()} == {"a", "b"}


def test_a_collection_is_opened_once(engine: MilvusLite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.close()
    again, opened = MilvusLite(str(tmp_path / "milvus")), list[Any]()
    second = Beside(lambda: opened.append(again.get_collection("rows")))
    open_ = Collection.__init__

    def slow(*arguments: Any, **options: Any) -> None:
        second.start()
        open_(*arguments, **options)

    monkeypatch.setattr(Collection, "__init__", slow)
    opened.append(again.get_collection("rows"))
    second.join()
    assert opened[0] is opened[1] is again.get_collection("rows")
    again.close()


@pytest.mark.long
async def test_what_is_searched_is_flushed(own_milvus: str, milvus_folder: Path) -> None:
    store = MilvusStore(own_milvus, "", shared_encoder(), Metrics("test"))
    await store.open()
    await store.upsert("items", [{"id": "a/1", "tenant": "a", "body": "{}", "text": "no such table"}])
    assert not list(milvus_folder.rglob("*.parquet"))
    stopped = Event()
    flushing = asyncio.create_task(asyncio.to_thread(keep_searchable, own_milvus, stopped, 0.05))
    async with asyncio.timeout(120):
        while not list(milvus_folder.rglob("*.parquet")):
            await asyncio.sleep(0.05)
    stopped.set()
    await flushing
    await store.close()
