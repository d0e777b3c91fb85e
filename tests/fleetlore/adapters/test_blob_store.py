"""Weights in a shared folder, or in an object store behind the protocol of S3."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from tests.random_adapters import manifest_for, random_weights
from tests.rows import for_each

WEIGHTS = random_weights(1)
MANIFEST = manifest_for(WEIGHTS, "acme")
VERSION = MANIFEST.version


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that answers like AWS S3."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    running = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def agent_host(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The variables that AWS' own clients take, and no client that knows those of another test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "agent")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(agent_host: None) -> str:
    import s3fs

    files = s3fs.S3FileSystem()
    if not files.exists("fleet"):
        files.mkdir("fleet")
    return "s3://fleet/adapters"


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def blob_store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A shared folder, the double of an object store, and an object store."""
    match request.param:
        case "file":
            return BlobStore(f"file://{tmp_path}/adapters")
        case "memory":
            return BlobStore(f"memory://{tmp_path.name}")
    return BlobStore(request.getfixturevalue("bucket"))


def refused(blob_store: BlobStore, uri: str, manifest: LanguageModelManifest = MANIFEST) -> str:
    with pytest.raises(AdapterRefused) as found:
        blob_store.fetch(uri, manifest)
    return found.value.reason


def test_weights_that_find_no_room_leave_those_that_were_there(tmp_path: Path) -> None:
    blob_store = BlobStore(f"file://{tmp_path}/adapters")
    uri = blob_store.put("acme", VERSION, WEIGHTS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(WEIGHTS) // 2, limits[1]))
    try:
        with pytest.raises(BrokerUnavailable):
            blob_store.put("acme", VERSION, WEIGHTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert blob_store.fetch(uri, MANIFEST) == WEIGHTS
    (file,) = (tmp_path / "adapters" / "acme").iterdir()
    umask = os.umask(0o022)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask  # agents of other users read it


@pytest.mark.parametrize(
    ("weights", "reason"),
    [(WEIGHTS[:-1], "truncated"), (WEIGHTS + b"x", "oversized"), (WEIGHTS[:-1] + b"\x7f", "tampered")],
)
def test_other_weights_than_the_manifest_says_are_refused(blob_store: BlobStore, weights: bytes, reason: str) -> None:
    uri = blob_store.put("acme", VERSION, WEIGHTS)
    blob_store.put("acme", VERSION, weights)
    assert refused(blob_store, uri) == reason


def test_what_was_put_is_fetched_until_it_is_dropped(blob_store: BlobStore) -> None:
    uri = blob_store.put("acme", VERSION, WEIGHTS)
    assert blob_store.put("acme", VERSION, WEIGHTS) == uri
    assert blob_store.fetch(uri, MANIFEST) == WEIGHTS
    for size in (MANIFEST.most_bytes + 1, 0, -1):
        assert refused(blob_store, uri, structs.replace(MANIFEST, size_bytes=size)) == "oversized", "not even read"
    for _ in range(2):
        blob_store.drop("acme", VERSION)
        assert refused(blob_store, uri) == "missing"


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/latest", "file:///etc/passwd", "{root}/../../etc/passwd", "{root}/acme/../../x",
        "{root}/.hidden", "{root}//etc/passwd", "{root}", "{root}/", "{root}x/acme/a", "{root}/a::file:///etc/passwd",
        "{root}/%2e%2e/x", "simplecache::{root}/acme/x", "",
    ],
)  # fmt: skip
def test_only_what_lies_under_the_root_is_opened(tmp_path: Path, uri: str) -> None:
    root = f"file://{tmp_path}/adapters"
    assert refused(BlobStore(root), uri.format(root=root)) == "not_allowed"


def test_without_a_root_nothing_is_fetched_and_nothing_put(tmp_path: Path) -> None:
    uri = BlobStore(f"file://{tmp_path}").put("acme", VERSION, WEIGHTS)
    assert refused(BlobStore(""), uri) == "not_allowed"
    assert refused(BlobStore(""), f"/{tmp_path}/x") == "not_allowed"
    with pytest.raises(ConfigError, match="FLEETLORE_WEIGHTS_STORAGE"):
        BlobStore("").put("acme", VERSION, WEIGHTS)


@for_each("root", "/mnt/adapters", "nonsense://x", "adapters")
def test_an_odd_root_is_a_mistake_of_the_setting(root: str) -> None:
    with pytest.raises(ConfigError, match="storage of weights"):
        BlobStore(root)


def test_a_storage_that_does_not_answer_says_so(tmp_path: Path) -> None:
    (tmp_path / "adapters").write_text("no folder")
    blob_store = BlobStore(f"file://{tmp_path}/adapters")
    with pytest.raises(BrokerUnavailable, match="did not take weights"):
        blob_store.put("acme", VERSION, WEIGHTS)
    uri = f"file://{tmp_path}/adapters/acme/{VERSION}.safetensors"
    assert refused(blob_store, uri) == "unreachable"


@pytest.mark.slow
def test_a_bucket_is_never_made(bucket: str) -> None:
    import s3fs

    blob_store = BlobStore("s3://misspelt/adapters")
    with pytest.raises(BrokerUnavailable, match="misspelt"):
        blob_store.put("acme", VERSION, WEIGHTS)
    assert not s3fs.S3FileSystem().exists("misspelt")
    uri = f"s3://misspelt/adapters/acme/{VERSION}.safetensors"
    assert refused(blob_store, uri) == "missing"


@pytest.mark.slow
def test_without_credentials_it_says_so(agent_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    blob_store = BlobStore("s3://fleet/adapters")
    with pytest.raises(BrokerUnavailable, match="credentials"):
        blob_store.put("acme", VERSION, WEIGHTS)
    uri = f"s3://fleet/adapters/acme/{VERSION}.safetensors"
    assert refused(blob_store, uri) == "unreachable"
