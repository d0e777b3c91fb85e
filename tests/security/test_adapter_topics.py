"""A writer of the topic of adapters with no key, or an old one, changes nothing for agents.

The attacks are those that The Update Framework lists (https://theupdateframework.io/docs/security/).
"""

import gc
import logging
import os
import tracemalloc
from collections.abc import Callable
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
from tests.rows import for_each

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

    def __init__(self, state_dir: Path | str = "") -> None:
        self.log = AdapterLog()
        self.follower = self.log.feed(TRUSTED, str(state_dir))

    async def agent(self, name: str = "a") -> AdapterSubscriber[CallModelSlot]:
        agent = AdapterSubscriber("nowhere:1", "acme", name, TRUSTED, CallModelSlot(), feed=self.follower)
        await self.follower.join(agent)
        return agent


def runs(agent: AdapterSubscriber[CallModelSlot], seed: int | None) -> bool:
    return agent.version == (None if seed is None else made(seed)[1].version)


UNFIT = b"no call model"
LEAKED = published(2, 2**53 - 1, OLD)
NESTED = published(1, 1)[1].partition(b"\n")[0][:-1] + b',"deep":' + b"[" * 300 + b"]" * 300 + b"}"
ATTACKS: dict[str, tuple[list[Record], int | None, dict[str, int]]] = {
    "a replayed record, and the tombstone of a revocation": (
        [published(1, 1), published(2, 2), (bad := revoked("version", made(1)[1].version)), published(1, 1),
         (bad[0], None)], 2, {"stale": 1},
    ),
    "mix-and-match: each half is genuine": (
        [published(1, 1), record_of(NEW, made(1)[0], made(2)[1], 2)], 1, {"tampered": 1},
    ),
    "endless data": ([published(1, 1), record_of(NEW, bytes(2**21), made(1)[1], 2)], 1, {"oversized": 1}),
    "fast-forward by a stolen key": ([published(1, 1), LEAKED, revoked("key", OLD.key_id), published(3, 2)], 3, {}),
    "a revoked key: what it signed last": ([published(1, 1), LEAKED, revoked("key", OLD.key_id)], None, {}),
    "a revoked key: what another one signed before": (
        [published(1, 1, OLD), published(1, 2), revoked("key", OLD.key_id)], 1, {},
    ),
    "a revoked key: what another one signs afterwards": (
        [published(1, 1, OLD), revoked("key", OLD.key_id), published(1, 2)], 1, {},
    ),
    "a tombstone without a signature": ([published(1, 1), (published(1, 1)[0], None)], 1, {}),
    "a document nested too deep, before a revocation": (
        [published(1, 1), (published(1, 1)[0], NESTED), revoked("version", made(1)[1].version)], None, {"malformed": 1},
    ),
}  # fmt: skip


@for_each("attack", *ATTACKS)
async def test_a_writer_without_a_key_or_with_an_old_one_changes_nothing(attack: str) -> None:
    """Neither for agents that are there nor for those that join late."""
    records, seed, refused = ATTACKS[attack]
    process = Process()
    early = await process.agent("early")
    await process.log.write(*records)
    assert runs(early, seed) and early.refused == refused
    late = await process.agent("late")
    assert runs(late, seed)
    await process.log.write(published(9, 9))
    assert runs(early, 9) and runs(late, 9)
    for agent in (early, late):
        await process.follower.leave(agent)
    results = {orjson.loads(value)["result"] for _, value in process.log.acks}
    assert results == {"applied"} or not attack.endswith("signed before"), "it ran all the time"


async def test_what_runs_leaves_with_its_key_though_the_channel_has_moved() -> None:
    """The next version is signed by a good key, and no agent can load it."""
    process = Process()
    agent = await process.agent()
    await process.log.write(published(1, 1, OLD), record_of(NEW, UNFIT, calls_manifest_for(UNFIT, "acme"), 2))
    assert runs(agent, 1) and agent.refused == {"structure": 1}
    await process.log.write(revoked("key", OLD.key_id))
    assert runs(agent, None)
    await process.follower.leave(agent)
    assert [orjson.loads(value)["result"] for _, value in process.log.acks] == ["applied", "structure", "revoked"]


