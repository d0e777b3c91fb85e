"""`fleetlore relay` as a process: with a broker, killed, and its mistakes (over TLS: test_native.py)."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from fleetlore.cli.app import build_app
from fleetlore.wire.principals import Principals
from streams.embedded.broker import free_port
from tests.rows import for_each


@asynccontextmanager
async def running(*options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, once it serves."""
    command = [sys.executable, "-m", "fleetlore.cli.main", "relay", *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith((b"relay http", b"relay unix:"))
        address = options[options.index("--http") + 1]
        host, _, port = address.rpartition(":")
        while process.returncode is None:
            try:
                if host == "unix":
                    _, writer = await asyncio.open_unix_connection(port)
                else:
                    _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                break
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.mark.long
async def test_another_host_name_is_refused(unused_address: str) -> None:
    http = f"127.0.0.1:{free_port()}"
    async with (
        running("--http", http, "--broker", unused_address),
        httpx2.AsyncClient(timeout=120, base_url=f"http://{http}") as client,
    ):
        assert (await client.get("/v1/lore")).status_code == 200
        assert (await client.get("/v1/lore", headers={"host": "evil.example:7411"})).status_code == 421
        page = await client.post("/v1/events", json=[], headers={"origin": "https://evil.example"})
        assert page.status_code == 403


def make_certificate(certificate: Path, key: Path) -> None:
    """One that signs itself, for 127.0.0.1."""
    private, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(pem, pkcs8, serialization.NoEncryption()))


@pytest.mark.long
async def test_with_a_principal_s_own_key_it_lends_nobody_a_name(
    unused_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLORE_PRINCIPAL_KEY", Principals("of-the-workers-of-this-test-0123456789").key_of("me"))
    options = ["--http", f"127.0.0.1:{free_port()}", "--broker", unused_address]
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-16-or-more me:codex\n")
    for given in ([], ["--tokens", str(tokens)]):
        async with running(*options, *given):
            pass
    tokens.write_text(tokens.read_text() + "another-of-16-or-more you:codex\n")
    result = CliRunner().invoke(build_app(), ["relay", *options, "--tokens", str(tokens)])
    assert result.exit_code == 1 and "'you:codex', and this relay signs for 'me' alone" in result.output


@for_each(
    "options, said",
    (["--http", "0.0.0.0:7411"], "--tls-certificate"),
    (["--http", "nowhere"], "no HOST:PORT"),
    (["--tls-key", __file__], "or neither"),
    (["--tokens", __file__], "line 1"),
    (["--tenant", "A.b"], "tenant"),
)
def test_a_mistake_is_told_in_one_line(options: list[str], said: str) -> None:
    result = CliRunner().invoke(build_app(), ["relay", "--broker", "127.0.0.1:1", *options], env={"COLUMNS": "400"})
    assert result.exit_code in (1, 2) and said in result.output
