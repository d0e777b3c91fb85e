"""A writer of the adapter topics with no key, or an old one, changes nothing for agents.

The attacks are those that The Update Framework lists (https://theupdateframework.io/docs/security/).
"""

import gc
import hashlib
import logging
import os
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.registry import KEPT_VERSIONS, RegistryView
from fleetlore.adapters.registry_follower import EpochFile
from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.agent.adapters import CallModelSlot
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, Revocation
from tests.doubles.adapter_log import AdapterLog
from tests.random_adapters import pointer_to, version_of

OLD = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
NEW = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUSTED = public_keys(NEW.public_base64, OLD.public_base64)
WEIGHTS, MANIFESTS, POINTERS = "adapters.weights", "adapters.manifests", "adapters.pointers"
Record = tuple[str, bytes, bytes | None]


def made(seed: int) -> tuple[bytes, AdapterManifest]:
    return version_of(CallsManifest, seed, "acme")


def published(seed: int, epoch: int, key: SigningKey = NEW) -> list[Record]:
    weights, manifest = made(seed)
    pointer = pointer_to(manifest, epoch)
    return [
        (MANIFESTS, manifest.key, key.sign(manifest)),
        (WEIGHTS, manifest.version.encode(), weights),
        (POINTERS, pointer.key, key.sign(pointer)),
    ]


def revoked(kind: str, what: str, key: SigningKey = NEW) -> Record:
    revocation = Revocation("acme", kind, what, "bad", 0.0)
    return POINTERS, revocation.key, key.sign(revocation)


class Process:
    """Agents of one process on a log that the test writes."""

    def __init__(self, state_dir: str = "") -> None:
        self.log = AdapterLog()
        self.follower = self.log.feed(TRUSTED, state_dir)

    async def agent(self, name: str) -> AdapterSubscriber[CallModelSlot]:
        agent = AdapterSubscriber("nowhere:1", "acme", name, TRUSTED, CallModelSlot(), feed=self.follower)
        await self.follower.join(agent)
        return agent

    async def read(self, records: list[Record]) -> None:
        await self.log.write(*records)


async def test_who_joins_late_runs_what_the_others_run() -> None:
    """A replayed pointer and the tombstone of a revocation led an agent that joined late back to a revoked version."""
    process = Process()
    early = await process.agent("early")
    first, second = made(1)[1].version, made(2)[1].version
    revocation = revoked("version", first)
    await process.read([*published(1, 1), *published(2, 2), revocation])
    await process.read([published(1, 1)[2], (POINTERS, revocation[1], None)])
    late = await process.agent("late")
    assert early.version == late.version == second
    assert process.follower.views["calls"].revoked(first)


async def test_a_restart_is_not_led_back_to_an_older_version(tmp_path: Path) -> None:
    """After compaction the replayed pointer is the only one that the topic still has."""
    process = Process(str(tmp_path))
    agent = await process.agent("a")
    await process.read([*published(1, 1), *published(2, 2)])
    assert agent.version == made(2)[1].version
    downgraded = [*published(1, 1), *published(2, 2)[:2]]
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.read(downgraded)
    assert restarted.version == made(2)[1].version
    assert restarted.refused["stale"] == 1
    assert oct((tmp_path / "acme.adapters.json").stat().st_mode)[-3:] == "600"


async def test_a_process_that_starts_later_refuses_no_older_version(tmp_path: Path) -> None:
    """Each start of an agent warned of every earlier version, and the alert for forged ones fired."""
    log = [record for epoch in range(1, 6) for record in published(epoch, epoch)]
    process = Process(str(tmp_path))
    await process.agent("a")
    await process.log.catch_up(*log)
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.log.catch_up(*log)
    assert restarted.version == made(5)[1].version and not restarted.refused
    await again.read(published(6, 6))
    assert restarted.version == made(6)[1].version and not restarted.refused


async def test_a_log_that_was_frozen_before_a_restart_is_refused_once(tmp_path: Path) -> None:
    process = Process(str(tmp_path))
    await process.agent("a")
    await process.log.catch_up(*published(1, 1), *published(2, 2), *published(3, 3))
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.log.catch_up(*published(1, 1), *published(2, 2), *published(3, 3)[:2])
    await again.log.catch_up()
    assert restarted.version == made(3)[1].version and restarted.refused == {"stale": 1}
    await again.read([published(2, 2)[2]])
    assert restarted.version == made(3)[1].version


