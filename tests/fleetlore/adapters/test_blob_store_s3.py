"""The storage of weights against a server that speaks the protocol of S3."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from fleetlore.adapters.blob_store import BlobStore, WeightsReference
from fleetlore.errors import AdapterRefused, BrokerUnavailable

pytest.importorskip("moto")
s3fs = pytest.importorskip("s3fs")
pytestmark = pytest.mark.slow

WEIGHTS = bytes(range(256)) * 3_000  # more than fits in a record
VERSION = hashlib.sha256(WEIGHTS).hexdigest()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 50
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the server did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def agent_host(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The variables that AWS' own clients take, and no client that knows those of another test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "agent")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(agent_host: None) -> str:
    files = s3fs.S3FileSystem()
    if not files.exists("fleet"):
        files.mkdir("fleet")
    return "s3://fleet/adapters"


def refused(blob_store: BlobStore, reference: WeightsReference) -> str:
    with pytest.raises(AdapterRefused) as found:
        blob_store.fetch(reference, 1 << 20)
    return found.value.reason


def test_what_was_put_is_fetched_by_another(bucket: str) -> None:
    reference = BlobStore(bucket).put("acme", VERSION, WEIGHTS)
    assert reference.uri == f"s3://fleet/adapters/acme/{VERSION}.safetensors"
    assert BlobStore(bucket).fetch(reference, 1 << 20) == WEIGHTS


@pytest.mark.parametrize(
    ("weights", "reason"),
    [(WEIGHTS[:-1] + b"x", "tampered"), (WEIGHTS[:-1], "truncated"), (WEIGHTS + b"x", "oversized")],
)
def test_other_weights_than_the_reference_says_are_refused(bucket: str, weights: bytes, reason: str) -> None:
    blob_store = BlobStore(bucket)
    reference = blob_store.put("acme", VERSION, WEIGHTS)
    blob_store.put("acme", VERSION, weights)
    assert refused(blob_store, reference) == reason


def test_what_was_dropped_is_missing(bucket: str) -> None:
    blob_store = BlobStore(bucket)
    reference = blob_store.put("acme", VERSION, WEIGHTS)
    blob_store.drop("acme", VERSION)
    assert refused(blob_store, reference) == "missing"


def test_a_bucket_is_never_made(bucket: str) -> None:
    blob_store = BlobStore("s3://misspelt/adapters")
    with pytest.raises(BrokerUnavailable, match="misspelt"):
        blob_store.put("acme", VERSION, WEIGHTS)
    assert not s3fs.S3FileSystem().exists("misspelt")
    reference = WeightsReference(f"s3://misspelt/adapters/acme/{VERSION}.safetensors", VERSION, len(WEIGHTS))
    assert refused(blob_store, reference) == "missing"


def test_without_credentials_it_says_so(agent_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    blob_store = BlobStore("s3://fleet/adapters")
    with pytest.raises(BrokerUnavailable, match="credentials"):
        blob_store.put("acme", VERSION, WEIGHTS)
    reference = WeightsReference(f"s3://fleet/adapters/acme/{VERSION}.safetensors", VERSION, len(WEIGHTS))
    assert refused(blob_store, reference) == "unreachable"
