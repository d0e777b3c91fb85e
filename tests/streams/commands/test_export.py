"""`fleetlore export` reads the log of a broker, or logged sessions, and writes what a trainer reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.cli.app import build_app
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.events import Definitions, definitions_id
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import DIGEST_TEXT, Judgment
from streams.stage.operators import Erasure
from tests.build import call, judgment

WRONG, RIGHT = "SELECT nme FROM cars", "SELECT name FROM cars"


def export(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["export", *arguments])


def recovery(session: str, table: str, definitions: str = "") -> Judgment:
    steps = (
        call("sql", "SHOW TABLES", "t" * 2 * DIGEST_TEXT),
        call("sql", f"{WRONG}, {table}", error="no such column: nme"),
        call("sql", f"{RIGHT}, {table}", "Beetle"),
    )
    return judgment(*steps, session=session, goal=f"Names of {table}?", task=table, events=5, definitions=definitions)


async def publish(address: str, tenant: str, sessions: list[Judgment], erased: list[str]) -> None:
    """The log as the pipeline leaves it: whole sessions, and judgments with their digests."""
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for each in sessions:
            whole = each.trajectory
            judged = replace(each, trajectory=whole.digest())
            await producer.send_and_wait(topic(tenant, "trajectories"), b"[%b]" % whole.to_json())
            await producer.send_and_wait(topic(tenant, "judgments"), b"[%b]" % judged.to_json())
        for session in erased:
            erasure = Erasure(time=1.0, sessions=(stable_hash(session),))
            await producer.send_and_wait(topic(tenant, "erasures"), erasure.to_json(), key=erasure.key.encode())


def rows(folder: Path) -> list[dict[str, Any]]:
    parts = [folder / name for name in ("train.jsonl", "test.jsonl")]
    return [orjson.loads(line) for part in parts for line in part.read_bytes().splitlines()]


async def test_sessions_come_whole_from_the_log_and_erased_ones_do_not(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, "judgments", "trajectories", "erasures", "definitions", partitions=2)
    given = Definitions(
        system="You write SQL for ada@example.org.", tools=({"name": "sql", "inputSchema": {}},)
    ).to_json()
    kept, erased = recovery("kept", "ships", definitions=definitions_id(given)), recovery("erased", "planes")
    await publish(broker.address, tenant, [kept, erased], ["erased"])
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(topic(tenant, "definitions"), given, key=definitions_id(given).encode())
    out = tmp_path / "pairs"
    done = await _in_thread("--broker", broker.address, "--tenant", tenant, "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    (row,) = rows(out)
    assert row["prompt"][0] == {"role": "system", "content": "You write SQL for <email>."}
    (tool,) = orjson.loads(row["tools"])
    assert tool["function"] == {"name": "sql", "parameters": {"type": "object", "properties": {}}}  # as defined
    assert row["prompt"][-1]["content"] == kept.trajectory.steps[0].result  # and not the digest's first characters
    assert orjson.loads((out / "sessions.json").read_bytes())["sessions"] == ["kept"]
    assert orjson.loads(done.output)["row_kinds"] == {"recovery": 1}


async def _in_thread(*arguments: str) -> Result:
    return await asyncio.to_thread(export, *arguments)  # the command has a loop of its own


def test_logs_take_the_place_of_a_broker(tmp_path: Path) -> None:
    log = [
        {"role": "user", "content": "Names of ships?"},
        *_called("1", WRONG, "Error: no such column: nme"),
        *_called("2", RIGHT, "Beetle"),
        {"role": "assistant", "content": "Beetle"},
    ]
    (tmp_path / "log.jsonl").write_bytes(orjson.dumps({"messages": log, "reward": 1.0, "task_id": "ships"}))
    done = export("--logs", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "pairs"))
    assert done.exit_code == 0, done.output
    (row,) = rows(tmp_path / "pairs")
    assert row["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"query": RIGHT}
    both = export("--logs", str(tmp_path), "--data", "y", "--out", str(tmp_path / "other"))
    assert both.exit_code == 2 and "give --logs" in both.output


def _called(id: str, query: str, answer: str) -> list[dict[str, Any]]:
    function = {"name": "sql", "arguments": orjson.dumps({"query": query}).decode()}
    call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": answer},
    ]