async def test_an_older_pointer_behind_a_newer_one_of_the_log_is_refused(tmp_path: Path) -> None:
    process = Process(str(tmp_path))
    await process.agent("a")
    await process.log.catch_up(*published(1, 1), *published(2, 2), *published(4, 4))
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.log.catch_up(*published(2, 2), *published(4, 4), published(1, 1)[2])
    assert restarted.version == made(4)[1].version and restarted.refused == {"stale": 1}


async def test_what_a_host_has_seen_revoked_stays_so_over_a_restart(tmp_path: Path) -> None:
    process = Process(str(tmp_path))
    await process.agent("a")
    await process.read([*published(1, 1), revoked("version", made(1)[1].version)])
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.read(published(1, 1))
    assert restarted.version is None


async def test_two_processes_of_a_host_keep_the_higher_epoch(tmp_path: Path) -> None:
    ahead, behind = Process(str(tmp_path)), Process(str(tmp_path))
    await ahead.read(published(2, 2))
    await behind.read(published(1, 1))
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.read(published(1, 1))
    assert restarted.refused == {"stale": 1}
    await again.read(published(2, 2))
    assert restarted.version == made(2)[1].version


@pytest.mark.parametrize("held", [b"", b"[]", b'{"a": 1}', b'{"calls/stable": "AAAA"}', b"\xff"])
async def test_a_broken_file_of_epochs_does_not_keep_an_agent_from_working(tmp_path: Path, held: bytes) -> None:
    EpochFile(str(tmp_path), "acme").path.write_bytes(held)
    process = Process(str(tmp_path))
    agent = await process.agent("a")
    await process.read(published(1, 1))
    assert agent.version == made(1)[1].version


async def test_weights_without_a_manifest_evict_nothing_and_cost_nothing() -> None:
    process = Process()
    agent = await process.agent("a")
    await process.read(published(1, 1))
    for number in range(2 * KEPT_VERSIONS):
        garbage = b"%d" % number
        await process.read([(WEIGHTS, hashlib.sha256(garbage).hexdigest().encode(), garbage)])
    late = await process.agent("late")
    assert agent.version == late.version == made(1)[1].version
    kept = [name for name, _, _ in process.follower.views["calls"].records()]
    assert kept.count(WEIGHTS) == 1


async def test_weights_of_another_version_are_no_part_of_a_signed_one() -> None:
    """Mix-and-match: each half is genuine."""
    process = Process()
    agent = await process.agent("a")
    await process.read([*published(1, 1), *published(2, 2)[:1]])
    await process.read([(WEIGHTS, made(2)[1].version.encode(), made(1)[0]), published(2, 2)[2]])
    assert agent.version == made(1)[1].version and sum(agent.refused.values()) == 1
    await process.read([published(2, 2)[1]])
    assert agent.version == made(2)[1].version


async def test_endless_weights_cost_nothing_but_their_fetch() -> None:
    process = Process()
    agent = await process.agent("a")
    await process.read([*published(1, 1), (WEIGHTS, made(1)[1].version.encode(), bytes(2**21))])
    assert agent.version == made(1)[1].version and agent.refused == {"oversized": 1}


async def test_a_thief_of_an_old_key_cannot_run_the_epochs_ahead_for_ever(tmp_path: Path) -> None:
    """Fast-forward: with the key go the epochs that it signed, also those that a host remembers."""
    process = Process(str(tmp_path))
    agent = await process.agent("a")
    await process.read([*published(1, 1), *published(2, 2**53, OLD), revoked("key", OLD.key_id)])
    assert agent.version is None
    await process.read(published(3, 2))
    assert agent.version == made(3)[1].version
    again = Process(str(tmp_path))
    restarted = await again.agent("a")
    await again.log.catch_up(*published(3, 2))
    assert restarted.version == made(3)[1].version and not restarted.refused


async def test_tombstones_without_a_signature_take_no_version_from_who_joins_late() -> None:
    process = Process()
    await process.agent("a")
    records = published(1, 1)
    await process.read(records)
    await process.read([(name, key, None) for name, key, _ in records])
    assert (await process.agent("late")).version == made(1)[1].version


