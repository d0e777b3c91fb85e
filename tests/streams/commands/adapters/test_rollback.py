import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.listing import read_adapters
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.wire.adapter_manifest import CallsManifest, LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS
from sinks.adapter_publisher import AdapterPublisher
from tests.command import run
from tests.random_adapters import version_of


@pytest.fixture
def stack(broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder as `fleetlore up` leaves it, with two published versions."""
    public = create_signing_key(tmp_path / "keys" / "adapter_ed25519").public_base64
    content = {"broker": broker.address, "milvus": "http://127.0.0.1:1", "public_key": public}
    (tmp_path / "stack.json").write_bytes(orjson.dumps(content))
    settings = Settings(broker=broker.address, signing_key=str(tmp_path / "keys" / "adapter_ed25519"))

    async def publish() -> list[str]:
        await make_topics(broker.address, tenant, *ADAPTER_TOPICS)
        made = [version_of(LanguageModelManifest, seed, tenant, ordinal=seed) for seed in (1, 2)]
        async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
            for each in made:
                await publisher.publish(*each)
        return [manifest.version for _, manifest in made]

    return tmp_path, asyncio.run(publish())


def test_pin_unpin_and_revoke(stack: tuple[Path, list[str]], tenant: str) -> None:
    folder, versions = stack
    where = ("--data", str(folder), "--tenant", tenant, "--json")
    pinned = orjson.loads(run("adapters", "pin", versions[0], *where).stdout)
    assert (pinned["version"], pinned["pinned"]) == (versions[0], True)
    listed = orjson.loads(run("adapters", "list", *where).stdout)
    assert [row["channels"] for row in listed["versions"]] == [["stable (pinned)"], []]
    assert "pinned" not in orjson.loads(run("adapters", "unpin", *where).stdout)
    assert orjson.loads(run("adapters", "revoke", versions[0], *where).stdout)["version"] == versions[1]
    listed = orjson.loads(run("adapters", "list", *where).stdout)
    assert [row["channels"] for row in listed["versions"]] == [["revoked"], ["stable"]]


def test_the_adapter_is_found_by_the_version_or_told(stack: tuple[Path, list[str]], tenant: str) -> None:
    folder, versions = stack
    settings = Settings.from_data_dir(folder, signing_key=str(folder / "keys" / "adapter_ed25519"))
    weights, manifest = version_of(CallsManifest, 1, tenant)

    async def publish() -> None:
        async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
            await publisher.publish(weights, manifest)

    asyncio.run(publish())
    where = ("--data", str(folder), "--tenant", tenant)
    pinned = orjson.loads(run("adapters", "pin", manifest.version, *where, "--json").stdout)
    assert (pinned["adapter"], pinned["version"], pinned["epoch"]) == ("calls", manifest.version, 2)
    assert run("adapters", "rollback", manifest.version, *where, "--adapter", "llm").exit_code == 1
    rolled_back = orjson.loads(run("adapters", "rollback", manifest.version, *where, "--json").stdout)
    assert set(rolled_back) == {"tenant", "adapter", "version", "epoch", "reason", "pinned"}
    assert (
        rolled_back["reason"] == "rollback" and rolled_back["pinned"]
    )  # the next version is learned of the same sessions: it would undo the rollback
    run("adapters", "pin", versions[0], *where)
    assert "2 adapters" in run("adapters", "unpin", *where).output
    assert orjson.loads(run("adapters", "unpin", *where, "--adapter", "calls", "--json").stdout)["adapter"] == "calls"
    listed = orjson.loads(run("adapters", "list", *where, "--json").stdout)
    channels = {(row["adapter"], row["version"]): row["channels"] for row in listed["versions"] if row["channels"]}
    assert channels == {("calls", manifest.version): ["stable"], ("llm", versions[0]): ["stable (pinned)"]}
    listed = orjson.loads(run("adapters", "list", *where, "--adapter", "calls", "--json").stdout)
    assert [row["version"] for row in listed["versions"]] == [manifest.version]


def test_what_cannot_be_done_is_said(stack: tuple[Path, list[str]], tenant: str) -> None:
    where = ("--data", str(stack[0]), "--tenant", tenant)
    for command, said in (
        (("rollback", "ffff", *where), "no published versions begin with 'ffff'"),
        (("revoke-key", "abc", *where), "no id of a key"),
        (("rollback", "ffff", "--broker", "127.0.0.1:1"), "FLEETLORE_SIGNING_KEY"),
    ):
        result = run("adapters", *command)
        assert result.exit_code == 1 and said in result.output


def test_it_says_what_was_done_in_words(stack: tuple[Path, list[str]], tenant: str) -> None:
    folder, versions = stack
    where = ("--data", str(folder), "--tenant", tenant)
    assert f"runs {versions[0][:12]} (epoch 3)." in run("adapters", "rollback", versions[0], *where).stdout
    assert f"runs {versions[1][:12]}" in run("adapters", "revoke", versions[0], *where).stdout
    # An unset variable of a script names no version, and not the only one.
    assert "no published versions begin with ''" in run("adapters", "revoke", "", *where).output
    assert "has no version left" in run("adapters", "revoke", versions[1], *where).stdout


def test_a_key_is_revoked_by_another_and_not_by_itself(
    stack: tuple[Path, list[str]], broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = stack
    old = create_signing_key(folder / "keys" / "adapter_ed25519")
    refused = run("adapters", "revoke-key", old.key_id, "--data", str(folder), "--tenant", tenant)
    assert refused.exit_code == 1
    assert "cannot revoke itself" in refused.output
    assert asyncio.run(read_adapters(broker.address, tenant)).revocations == ()
    create_signing_key(folder / "next")
    monkeypatch.setenv("FLEETLORE_SIGNING_KEY", str(folder / "next"))
    where = ("--broker", broker.address, "--tenant", tenant)
    revoked = run("adapters", "revoke-key", old.key_id, *where).stdout
    assert f"The key {old.key_id} of tenant {tenant} is revoked." in revoked
    (revocation,) = asyncio.run(read_adapters(broker.address, tenant)).revocations
    assert (revocation["kind"], revocation["what"]) == ("key", old.key_id)
