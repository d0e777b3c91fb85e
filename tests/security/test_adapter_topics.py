"""A writer of the topic of adapters with no key, or an old one, changes nothing for agents.

The attacks are those that The Update Framework lists (https://theupdateframework.io/docs/security/).
"""

import gc
import logging
import os
import tracemalloc
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.adapters.blob_store import BlobStore
from fleetlore.adapters.follower import EpochFile
from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.adapters.view import AdapterView
from fleetlore.agent.adapters import CallModelSlot
from fleetlore.errors import AdapterRefused
from fleetlore.wire.adapter_manifest import CANARY, AdapterManifest, CallsManifest, Revocation
from tests.doubles.adapter_log import AdapterLog
from tests.random_adapters import KEY as NEW
from tests.random_adapters import OTHER as OLD
from tests.random_adapters import calls_manifest_for, record_of, version_of

TRUSTED = public_keys(NEW.public_base64, OLD.public_base64)
Record = tuple[bytes, bytes | None]


def made(seed: int) -> tuple[bytes, AdapterManifest]:
    return version_of(CallsManifest, seed, "acme")


def published(seed: int, epoch: int, key: SigningKey = NEW) -> tuple[bytes, bytes]:
    return record_of(key, *made(seed), epoch)


def revoked(kind: str, what: str, key: SigningKey = NEW) -> tuple[bytes, bytes]:
    revocation = Revocation("acme", kind, what, "bad", 0.0)
    return revocation.key, key.sign(revocation)


class Process:
    """Agents of one process on a log that the test writes."""

    def __init__(self, state_dir: str = "") -> None:
        self.log = AdapterLog()
        self.follower = self.log.feed(TRUSTED, state_dir)

    async def agent(self, name: str) -> AdapterSubscriber[CallModelSlot]:
        agent = AdapterSubscriber("nowhere:1", "acme", name, TRUSTED, CallModelSlot(), feed=self.follower)
        await self.follower.join(agent)
        return agent

    async def read(self, *records: Record) -> None:
        await self.log.write(*records)


async def started(state_dir: Path | str = "") -> tuple[Process, AdapterSubscriber[CallModelSlot]]:
    """A process, and the first agent of it."""
    process = Process(str(state_dir))
    return process, await process.agent("a")


async def test_who_joins_late_runs_what_the_others_run() -> None:
    """A replayed record and the tombstone of a revocation led an agent that joined late back to a revoked version."""
    process = Process()
    early = await process.agent("early")
    first, second = made(1)[1].version, made(2)[1].version
    revocation = revoked("version", first)
    await process.read(published(1, 1), published(2, 2), revocation, published(1, 1), (revocation[0], None))
    late = await process.agent("late")
    assert early.version == late.version == second
    assert process.follower.views["calls"].is_revoked(first)
    assert early.refused == {"stale": 1}


async def test_a_restart_is_not_led_back_to_an_older_version(tmp_path: Path) -> None:
    """After compaction the replayed record is the only one that the topic still has."""
    process, agent = await started(tmp_path)
    await process.read(published(1, 1), published(2, 2))
    assert agent.version == made(2)[1].version
    again, restarted = await started(tmp_path)
    await again.read(published(1, 1))
    assert restarted.version is None and restarted.refused == {"stale": 1}
    await again.read(published(2, 2))
    assert restarted.version == made(2)[1].version
    assert oct((tmp_path / "acme.epochs.json").stat().st_mode)[-3:] == "600"


@given(st.integers(0, 2**64 - 1), st.sampled_from(["before", "after"]))
def test_the_epochs_of_a_stolen_key_end_with_the_key(epoch: int, order: str) -> None:
    """A version's revocation with the highest number stopped all publishing for ever."""
    view = AdapterView(CallsManifest, "acme", TRUSTED)
    theft = Revocation("acme", "version", "0" * 64, "bad", 0.0, epoch)
    records = [(theft.key, OLD.sign(theft)), revoked("key", OLD.key_id)]
    for key, value in records if order == "before" else reversed(records):
        with suppress(AdapterRefused):
            view.take(key, value)
    assert view.epoch == 0 and view.is_revoked("0" * 64) is (order == "before" and epoch < 2**53)
    view.take(*published(1, view.epoch + 1))
    assert view.epoch == 1