async def test_documents_that_nobody_signed_are_not_kept() -> None:
    """300 of 1 MB took 154 MB, and 20,000 junk keys 82 MB for ever."""
    process = Process()
    agent = await process.agent("a")
    logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.ERROR)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(40):
            forged = orjson.dumps(
                {"key_id": OLD.key_id[:-1], "schema": 1, "signature": "", "n": number, "x": "x" * 10**6}
            )
            await process.read([(MANIFESTS, b"calls/%d" % number, forged)])
        del forged
        for number in range(2_000):
            await process.read([(POINTERS, b"calls/junk-%d" % number, b"x" * 1_000)])
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.NOTSET)
    assert kept < 2_000_000
    assert agent.refused["unknown_key"] + agent.refused["oversized"] == 40 and agent.refused["malformed"] == 2_000


async def test_a_document_nested_too_deep_keeps_no_revocation_from_agents() -> None:
    """A forged manifest must not end the fetch: the same record would come again, and later ones never."""
    process = Process()
    agent = await process.agent("a")
    records = published(1, 1)
    forged = (records[0][2] or b"")[:-1] + b',"deep":' + b"[" * 300 + b"]" * 300 + b"}"
    await process.read([*records, (MANIFESTS, records[0][1], forged), revoked("version", made(1)[1].version)])
    assert agent.version is None
    assert agent.refused == {"malformed": 1}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_leaked_old_key_locks_nobody_out_in_whatever_order(order: tuple[int, int]) -> None:
    """The operator revokes the old key, and its thief says the same of the new one: the order must not matter."""
    view: RegistryView[AdapterManifest] = RegistryView(CallsManifest, "acme", TRUSTED)
    said = [revoked("key", OLD.key_id), revoked("key", NEW.key_id, OLD)]
    for place in order:
        try:
            view.take(*said[place])
        except AdapterRefused as refusal:
            assert refusal.reason == ("unknown_key" if order == (0, 1) else "outranked")
    assert view.take(*published(1, 1, NEW)[0])
    with pytest.raises(AdapterRefused, match="unknown_key"):
        view.take(*published(2, 2, OLD)[0])


def test_what_a_revoked_key_signed_runs_again_once_another_has_signed_it() -> None:
    view: RegistryView[AdapterManifest] = RegistryView(CallsManifest, "acme", TRUSTED)
    for record in (*published(1, 1, OLD), revoked("key", OLD.key_id)):
        view.take(*record)
    version = made(1)[1].version
    assert view.revoked(version) and view.pointer is None
    for record in published(1, 2):
        view.take(*record)
    assert not view.revoked(version) and view.complete() is not None


def test_a_key_that_ranks_below_says_nothing_about_those_above() -> None:
    view: RegistryView[AdapterManifest] = RegistryView(CallsManifest, "acme", TRUSTED)
    for key in (OLD.key_id, NEW.key_id):
        with pytest.raises(AdapterRefused, match="outranked"):
            view.take(*revoked("key", key, OLD))


@pytest.fixture
def storage(tmp_path: Path) -> tuple[BlobStore, Any, Path]:
    store = BlobStore(f"file://{tmp_path}/adapters")
    weights, manifest = made(1)
    reference = store.put("acme", manifest.version, weights)
    return store, reference, tmp_path / "adapters" / "acme" / f"{manifest.version}.safetensors"


def refused(storage: tuple[BlobStore, Any, Path]) -> str:
    with pytest.raises(AdapterRefused) as found:
        storage[0].fetch(storage[1], 1 << 20)
    return found.value.reason


def test_a_link_out_of_the_storage_is_not_followed(storage: tuple[BlobStore, Any, Path], tmp_path: Path) -> None:
    storage[2].rename(tmp_path / "elsewhere")
    storage[2].symlink_to(tmp_path / "elsewhere")
    assert refused(storage) == "not_allowed"


def test_a_folder_that_is_a_link_is_not_followed(storage: tuple[BlobStore, Any, Path], tmp_path: Path) -> None:
    storage[2].parent.rename(tmp_path / "elsewhere")
    storage[2].parent.symlink_to(tmp_path / "elsewhere")
    assert refused(storage) == "not_allowed"


def test_a_pipe_in_the_storage_keeps_nobody_waiting(storage: tuple[BlobStore, Any, Path]) -> None:
    storage[2].unlink()
    os.mkfifo(storage[2])
    assert refused(storage) == "not_allowed"


async def test_a_forged_key_writes_no_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    await process.agent("a")
    await process.read([(MANIFESTS, b"calls/x\nERROR all is lost", b"{}")])
    assert "\nERROR all is lost" not in caplog.text
