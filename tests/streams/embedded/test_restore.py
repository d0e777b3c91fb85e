"""The drill of *Back up and restore*: everything is killed and deleted, and the state comes back key by key."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from benchmarks.replay import TIMES, replay
from fleetlore.adapters.signatures import load_signing_key
from fleetlore.cluster import SIGNING_KEY
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.lore import MemoryItem, Pattern
from sinks.collections import COLLECTIONS
from sinks.milvus import MilvusStore
from streams.embedded.broker import KafkaMissing, java_command
from streams.embedded.stack import Stack
from tests.streams.embedded.test_stack import world_sessions

pytestmark = pytest.mark.long
LORE = ("patterns", "items")
Contents = Mapping[tuple[str, str], Any]


async def contents(stack: Stack, *collections: str) -> Contents:
    """What each key of the store holds. Times are left out: a replay tells others."""
    found: dict[tuple[str, str], Any] = {}
    async with MilvusStore.from_settings(stack.settings) as store:
        for name in collections:
            async for row in store.rows(name, "default", "body"):
                if row["body"]:
                    found[name, row["id"]] = {k: v for k, v in orjson.loads(row["body"]).items() if k not in TIMES}
    return found


async def shown(stack: Stack) -> set[str]:
    """Ids of all that agents get."""
    lore = await LoreReplica.snapshot(stack.settings.broker, "default")
    entries: list[Pattern | MemoryItem] = [*lore.patterns.values(), *lore.items.values()]
    return {each.id for each in entries}


def kill(stack: Stack) -> None:
    supervisors = [psutil.Process(child.pid) for child in stack.children]
    roles = [role for each in supervisors for role in each.children(recursive=True)]
    for process in [*roles, *supervisors]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a supervisor may end with its role
            process.kill()


def fleetlore(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "fleetlore.cli.main", *arguments], capture_output=True, timeout=200)


@pytest.mark.parametrize("part", ["milvus", "kafka/data"])
async def test_a_store_or_log_that_was_deleted_comes_back_from_the_other(tmp_path: Path, part: str) -> None:
    try:
        java_command()
    except KafkaMissing as missing:
        pytest.skip(str(missing))
    names = [each.name for each in COLLECTIONS]
    async with Stack(tmp_path, trainer=False, keep_log=True) as stack:
        await replay(world_sessions(120), stack.settings, tenant="default", seed=1, timeout_seconds=240)
        before, agents = await contents(stack, *names), await shown(stack)
        kill(stack)
    shutil.rmtree(tmp_path / part)
    async with Stack(tmp_path, trainer=False, keep_log=True) as stack:
        assert await contents(stack, *names) == before
        assert await shown(stack) == agents
    assert len({name for name, _ in before}) == 3, "the drill compares nothing"


async def test_a_folder_that_was_deleted_with_its_keys_comes_back_from_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    backup.mkdir()
    async with Stack(data, trainer=False) as stack:
        await replay(world_sessions(120), stack.settings, tenant="default", seed=1, timeout_seconds=240)
        before, agents = await contents(stack, *LORE), await shown(stack)
        written = fleetlore("export", "lore", "--data", str(data))
        assert written.returncode == 0, written.stderr
        (backup / "lore.jsonl").write_bytes(written.stdout)
        lost = load_signing_key(data / SIGNING_KEY)
        kill(stack)
    shutil.rmtree(data)
    data.mkdir()
    monkeypatch.setenv("FLEETLORE_PUBLIC_KEY", lost.public_base64)
    command = ("import", "lore", str(backup / "lore.jsonl"), "--data", str(data), "--json")
    async with Stack(data, trainer=False) as stack:
        looked = fleetlore(*command, "--dry-run")
        assert looked.returncode == 0, looked.stderr
        assert await contents(stack, *LORE) == {}, "a dry run writes"
        assert b"Nothing is known of tenant default" in fleetlore("export", "lore", "--data", str(data)).stderr
        taken = fleetlore(*command, "--yes")
        assert taken.returncode == 0, taken.stderr
        report = json.loads(taken.stdout)
        assert report["imported"] and report["signer"] == lost.key_id and report["items"]["known"] == 0
        assert report["patterns"]["in_file"] == sum(name == "patterns" for name, _ in before)
        assert await contents(stack, *LORE) == before
        assert await shown(stack) == agents
        again = fleetlore(*command, "--yes")
        assert json.loads(again.stdout)["patterns"]["known"] == report["patterns"]["in_file"]
        assert await contents(stack, *LORE) == before
        listed = fleetlore("export", "lore", "--data", str(data), "--as", "skills", str(tmp_path / "skills"))
        assert listed.returncode == 0, listed.stderr
        assert list((tmp_path / "skills").glob("*/SKILL.md"))
