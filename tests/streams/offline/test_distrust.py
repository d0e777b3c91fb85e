"""Decisions of operators beside a live worker, on a real broker and a real Milvus, by the commands."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import orjson
import pytest

from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.redact.redact import stored_name
from fleetlore.wire.events import Event
from fleetlore.wire.lore import DECISIONS, Decision
from fleetlore.wire.topics import topic
from sinks.milvus import MilvusStore
from streams.offline.lore_file import written
from streams.offline.memory_pipeline import MemoryStore
from streams.offline.operator_word import States, is_known
from tests.command import run as run_command
from tests.command import run_beside
from tests.streams.broker_pipeline import BrokerPipeline, Reference
from tests.streams.log_pipeline import flat


async def run(pipeline: BrokerPipeline, *arguments: str) -> tuple[int, str]:
    env = {"FLEETLORE_MILVUS": pipeline.settings.milvus, "FLEETLORE_BROKER": pipeline.settings.broker}
    env["FLEETLORE_GROUP"] = pipeline.settings.group
    done = await run_beside(*arguments, "--tenant", pipeline.tenant, **env)
    return done.exit_code, done.output


async def learned(pipeline: BrokerPipeline) -> list[Sequence[Event]]:
    fleet = pipeline.story.fleet()
    await pipeline.send(flat(fleet))
    await pipeline.drain()
    return fleet


async def replica(pipeline: BrokerPipeline) -> LoreIndex:
    return await LoreReplica.snapshot(pipeline.settings.broker, pipeline.tenant)


async def test_what_an_agent_taught_goes_and_comes_back_with_its_word(
    broker_pipeline: BrokerPipeline, reference: Reference, tmp_path: Path
) -> None:
    pipeline = broker_pipeline
    fleet = await learned(pipeline)
    before = await pipeline.knowledge()
    code, said = await run(pipeline, "distrust", "nobody", "--why", "a slip")
    assert code == 1 and "no agent nobody" in said
    assert orjson.loads((await run(pipeline, "decisions", "--json"))[1]) == []
    code, said = await run(pipeline, "distrust", "a1", "--why", "its key was stolen", "--by", "jo", "--json")
    report = orjson.loads(said)
    assert code == 0 and report["patterns"] > 0 and report["items"] > 0
    topics = [topic(pipeline.tenant, name) for name in ("observations", "candidates")]
    values = [each.value or b"" for each in await read_to_end(pipeline.settings.cluster, topics, 120)]
    assert any(b"reconsider" in each for each in values)
    assert not [each for each in values if b"jo" in each or b"stolen" in each], "an erasure does not reach these topics"
    never = await reference(pipeline.tenant, [event for each in fleet if each[0].agent != "a1" for event in each])
    known = await pipeline.knowledge()
    assert (known.patterns, known.items) == (never.patterns, never.items) != (before.patterns, before.items)
    assert set((await replica(pipeline)).items) == {each["id"] for each in await pipeline.bodies("items")}
    code, said = await run(pipeline, "distrust", "a1", "--why", "a new key", "--undo")
    assert code == 0 and "trusted again" in said
    assert await pipeline.knowledge() == before
    assert set((await replica(pipeline)).items) == {each["id"] for each in await pipeline.bodies("items")}
    # A lore file of another fleet distrusts it, too.
    decided = Decision(kind="agent", id="a1", on=True, by="jo", why="it lies", time=time.time())

    async def decisions() -> AsyncIterator[tuple[str, str, str, str]]:
        yield DECISIONS, decided.key, decided.to_json().decode(), ""

    file = tmp_path / "lore.jsonl"
    file.write_bytes(b"".join([line async for line in written("other", 1.0, decisions(), None)]))
    assert (await run(pipeline, "import", "lore", str(file), "--unsigned", "--yes"))[0] == 0
    known = await pipeline.knowledge()
    assert (known.patterns, known.items) == (never.patterns, never.items)


@pytest.mark.parametrize(("agent", "known"), [("evil", True), ("evil:3", True), ("evil2", False)])
async def test_an_agent_is_known_by_a_session_of_its_principal(
    monkeypatch: pytest.MonkeyPatch, agent: str, known: bool
) -> None:
    store = MemoryStore()
    await store.upsert("judgments", [{"id": "default/s", "tenant": "default", "agent": "evil:1"}])
    monkeypatch.setattr(MilvusStore, "from_settings", lambda *_: nullcontext(store))
    assert await is_known(Settings(), "default", agent) is known


async def test_an_item_and_a_pattern_are_revoked_and_who_did_it_is_kept(broker_pipeline: BrokerPipeline) -> None:
    pipeline = broker_pipeline
    await learned(pipeline)
    shown = await replica(pipeline)
    item, pattern = min(shown.items), min(shown.patterns)
    for kind, id in (("item", item), ("pattern", pattern)):
        code, said = await run(pipeline, "revoke", kind, id, "--why", "it is wrong", "--by", "jo")
        assert code == 0 and "revoked" in said
    shown = await replica(pipeline)
    assert item not in shown.items and pattern not in shown.patterns
    code, said = await run(pipeline, "decisions", "--json")
    kept = [(each["kind"], each["id"], each["on"], each["by"], each["why"]) for each in orjson.loads(said)]
    assert sorted(kept) == [("item", item, True, "jo", "it is wrong"), ("pattern", pattern, True, "jo", "it is wrong")]
    assert (await run(pipeline, "revoke", "item", item, "--why", "it is right", "--undo"))[0] == 0
    assert item in (await replica(pipeline)).items
    assert "trusted" not in (await run(pipeline, "decisions"))[1]
    assert (await run(pipeline, "revoke", "item", "itemless", "--why", "a typo"))[0] == 1
    assert (await run(pipeline, "revoke", "item", item, "--why", " "))[0] == 2
    assert (await run(pipeline, "revoke", "agent", "a1", "--why", "no such kind"))[0] == 2


def test_an_agent_whose_name_holds_a_secret_is_distrusted_as_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    name, decided = "bot-ghp_16C7e42F292c6912E7710c838347Ae178B4a", list[Decision]()

    async def known(settings: Settings, tenant: str, agent: str) -> bool:
        return agent == stored_name(name)

    async def read(*_: object) -> list[Decision]:
        return []

    async def reconsider(settings: Settings, tenant: str, decision: Decision, timeout: float) -> States:
        decided.append(decision)
        return States()

    for replaced in (known, read, reconsider):
        target = {"known": "is_known", "read": "read_decisions"}.get(replaced.__name__, replaced.__name__)
        monkeypatch.setattr(f"streams.offline.operator_word.{target}", replaced)
    assert run_command("distrust", name, "--why", "a slip", "--by", "jo", "--json").exit_code == 0
    assert [each.id for each in decided] == [stored_name(name)] != [name]