async def test_a_process_that_starts_later_refuses_no_older_version(tmp_path: Path) -> None:
    """Each start of an agent warned of every earlier version, and the alert for forged ones fired."""
    log = [published(epoch, epoch) for epoch in range(1, 6)]
    process, _ = await started(tmp_path)
    await process.log.catch_up(*log)
    again, restarted = await started(tmp_path)
    await again.log.catch_up(*log)
    assert restarted.version == made(5)[1].version and not restarted.refused
    await again.read(published(6, 6))
    assert restarted.version == made(6)[1].version and not restarted.refused


async def test_a_promoted_canary_is_no_frozen_log(tmp_path: Path) -> None:
    """Its record on the channel `canary` is replaced, so that channel of the log ends at an older one."""
    canary = {"channel": CANARY, "share": 0.0}
    lost, tried = (record_of(NEW, *made(seed), epoch, **canary) for seed, epoch in ((2, 2), (3, 4)))
    process, _ = await started(tmp_path)
    await process.log.catch_up(published(1, 1), lost, published(1, 3), tried, published(3, 5))
    again, restarted = await started(tmp_path)
    await again.log.catch_up(lost, published(1, 3), published(3, 5))
    assert restarted.version == made(3)[1].version and not restarted.refused


async def test_a_log_that_was_frozen_before_a_restart_is_refused_once(tmp_path: Path) -> None:
    process, _ = await started(tmp_path)
    await process.log.catch_up(published(1, 1), published(2, 2), published(3, 3))
    again, restarted = await started(tmp_path)
    await again.log.catch_up(published(1, 1), published(2, 2))
    await again.log.catch_up()
    assert restarted.version is None and restarted.refused == {"stale": 1}
    await again.read(published(3, 3))
    assert restarted.version == made(3)[1].version


async def test_an_older_record_behind_a_newer_one_of_the_log_is_refused(tmp_path: Path) -> None:
    process, _ = await started(tmp_path)
    await process.log.catch_up(published(1, 1), published(2, 2), published(4, 4))
    again, restarted = await started(tmp_path)
    await again.log.catch_up(published(2, 2), published(4, 4), published(1, 1))
    assert restarted.version == made(4)[1].version and restarted.refused == {"stale": 1}


async def test_what_a_host_has_seen_revoked_stays_so_over_a_restart(tmp_path: Path) -> None:
    process, _ = await started(tmp_path)
    await process.read(published(1, 1), revoked("version", made(1)[1].version))
    again, restarted = await started(tmp_path)
    await again.read(published(1, 1))
    assert restarted.version is None and not restarted.refused


async def test_a_log_without_the_records_of_revoked_versions_is_not_frozen(tmp_path: Path) -> None:
    """An erasure revokes versions and deletes them."""
    revocations = [revoked("version", made(seed)[1].version) for seed in (1, 2)]
    process, _ = await started(tmp_path)
    await process.log.catch_up(published(1, 1), published(2, 2), *revocations)
    again, restarted = await started(tmp_path)
    await again.log.catch_up(published(1, 1), *revocations)
    assert restarted.version is None and not restarted.refused


async def test_two_processes_of_a_host_keep_the_higher_epoch(tmp_path: Path) -> None:
    ahead, behind = Process(str(tmp_path)), Process(str(tmp_path))
    await ahead.read(published(2, 2))
    await behind.read(published(1, 1))
    again, restarted = await started(tmp_path)
    await again.read(published(1, 1))
    assert restarted.version is None and restarted.refused == {"stale": 1}
    await again.read(published(2, 2))
    assert restarted.version == made(2)[1].version


@pytest.mark.parametrize("held", [b"", b"[]", b'{"a": 1}', b'{"calls/stable": "AAAA"}', b"\xff"])
async def test_a_broken_file_of_epochs_does_not_keep_an_agent_from_working(tmp_path: Path, held: bytes) -> None:
    EpochFile(str(tmp_path), "acme").path.write_bytes(held)
    process, agent = await started(tmp_path)
    await process.read(published(1, 1))
    assert agent.version == made(1)[1].version


