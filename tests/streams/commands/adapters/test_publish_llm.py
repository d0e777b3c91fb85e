"""A LoRA over a language model goes from its owner's folder to the servers that follow it, and back again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.errors import ConfigError
from fleetlore.lora.follow import PolicyFollower
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS
from streams.commands.adapters.publish_llm import read_gate
from streams.offline.erase import has_learned
from streams.offline.erase_search import Found
from tests.command import run_beside
from tests.lora import MakeLora, base_folder, language_model, make_lora

__all__ = ["base_folder", "make_lora"]

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def run(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """`await run("publish-llm", …)`: a command of `fleetlore adapters` where the key is."""
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks", partitions=1)
    key = create_signing_key(tmp_path / "key")
    for name, value in {
        "SIGNING_KEY": str(tmp_path / "key"),
        "PUBLIC_KEY": key.public_base64,
        "WEIGHTS_STORAGE": f"file://{tmp_path}/shared",
        "BROKER": broker.address,
        "TENANTS": tenant,
    }.items():
        monkeypatch.setenv(f"FLEETLORE_{name}", value)
    (tmp_path / "gate.json").write_text('{"passed": true, "metrics": {"tasks solved": 0.5}}')

    async def call(command: str, *arguments: str) -> Result:
        return await run_beside("adapters", command, *arguments, "--tenant", tenant)

    return call


@pytest.fixture
async def follower(run: Run, tenant: str, tmp_path: Path) -> AsyncIterator[PolicyFollower]:
    async with PolicyFollower(tmp_path / "kept", tenant=tenant) as running:
        yield running


async def published(run: Run, lora: Path, base: Path, tmp_path: Path, *more: str) -> dict[str, Any]:
    options = ("--base", str(base), "--base-name", "tiny", "--gate", str(tmp_path / "gate.json"), "--json")
    done = await run("publish-llm", str(lora), *options, *more)
    assert done.exit_code == 0, done.output
    document = orjson.loads(done.output)
    assert set(document) == {"tenant", "version", "ordinal"}
    return dict(document)


async def runs(follower: PolicyFollower, version: str | None) -> None:
    async with asyncio.timeout(120):
        while (follower.current.manifest.version if follower.current else None) != version:
            await asyncio.sleep(0.02)


async def test_a_version_is_followed_rolled_back_and_revoked(
    run: Run, follower: PolicyFollower, base_folder: Path, make_lora: MakeLora, tmp_path: Path
) -> None:
    first = await published(run, make_lora(1), base_folder, tmp_path)
    await runs(follower, first["version"])
    assert follower.current is not None
    language_model(base_folder, follower.current.path)
    second = await published(run, make_lora(2), base_folder, tmp_path)
    await runs(follower, second["version"])
    assert second["ordinal"] == 2 and follower.current.manifest.parent == first["version"]
    assert (await run("rollback", first["version"], "--adapter", "llm")).exit_code == 0
    await runs(follower, first["version"])
    assert (await run("revoke", first["version"])).exit_code == 0
    await runs(follower, second["version"])
    assert [each.name for each in follower.current.path.parent.iterdir()] == [second["version"]]


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ('{"passed": false, "metrics": {"loss": 1}}', "does not say that it passed"),
        ('{"passed": "yes", "metrics": {"loss": 1}}', "`bool`.*passed"),
        ('{"passed": true}', "field `metrics`"),
        ('{"passed": true, "metrics": {}}', "length >= 1"),
        ('{"passed": true, "metrics": {"loss": "low"}}', "`float`"),
        ('{"passed": true, "metrics": {"loss": true}}', "`float`"),
        ('{"passed": true, "metrics": {"loss": 1e999}}', "out of range"),
        ("passed", "malformed"),
    ],
)
def test_nothing_is_published_that_has_not_passed(report: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "gate.json").write_text(report)
    with pytest.raises(ConfigError, match=says):
        read_gate(tmp_path / "gate.json")


async def test_an_erasure_finds_the_versions_that_learned_of_a_session(
    run: Run, follower: PolicyFollower, base_folder: Path, make_lora: MakeLora, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    rows = [{"session": "s1", "agent": "a"}, {"session": "s2", "agent": "b"}]
    (dataset / "sessions.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    stated = await published(run, make_lora(1), base_folder, tmp_path, "--dataset", str(dataset))
    await runs(follower, stated["version"])
    assert follower.current is not None
    version: LanguageModelManifest = follower.current.manifest
    assert (version.sessions, version.agents) == (2, 2)
    for session, learned in (("s2", True), ("s3", False)):
        found = Found()
        found.add("b", session, 0, version.created - 1)
        assert has_learned(version, found) is learned
