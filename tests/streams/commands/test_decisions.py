"""`fleetlore decisions` and `revoke`, where what they find is odd."""

import getpass
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.wire.lore import Decision
from fleetlore.wire.topics import topic
from tests.command import run, run_beside


async def test_a_decision_of_another_release_hides_no_other(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "decisions", partitions=1)
    known = Decision(kind="agent", id="a1", on=True, by="me", why="it lies", time=1.0)
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        name = topic(tenant, "decisions")
        await producer.send(name, b'{"kind": "place"}', key=b"place/x")
        await producer.send_and_wait(name, known.to_json(), key=known.key.encode())
    result = await run_beside("decisions", "--tenant", tenant, "--broker", broker.address, "--json")
    assert [each["id"] for each in orjson.loads(result.stdout)] == ["a1"]


def test_who_has_no_name_on_this_machine_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1000620000")

    monkeypatch.setattr(getpass, "getuser", unknown)
    result = run("revoke", "item", "x", "--undo", "--why", "it is right", "--broker", "127.0.0.1:1")
    assert result.exit_code == 2 and "--by" in result.stderr


async def test_what_a_list_shows_of_an_id_is_enough_to_take_a_decision_back(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "decisions", "decisions.history", partitions=1)
    name = topic(tenant, "decisions")
    ids = "item06ed3894d1a17cce17accabb09b1", "item06ed77", "item12"
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for id in ids:
            revoked = Decision(kind="item", id=id, on=True, by="me", why="wrong", time=1.0)
            await producer.send_and_wait(name, revoked.to_json(), key=revoked.key.encode())
    there = "--tenant", tenant, "--broker", broker.address
    undo = "revoke", "item", "--undo", "--why", "it is right", *there
    result = await run_beside(*undo, "item06ed")
    assert result.exit_code == 1 and "2 revoked items begin with 'item06ed'" in result.stderr
    result = await run_beside(*undo, "item06ed3894")
    assert result.exit_code == 0 and ids[0] in result.stdout
    shown = await run_beside("decisions", *there, "--json")
    assert {each["id"] for each in orjson.loads(shown.stdout) if each["on"]} == set(ids[1:])
