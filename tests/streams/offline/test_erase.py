"""Erasure beside a live worker, on a real broker and a real Milvus."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace
from pyarrow import parquet

from benchmarks.replay import read_knowledge
from fleetlore.adapters.signatures import create_signing_key, public_keys, signed_by
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire import events as ev
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision, Hint
from fleetlore.wire.stats import user_hash
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.offline.backfill import run_backfill, switch
from streams.offline.erase import Erasing, erase, remaining
from streams.offline.erase_search import Wanted
from streams.offline.operator_word import decide, read_decisions
from tests.command import run_beside
from tests.streams.broker_pipeline import BrokerPipeline, LonePipeline, Reference, StartWorker
from tests.streams.log_pipeline import flat, in_order

MARK = "zebrafish"


async def erased(pipeline: BrokerPipeline, dry_run: bool = False, **what: str) -> Erasing:
    wanted = Wanted(tenant=pipeline.tenant, everything=not what, **what)
    return await erase(pipeline.settings, wanted, dry_run=dry_run, timeout_seconds=120)


@pytest.mark.long
async def test_what_an_agent_left_is_gone_from_collection_versions_that_are_not_live(
    own_milvus: str, lone_pipeline: LonePipeline, start_worker: StartWorker, reference: Reference
) -> None:
    pipeline = await lone_pipeline(own_milvus)
    settings, fleet = pipeline.settings, pipeline.story.fleet()
    await asyncio.to_thread(start_worker, settings)
    await pipeline.take(flat(fleet))
    await run_backfill(settings, "v2")
    await switch(settings, "v2")  # `main` stays, with what the agent left
    await run_backfill(settings, "v3")
    await erased(pipeline, agent="a1")
    never = await reference(pipeline.tenant, flat([each for each in fleet if each[0].agent != "a1"]))
    for version in ("main", "v2", "v3"):
        async with MilvusStore.from_settings(settings, version=version) as store:
            assert (version, in_order(await read_knowledge(store, pipeline.tenant))) == (version, never)


async def test_a_version_that_another_release_made_is_named_in_the_report() -> None:
    left = remaining(Settings(), compacting=False, other=["v1"])
    assert left["collection version v1, which another release made"] == "until `fleetlore backfill drop v1`"


async def test_what_an_agent_left_is_gone_from_every_store_and_from_replicas_that_were_away(
    broker_pipeline: BrokerPipeline, reference: Reference
) -> None:
    pipeline = broker_pipeline
    fleet = pipeline.story.fleet()
    hers = next(each[0].session for each in fleet if each[0].agent == "a1")
    corrected = [*flat(fleet), pipeline.story.feedback(hers, "failure")]
    await pipeline.take(corrected)
    replica = LoreReplica(pipeline.settings.broker, pipeline.tenant)
    await replica.start()
    assert await replica.caught_up(120)
    await replica.close()  # away from now on
    before = await pipeline.knowledge()
    hint = Hint(text=f"Ask {MARK}.", author="a1", written=1.0, start=True)
    written = Decision(kind="hint", id="h1", on=False, by="a1", why="I know it", time=1.0, hint=hint)
    await decide(pipeline.settings, pipeline.tenant, written)
    looked = await erased(pipeline, dry_run=True, agent="a1")
    assert looked.sessions == 2 and not looked.done and looked.rows["patterns"] and looked.records["events"]
    assert await pipeline.knowledge() == before
    report = await erased(pipeline, agent="a1")
    assert report.done and report.rows == looked.rows
    assert report.decisions == looked.decisions == {DECISIONS: 1, HISTORY: 1} and f"topic {HISTORY}" in report.remains
    assert await read_decisions(pipeline.settings, pipeline.tenant, 120) == []
    (decided,) = await read_decisions(pipeline.settings, pipeline.tenant, 120, HISTORY)
    assert decided == replace(written, by="(erased)", why="", hint=None)
    assert set(report.until) == set(report.records) >= {"events", "feedback", "trajectories", "judgments"}
    assert min(report.until.values()) > report.time + 6 * 86_400
    never = await reference(pipeline.tenant, flat([each for each in fleet if each[0].agent != "a1"]))
    assert await pipeline.knowledge() == never
    await replica.start()
    assert await replica.caught_up(120)
    await replica.close()
    assert set(replica.index.items) == {each["id"] for each in await pipeline.bodies("items")}
    known = orjson.dumps(list(replica.index.items.values()), default=str)
    assert b"good-1" not in known and b"bad-1" not in known
    await pipeline.send(corrected)  # an agent that was away sends it again
    await pipeline.drain()
    assert (await pipeline.knowledge()).state_hash == never.state_hash
    assert (await erased(pipeline, agent="a1")).rows == {"judgments": 0, "patterns": 0, "items": 0}


def test_what_remains_is_that_of_the_settings() -> None:
    settings = Settings(llm_answers="/kept/llm.sqlite3")
    left = remaining(settings, compacting=True)
    assert "dataCoord.gc.dropTolerance" in left["files of the Milvus cluster"]
    assert left["adapter versions"] == "not looked at, no signing key"
    assert [each for each in left if "/kept/llm.sqlite3" in each]
    assert set(remaining(Settings(llm_answers="", signing_key="key"), compacting=False)) == {"topics patterns, items"}


async def test_a_user_and_then_all_the_rest(broker_pipeline: BrokerPipeline, reference: Reference) -> None:
    pipeline = broker_pipeline
    fleet = pipeline.story.fleet()
    hers = [each[0].session for each in fleet if each[0].agent == "a2"]
    for session in fleet:
        if session[0].session in hers:
            session[0].data[ev.USER] = user_hash("jane@example.com")
    await pipeline.take(flat(fleet))
    assert (await erased(pipeline, user="jane@example.com")).sessions == len(hers) > 0
    rest = flat([each for each in fleet if each[0].session not in hers])
    assert await pipeline.knowledge() == await reference(pipeline.tenant, rest)
    assert (await erased(pipeline)).sessions == len(fleet)
    nothing = await pipeline.knowledge()
    assert not nothing.patterns and not nothing.items and not nothing.judgments


async def test_the_command_erases_a_session_and_says_what_is_wrong(
    broker_pipeline: BrokerPipeline, tmp_path: Path
) -> None:
    async def run(*arguments: str) -> tuple[int, str]:
        env = {"FLEETLORE_MILVUS": pipeline.settings.milvus, "FLEETLORE_BROKER": pipeline.settings.broker}
        env["FLEETLORE_GROUP"] = pipeline.settings.group
        env["FLEETLORE_SIGNING_KEY"] = str(tmp_path / "key")
        result = await run_beside("erase", *arguments, **env)
        return result.exit_code, result.output

    pipeline = broker_pipeline
    key, paper = create_signing_key(tmp_path / "key"), tmp_path / "erased.json"
    await pipeline.take(flat(pipeline.story.fleet()))
    given = ("--yes", "--json", "--certificate", str(paper))
    code, said = await run("--session", "bad-1", "--tenant", pipeline.tenant, *given)
    report = orjson.loads(said)
    trusted = public_keys(key.public_base64)
    assert signed_by(paper.read_bytes(), trusted) == key.key_id
    signed = orjson.loads(paper.read_bytes())
    assert {name: signed[name] for name in report} == report
    assert not any("Milvus" in each for each in signed["remains"])  # the embedded store has rewritten its files
    assert "adapter versions" not in signed["remains"]
    assert "max.compaction.lag.ms" in signed["remains"]["topics patterns, items"]
    with pytest.raises(AdapterRefused, match="signature"):
        signed_by(paper.read_bytes().replace(b"bad-1", b"bad-2"), trusted)
    assert code == 0 and report["sessions"] == 1 and report["rows"]["judgments"] == 1
    code, said = await run("--session", "bad-2", "--tenant", pipeline.tenant, "--dry-run")
    assert code == 0 and said.startswith("Would erase session bad-2") and "topic events" in said
    code, said = await run("--session", "bad-2", "--agent", "a3", "--tenant", pipeline.tenant, "--dry-run")
    assert code == 0 and said.startswith("Would erase session bad-2 of agent a3") and "topic events" not in said
    code, said = await run("--session", "nosuch", "--tenant", pipeline.tenant, "--dry-run")
    assert code == 0 and "1 session.\nNo log, store or version holds it" in said
    for wrong in (("--session", "a", "--user", "b", "--yes"), ("--yes",), ("--agent", "a")):  # no terminal to ask
        assert (await run(*wrong))[0] == 1


async def test_no_byte_of_the_embedded_store_nor_a_live_value_holds_what_was_erased(
    lone_pipeline: LonePipeline, own_milvus: str, milvus_folder: Path, start_worker: StartWorker, capfd: Any
) -> None:
    pipeline = await lone_pipeline(own_milvus)
    worker = start_worker(pipeline.settings)
    failed = ("bash", {"command": f"deploy {MARK}"}, "", f"no such target: {MARK}")
    fixed = ("bash", {"command": f"deploy --to {MARK}"}, f"{MARK} is up", None)
    events = pipeline.story.session(f"{MARK}-1", failed, fixed)
    await pipeline.take(flat(pipeline.story.fleet()) + list(events))
    async with MilvusStore(own_milvus, "", StaticEncoder(), Metrics("test")) as store:
        await store.purge()  # a store writes what it has taken at some time
    assert _holds(milvus_folder)
    wanted = Wanted(tenant=pipeline.tenant, session=f"{MARK}-1")
    report = await erase(pipeline.settings, wanted, dry_run=False, timeout_seconds=120)
    assert report.done and report.sessions == 1
    assert not _holds(milvus_folder)
    values = [*await pipeline.bodies("items"), *await pipeline.bodies("patterns")]
    assert values and MARK.encode() not in orjson.dumps(values)
    index = await LoreReplica.snapshot(pipeline.settings.broker, pipeline.tenant)
    known = [*index.items.values(), *index.patterns.values()]
    assert known and MARK.encode() not in orjson.dumps(known, default=str)
    worker.terminate()
    worker.wait(120)
    said = "".join(capfd.readouterr())
    assert "worker" in said and MARK not in said


def _holds(folder: Path) -> list[Path]:
    """Files below a folder with the mark in their bytes, or in the pages of a Parquet file."""
    return [path for path in folder.rglob("*") if path.is_file() and MARK.encode() in _bytes_of(path)]


def _bytes_of(path: Path) -> bytes:
    data = path.read_bytes()
    return data + repr(parquet.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else data
