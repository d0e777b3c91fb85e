"""The factual store on a real Milvus and a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.recall.replica import LoreReplica
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.store.search import LoreSearch
from models.memory.facts import read_facts
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.commands.lore.facts import register
from streams.embedded.broker import EmbeddedBroker
from streams.offline.facts import carry_over, forget_facts, known_facts, load_facts

pytestmark = pytest.mark.timeout(300)


def store_of(address: str, version: str | None = None) -> MilvusStore:
    return MilvusStore(address, "", shared_encoder(), Metrics("test"), version)


async def told(broker: str, tenant: str) -> set[str]:
    index = await LoreReplica.snapshot(broker, tenant)
    return {item.content for item in index.items.values() if item.kind == "fact"}


async def test_loading_a_document_again_replaces_what_it_said(
    own_milvus: str, broker: EmbeddedBroker, tenant: str, make_topics: Callable[..., Awaitable[None]], tmp_path: Path
) -> None:
    address = broker.address
    await make_topics(address, tenant, "patterns", "items")
    settings = Settings(broker=address, milvus=own_milvus, tenants=(tenant,))
    path = tmp_path / "ports.md"
    path.write_text("# Root\nPorts below 1024 need root.\n# Open\nPort 80 is open.\n")
    first = read_facts(path, tenant, "net")
    assert await load_facts(settings, tenant, [path.name], first) == (2, 0)
    assert await load_facts(settings, tenant, [path.name], first) == (0, 0)
    assert await told(address, tenant) == {"Ports below 1024 need root.", "Port 80 is open."}
    path.write_text("# Root\nPorts below 1024 need root.\n# Open\nPort 8080 is open.\n")
    assert await load_facts(settings, tenant, [path.name], read_facts(path, tenant, "net")) == (1, 1)
    assert await told(address, tenant) == {"Ports below 1024 need root.", "Port 8080 is open."}

    live, other = store_of(own_milvus), store_of(own_milvus, "v2")
    await other.open()
    await carry_over(live, other, [tenant])
    assert await known_facts(other, tenant) == await known_facts(live, tenant)
    search = LoreSearch(settings, tenant)
    (score, found), *_ = await search.items("which ports need root", kind="fact")
    assert score > 0.3 and "1024" in found.content
    for store in (live, other):
        await store.close()

    for ids, source in (({first[0].id, "nope"}, ""), (set(), "nope.md")):
        with pytest.raises(ConfigError, match=r"no fact .*nope"):
            await forget_facts(settings, tenant, ids, source)
    assert len(await told(address, tenant)) == 2
    gone = await forget_facts(settings, tenant, {first[0].id})
    assert [fact.id for fact in gone] == [first[0].id]
    assert first[0].id not in {fact.id for _, fact in await search.items("which ports need root")}
    search.close()
    assert await told(address, tenant) == {"Port 8080 is open."}
    assert len(await forget_facts(settings, tenant, (), source="ports.md")) == 1
    assert await told(address, tenant) == set()

    await load_facts(settings, tenant, [path.name], first)
    path.write_text("")  # it says nothing any more
    app = typer.Typer()
    register(app)
    where = ["--broker", address, "--milvus", own_milvus, "--tenant", tenant]
    run = await asyncio.to_thread(CliRunner().invoke, app, ["facts", "load", str(path), *where])
    assert "2 older forgotten" in run.output
    assert await told(address, tenant) == set()


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    run = CliRunner().invoke(app, ["facts", "load", str(tmp_path / "missing.md")])
    assert run.exit_code == 2 and "missing.md" in re.sub(r"[│\s]", "", run.output)  # a box breaks long paths
    assert CliRunner().invoke(app, ["facts", "forget"]).exit_code == 2
    assert CliRunner().invoke(app, ["facts", "load", __file__, __file__, "--source", "x"]).exit_code == 2