async def test_weights_of_another_version_are_no_part_of_a_signed_one() -> None:
    """Mix-and-match: each half is genuine."""
    process, agent = await started()
    key, value = published(2, 2)
    await process.read(published(1, 1), record_of(NEW, made(1)[0], made(2)[1], 2))
    assert agent.version == made(1)[1].version and sum(agent.refused.values()) == 1
    await process.read((key, value))
    assert agent.version == made(2)[1].version


async def test_endless_weights_cost_nothing_but_their_fetch() -> None:
    process, agent = await started()
    await process.read(published(1, 1), record_of(NEW, bytes(2**21), made(1)[1], 2))
    assert agent.version == made(1)[1].version and agent.refused == {"oversized": 1}


async def test_a_thief_of_an_old_key_cannot_run_the_epochs_ahead_for_ever(tmp_path: Path) -> None:
    """Fast-forward: with the key go the epochs that it signed, also those that a host remembers."""
    process, agent = await started(tmp_path)
    await process.read(published(1, 1), published(2, 2**53 - 1, OLD), revoked("key", OLD.key_id))
    assert agent.version is None
    await process.read(published(3, 2))
    assert agent.version == made(3)[1].version
    again, restarted = await started(tmp_path)
    await again.log.catch_up(published(3, 2))
    assert restarted.version == made(3)[1].version and not restarted.refused


async def test_what_runs_leaves_with_its_key_though_the_channel_has_moved() -> None:
    """The next version is signed by a good key, and no agent can load it."""
    process, agent = await started()
    unfit = b"no call model"
    await process.read(published(1, 1, OLD), record_of(NEW, unfit, calls_manifest_for(unfit, "acme"), 2))
    assert agent.version == made(1)[1].version and agent.refused == {"structure": 1}
    await process.read(revoked("key", OLD.key_id))
    assert agent.version is None


async def test_a_version_that_another_key_signed_again_outlives_the_revoked_one() -> None:
    process, agent = await started()
    await process.read(published(1, 1, OLD), published(1, 2), revoked("key", OLD.key_id))
    assert agent.version == made(1)[1].version and not agent.refused
    await process.follower.leave(agent)
    assert [orjson.loads(value)["result"] for _, value in process.log.acks] == ["applied"]


async def test_tombstones_without_a_signature_withdraw_no_version_from_an_agent_that_joins_late() -> None:
    process, _ = await started()
    await process.read(published(1, 1), (published(1, 1)[0], None))
    assert (await process.agent("late")).version == made(1)[1].version


@pytest.mark.long
async def test_documents_that_nobody_signed_are_not_kept() -> None:
    """300 of 1 MB took 154 MB, and 20,000 junk keys 82 MB for ever."""
    process, agent = await started()
    logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.ERROR)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(40):
            forged = orjson.dumps(
                {"key_id": OLD.key_id[:-1], "schema": 1, "signature": "", "n": number, "x": "x" * 450_000}
            )
            await process.read((b"calls/%d" % number, forged + b"\n" + bytes(500_000)))
        del forged
        for number in range(2_000):
            await process.read((b"calls/junk-%d" % number, b"x" * 1_000))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.NOTSET)
    assert kept < 2_000_000
    assert agent.refused == {"unknown_key": 40, "malformed": 2_000}


async def test_a_document_nested_too_deep_keeps_no_revocation_from_agents() -> None:
    """A forged record must not end the fetch: the same record would come again, and later ones never."""
    process, agent = await started()
    key, value = published(1, 1)
    forged = value.partition(b"\n")[0][:-1] + b',"deep":' + b"[" * 300 + b"]" * 300 + b"}"
    await process.read((key, value), (key, forged), revoked("version", made(1)[1].version))
    assert agent.version is None
    assert agent.refused == {"malformed": 1}


