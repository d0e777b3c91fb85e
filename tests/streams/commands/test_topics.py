"""`topics apply`: what it says, what it does and how it ends."""

import asyncio
import json

import pytest
from typer.testing import Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.encoder import shared_encoder
from fleetlore.recall.search import row_id
from fleetlore.wire.topics import NAMES, topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.commands.topics import DIFFERENCES_REMAIN
from tests.command import run


def apply(broker: EmbeddedBroker, *arguments: str, partitions: int = 4) -> Result:
    return run("topics", "apply", "--broker", broker.address, *arguments, FLEETLORE_PARTITIONS=str(partitions))


def test_a_dry_run_says_what_a_run_does_and_ends_in_another_code(broker: EmbeddedBroker, tenant: str) -> None:
    tenants = ("--tenant", tenant, "--tenant", f"{tenant}-2")
    for _ in range(2):
        dry = apply(broker, *tenants, "--dry-run")
        assert dry.exit_code == DIFFERENCES_REMAIN, dry.output
        assert "dry run" in dry.stdout
        lines = [line.split() for line in dry.stdout.splitlines() if line.startswith("fleetlore.")]
        assert {line[0] for line in lines} == {topic(t, name) for t in (tenant, f"{tenant}-2") for name in NAMES}
        assert {tuple(line[-2:]) for line in lines} == {("to", "do")}
    done = apply(broker, *tenants)
    assert done.exit_code == 0, done.output
    assert done.stdout.count(" done") == 2 * len(NAMES)
    for arguments in ((), ("--dry-run",)):
        again = apply(broker, *tenants, *arguments)
        assert (again.exit_code, again.stdout) == (0, "All topics match.\n")


@pytest.mark.tansu
def test_what_remains_is_told_once_and_is_in_the_exit_code(broker: EmbeddedBroker, tenant: str) -> None:
    apply(broker, "--tenant", tenant, partitions=2)
    more = apply(broker, "--tenant", tenant, partitions=3)
    assert more.exit_code == DIFFERENCES_REMAIN
    assert more.stdout.count("--grow-keyed does it") == 1
    assert more.stdout.count("this broker cannot do it") == 1, "the embedded broker adds no partitions"
    document = json.loads(apply(broker, "--tenant", tenant, "--grow-keyed", "--json", partitions=3).stdout)
    assert (document["in_sync"], document["dry_run"]) == (False, False)
    assert {(each["kind"], each["found"], each["stated"], each["state"]) for each in document["differences"]} == {
        ("partitions", "2", "3", "unsupported")
    }


@pytest.mark.parametrize("arguments", [("--tenant", "NO"), ("--tenant", "a.b")])
def test_a_name_that_is_no_tenant_is_refused(broker: EmbeddedBroker, arguments: tuple[str, ...]) -> None:
    result = apply(broker, *arguments)
    assert result.exit_code == 1 and "must be 1 to 63" in result.stderr


def test_new_topics_get_the_lore_that_the_store_knows(
    broker: EmbeddedBroker, milvus: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLORE_MILVUS", milvus)

    async def learn() -> None:
        async with MilvusStore(milvus, "", shared_encoder(), Metrics("test")) as store:
            await store.open()
            for name in ("patterns", "items"):
                row = {"id": row_id(tenant, f"of-{name}"), "tenant": tenant, "body": f'{{"id": "{name}"}}', "text": ""}
                await store.upsert(name, [row])

    asyncio.run(learn())
    made = apply(broker, "--tenant", tenant)
    assert made.exit_code == 0 and "2 patterns and items of the store were published again" in made.stdout
    for name in ("patterns", "items"):
        [record] = asyncio.run(read_to_end(broker.address, [topic(tenant, name)], 120))
        assert (record.key, record.value) == (f"of-{name}".encode(), f'{{"id": "{name}"}}'.encode())
    again = apply(broker, "--tenant", tenant)
    assert (again.exit_code, again.stdout) == (0, "All topics match.\n")


def test_a_store_that_is_away_is_said_to_be(
    broker: EmbeddedBroker, unused_address: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLORE_MILVUS", f"http://{unused_address}")
    made = apply(broker, "--tenant", tenant)
    assert made.exit_code == 0 and "Topics of lore are empty" in made.stderr