CANARY_OF_2, CANARY_OF_3 = (
    record_of(NEW, *made(seed), epoch, channel=CANARY, share=0.0) for seed, epoch in ((2, 2), (3, 4))
)
ERASED = [revoked("version", made(seed)[1].version) for seed in (1, 2)]
# What a process has read, what the log holds after its restart, what then runs, and what is refused.
RESTARTS: dict[str, tuple[list[Record], list[Record], int | None, dict[str, int]]] = {
    "an older record is all that compaction left": (
        [published(1, 1), published(2, 2)], [published(1, 1)], None, {"stale": 1},
    ),
    "a log that was frozen before": (
        [published(1, 1), published(2, 2), published(3, 3)], [published(1, 1), published(2, 2)], None, {"stale": 1},
    ),
    "an older record behind a newer one": (
        [published(1, 1), published(2, 2), published(4, 4)], [published(2, 2), published(4, 4), published(1, 1)], 4,
        {"stale": 1},
    ),
    "the same log": ([published(n, n) for n in range(1, 6)], [published(n, n) for n in range(1, 6)], 5, {}),
    # Its record on the channel `canary` is replaced, so that channel of the log ends at an older one.
    "a canary was promoted": (
        [published(1, 1), CANARY_OF_2, published(1, 3), CANARY_OF_3, published(3, 5)],
        [CANARY_OF_2, published(1, 3), published(3, 5)], 3, {},
    ),
    "the version is revoked, and the log does not say so": (
        [published(1, 1), ERASED[0]], [published(1, 1)], None, {},
    ),
    # An erasure revokes versions and deletes them.
    "revoked versions are gone": (
        [published(1, 1), published(2, 2), *ERASED], [published(1, 1), *ERASED], None, {},
    ),
    "the highest epoch was of a stolen key": (
        [published(1, 1), LEAKED, revoked("key", OLD.key_id), published(3, 2)], [published(3, 2)], 3, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESTARTS)
async def test_a_restart_is_not_led_back_and_refuses_nothing_else(case: str, tmp_path: Path) -> None:
    before, after, seed, refused = RESTARTS[case]
    process = Process(tmp_path)
    await process.agent()
    await process.log.catch_up(*before)
    again = Process(tmp_path)
    restarted = await again.agent()
    for records in (after, []):
        await again.log.catch_up(*records)
        assert runs(restarted, seed) and restarted.refused == refused
    await again.log.write(published(9, 9))
    assert runs(restarted, 9) and restarted.refused == refused
    assert oct((tmp_path / "acme.epochs.json").stat().st_mode)[-3:] == "600"


async def test_two_processes_of_a_host_keep_the_higher_epoch(tmp_path: Path) -> None:
    ahead, behind, again = Process(tmp_path), Process(tmp_path), Process(tmp_path)
    await ahead.log.write(published(2, 2))
    await behind.log.write(published(1, 1))
    again = Process(tmp_path)
    restarted = await again.agent()
    await again.log.write(published(1, 1))
    assert runs(restarted, None) and restarted.refused == {"stale": 1}


@pytest.mark.parametrize("held", [b"", b"[]", b'{"a": 1}', b'{"calls/stable": "AAAA"}', b"\xff"])
async def test_a_broken_file_of_epochs_does_not_keep_an_agent_from_working(tmp_path: Path, held: bytes) -> None:
    EpochFile(str(tmp_path), "acme").path.write_bytes(held)
    process = Process(tmp_path)
    agent = await process.agent()
    await process.log.write(published(1, 1))
    assert runs(agent, 1)


async def test_records_of_an_earlier_release_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """It signed manifests, pointers and weights apart, and kept the pointers of a host in another file."""
    manifest = made(1)[1]
    pointer = {"name": "calls", "channel": "stable", "tenant": "acme", "version": manifest.version, "epoch": 9,
               "reason": "promoted", "created": 1.0, "share": 1.0, "pinned": False, "schema": 1}  # fmt: skip
    EpochFile(str(tmp_path), "acme").save({b"calls/stable": NEW.sign(pointer)})
    process = Process(tmp_path)
    agent = await process.agent()
    version = f"calls/{manifest.version}".encode()
    await process.log.write((version, NEW.sign(manifest)), (b"calls/stable", NEW.sign(pointer)), published(1, 1))
    assert runs(agent, 1) and agent.refused == {"malformed": 2}


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


@pytest.mark.long
async def test_documents_that_nobody_signed_are_not_kept() -> None:
    """300 of 1 MB took 154 MB, and 20,000 junk keys 82 MB for ever."""
    process = Process()
    agent = await process.agent()
    logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.ERROR)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(40):
            forged = orjson.dumps(
                {"key_id": OLD.key_id[:-1], "schema": 1, "signature": "", "n": number, "x": "x" * 450_000}
            )
            await process.log.write((b"calls/%d" % number, forged + b"\n" + bytes(500_000)))
        del forged
        for number in range(2_000):
            await process.log.write((b"calls/junk-%d" % number, b"x" * 1_000))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.getLogger("fleetlore.adapters.subscriber").setLevel(logging.NOTSET)
    assert kept < 2_000_000
    assert agent.refused == {"unknown_key": 40, "malformed": 2_000}


@for_each("order", (0, 1), (1, 0))
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


def linked_file(file: Path, elsewhere: Path) -> None:
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def linked_folder(file: Path, elsewhere: Path) -> None:
    linked_file(file.parent, elsewhere)


def pipe(file: Path, elsewhere: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("change", [linked_file, linked_folder, pipe])
def test_no_link_out_of_the_storage_is_followed_and_no_pipe_waited_for(
    change: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    store, (weights, manifest) = BlobStore(f"file://{tmp_path}/adapters"), made(1)
    uri = store.put("acme", manifest.version, weights)
    change(tmp_path / "adapters" / "acme" / f"{manifest.version}.safetensors", tmp_path / "elsewhere")
    with pytest.raises(AdapterRefused) as refused:
        store.fetch(uri, manifest)
    assert refused.value.reason == "not_allowed"


async def test_a_forged_key_writes_no_line_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    await process.agent()
    await process.log.write((b"calls/x\nERROR all is lost", b"{}"))
    assert "\nERROR all is lost" not in caplog.text