async def test_records_of_an_earlier_release_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """It signed manifests, pointers and weights apart, and kept the pointers of a host in another file."""
    manifest = made(1)[1]
    pointer = {"name": "calls", "channel": "stable", "tenant": "acme", "version": manifest.version, "epoch": 9,
               "reason": "promoted", "created": 1.0, "share": 1.0, "pinned": False, "schema": 1}  # fmt: skip
    EpochFile(str(tmp_path), "acme").save({b"calls/stable": NEW.sign(pointer)})
    process, agent = await started(tmp_path)
    version = f"calls/{manifest.version}".encode()
    await process.read((version, NEW.sign(manifest)), (b"calls/stable", NEW.sign(pointer)), published(1, 1))
    assert agent.version == manifest.version and agent.refused == {"malformed": 2}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_leaked_old_key_locks_nobody_out_in_whatever_order(order: tuple[int, int]) -> None:
    """The operator revokes the old key, and its thief says the same of the new one: the order must not matter."""
    view: AdapterView[AdapterManifest] = AdapterView(CallsManifest, "acme", TRUSTED)
    said = [revoked("key", OLD.key_id), revoked("key", NEW.key_id, OLD)]
    for place in order:
        try:
            view.take(*said[place])
        except AdapterRefused as refusal:
            assert refusal.reason == ("unknown_key" if order == (0, 1) else "outranked")
    view.take(*published(1, 1, NEW))
    assert view.complete() == made(1)
    with pytest.raises(AdapterRefused, match="unknown_key"):
        view.take(*published(2, 2, OLD))


def test_what_a_revoked_key_signed_runs_again_once_another_has_signed_it() -> None:
    view: AdapterView[AdapterManifest] = AdapterView(CallsManifest, "acme", TRUSTED)
    for record in (published(1, 1, OLD), revoked("key", OLD.key_id)):
        view.take(*record)
    assert view.stable is None
    view.take(*published(1, 2))
    assert view.complete() == made(1)


def test_what_a_host_remembers_of_a_revoked_key_hides_no_later_version() -> None:
    """Another process of the host remembers the highest epoch, which the thief of the key signed."""
    merged, view = (AdapterView[AdapterManifest](CallsManifest, "acme", TRUSTED) for _ in range(2))
    merged.take(*published(2, 2**53 - 1, OLD))
    for record in (revoked("key", OLD.key_id), published(3, 2)):
        view.take(*record)
    for key, document in view.documents().items():
        merged.remember(key, document)
    assert merged.stable is not None and merged.stable.manifest == made(3)[1]


def test_a_key_that_ranks_below_says_nothing_about_those_above() -> None:
    view: AdapterView[AdapterManifest] = AdapterView(CallsManifest, "acme", TRUSTED)
    for key in (OLD.key_id, NEW.key_id):
        with pytest.raises(AdapterRefused, match="outranked"):
            view.take(*revoked("key", key, OLD))


@pytest.fixture
def storage(tmp_path: Path) -> tuple[BlobStore, str, Path]:
    store = BlobStore(f"file://{tmp_path}/adapters")
    weights, manifest = made(1)
    uri = store.put("acme", manifest.version, weights)
    return store, uri, tmp_path / "adapters" / "acme" / f"{manifest.version}.safetensors"


def refused(storage: tuple[BlobStore, str, Path]) -> str:
    with pytest.raises(AdapterRefused) as found:
        storage[0].fetch(storage[1], made(1)[1])
    return found.value.reason


def test_a_link_out_of_the_storage_is_not_followed(storage: tuple[BlobStore, str, Path], tmp_path: Path) -> None:
    storage[2].rename(tmp_path / "elsewhere")
    storage[2].symlink_to(tmp_path / "elsewhere")
    assert refused(storage) == "not_allowed"


def test_a_folder_that_is_a_link_is_not_followed(storage: tuple[BlobStore, str, Path], tmp_path: Path) -> None:
    storage[2].parent.rename(tmp_path / "elsewhere")
    storage[2].parent.symlink_to(tmp_path / "elsewhere")
    assert refused(storage) == "not_allowed"


def test_a_pipe_in_the_storage_keeps_nobody_waiting(storage: tuple[BlobStore, str, Path]) -> None:
    storage[2].unlink()
    os.mkfifo(storage[2])
    assert refused(storage) == "not_allowed"


async def test_a_forged_key_writes_no_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    process, _ = await started()
    await process.read((b"calls/x\nERROR all is lost", b"{}"))
    assert "\nERROR all is lost" not in caplog.text
