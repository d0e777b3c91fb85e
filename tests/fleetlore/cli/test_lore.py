import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner, Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.cli import app as cli_app
from fleetlore.cli import lore as cli_lore
from fleetlore.recall.encoder import shared_encoder
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.broker import free_port
from tests.build import memory_item
from tests.rows import for_each
from tests.stored import row_of

RUNNER = CliRunner()


def pattern(id: str, level: Any, **fields: Any) -> Pattern:
    counts = {"calls": 1, "failures": 1, "sessions": 1, "agents": 1}
    values: dict[str, Any] = {"tool": "sql", "last_seen": 1_700_000_000.0, **counts}
    return Pattern(id=id, level=level, tenant="default", **(values | fields))


PATTERNS = [
    pattern("t1", "tool", calls=100, failures=40, days=((20_001, 50, 30), (20_000, 50, 10))),
    pattern("t2", "tool", tool="read", calls=100, failures=9),
    pattern("t3", "tool", tool="once", calls=1, failures=1),
    pattern("f1", "family", error_class="no_such_table", failures=30),
    pattern("f2", "family", error_class="syntax", failures=8),
    pattern("f3", "family", tool="read", error_class="missing_file", failures=9),
    pattern("c1", "class", template="table 'cars' doesn't exist", failures=20, sessions=2, last_seen=5.0),
    pattern("c2", "class", template="table 'dogs' doesn't exist", failures=10, sessions=9),
    pattern("c3", "class", tool="read", template="503 service unavailable", transient=True),
]


def item(id: str, **fields: Any) -> MemoryItem:
    return memory_item(id, **({"title": "title", "agents": 1} | fields))


ITEMS = [
    item("aa1", title="sql: table 'cars'", content="Failed: x\nWorked: y\x1b[2J", support=8, pattern="c1"),
    item("aa2", title="How to: count the orchestras", kind="strategy", support=37, sessions=("s1", "s2")),
    item("bb3", title="sql: table 'dogs'", support=5),
]


def known_to_agents(patterns: list[Pattern], items: list[MemoryItem]) -> LoreIndex:
    index = LoreIndex()
    for row in patterns:
        index.put_pattern(row)
    for each in items:
        index.put_item(each)
    return index


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli_app, "entry_points", lambda group: ())
    return lambda *arguments: RUNNER.invoke(cli_app.build_app(), list(arguments))


@pytest.fixture
def run(real: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli_lore, "read_lore", lambda *where: known_to_agents(PATTERNS, ITEMS))
    return real


def test_health_is_a_rate_with_an_interval_and_the_commonest_errors(run: Any) -> None:
    lines = run("health").stdout.splitlines()
    assert lines[1].split()[:6] == ["sql", "SQL", "100", "40", "40.0%", "31%–50%"]
    assert "no_such_table ×30, syntax ×8" in lines[1]
    document = json.loads(run("health", "--json").stdout)
    assert [each["tool"] for each in document["tools"]] == ["sql", "once", "read"]
    assert document["tools"][0]["errors"] == [["no_such_table", 30], ["syntax", 8]]
    assert document["tools"][0]["rate"] == 0.4


def test_health_says_whose_texts_may_teach(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def worlds() -> dict[str, str]:
        rows = [line.split() for line in run("health").stdout.splitlines()]
        return {row[0]: row[1] for row in rows[1:] if row and row[0] in ("sql", "once", "read")}

    assert worlds() == {"sql": "SQL", "once": "open", "read": "open"}
    monkeypatch.setenv("FLEETLORE_CLOSED_TOOLS", "rea*,sql")
    assert worlds() == {"sql": "closed", "once": "open", "read": "closed"}


def test_health_over_a_window_by_what_is_asked_for(run: Any) -> None:
    document = json.loads(run("health", "--json", "--days", "1").stdout)
    assert document["window"] == {"unit": "days", "length": 1}
    assert [(each["tool"], each["calls"], each["failures"], each["trend"]) for each in document["tools"]] == [
        ("sql", 50, 30, "worse")
    ]
    errors = json.loads(run("health", "--json", "--by", "error").stdout)["errors"]
    assert [(each["tool"], each["calls"], each["failures"]) for each in errors][:2] == [
        ("sql: no_such_table", 100, 30),
        ("read: missing_file", 100, 9),
    ]
    assert json.loads(run("health", "--json", "--by", "tenant").stdout)["tenants"][0]["calls"] == 201
    assert "worse" in run("health", "--days", "1").stdout


def test_a_harmless_pattern_is_marked(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = pattern("t1", "tool", sessions_ended=100, sessions_failed=50)
    harmless = pattern("c1", "class", template="user not found", sessions_ended=40, sessions_failed=9)
    harmful = pattern("c2", "class", template="disk full", sessions_ended=40, sessions_failed=35)
    monkeypatch.setattr(cli_lore, "read_lore", lambda *where: known_to_agents([tool, harmless, harmful], []))
    lines = run("patterns").stdout.splitlines()
    assert [line for line in lines if "(harmless)" in line] == [line for line in lines if "user not found" in line]


def ids(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    return [each["id"] for each in document.get("patterns", document.get("items"))]


def test_patterns_are_filtered_and_sorted(run: Any) -> None:
    assert ids(run("patterns", "--json")) == ["c1", "c2", "c3"]
    assert ids(run("patterns", "--json", "--tool", "read")) == ["c3"]
    assert ids(run("patterns", "--json", "--level", "family", "-n", "1")) == ["f1"]
    assert run("patterns", "-n", "1").stdout.endswith("1 of 3; more with --limit\n")
    assert "(transient)" in run("patterns").stdout
    assert run("patterns", "--tool", "none").stdout == "No class pattern of tenant default matches.\n"


def test_a_pattern_is_shown_whole(run: Any) -> None:
    shown = run("patterns", "c2").output
    assert "table 'dogs' doesn't exist" in shown and "\x1b" not in shown
    assert "failed     10 of 100 calls\n" in shown and "met by     9 sessions, 1 agent\n" in shown
    assert json.loads(run("patterns", "c2", "--json").output)["id"] == "c2"
    assert "3 patterns begin with 'c'" in run("patterns", "c").stderr
    assert run("patterns", "zz").exit_code == 2
    assert run("patterns", "c2", "--search", "dogs").exit_code == 2


def test_a_failure_is_counted_among_the_calls_of_its_tool(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [line.split()[:4] for line in run("patterns").stdout.splitlines()]
    assert ["c1", "sql", "20", "100"] in rows
    tools = run("patterns", "--level", "tool").stdout.splitlines()
    assert ["t1", "sql", "40", "100"] in [line.split()[:4] for line in tools]
    busy = pattern("t1", "tool", calls=7_200, failures=20, estimated=("all",))
    monkeypatch.setattr(cli_lore, "read_lore", lambda *where: known_to_agents([busy, *PATTERNS[6:]], []))
    assert ["c1", "sql", "20", "≈7,200"] in [line.split()[:4] for line in run("patterns").stdout.splitlines()]
    assert "≈7,200" in run("health").stdout
    assert "failed     20 of ≈7,200 calls\n" in run("patterns", "c1").output


def test_items_are_listed_and_shown(run: Any) -> None:
    assert ids(run("items", "--json")) == ["aa1", "bb3", "aa2"], "what went wrong stands before how a goal was reached"
    assert ids(run("items", "--json", "--kind", "strategy")) == ["aa2"]
    whole = run("items", "aa1").stdout
    assert "Failed: x\nWorked: y\\u001b[2J\n" in whole and "pattern    c1" in whole
    assert json.loads(run("items", "aa2", "--json").stdout)["sessions"] == ["s1", "s2"]
    for each in (["items"], ["items", "aa1"], ["patterns"], ["items", "aa1", "--json"]):
        assert "\x1b" not in run(*each).stdout


@for_each(
    "arguments, said",
    (["items", "zz"], "no item begins with 'zz'"),
    (["items", "aa"], "2 items begin with 'aa'"),
    (["items", "--search", "!?"], "no word to search for"),
    (["items", "aa1", "--search", "table"], "an ID or --search"),
    (["patterns", "--search", "table", "--level", "tool"], "have no text"),
    (["items", "--kind", "joke"], "'--kind': 'joke' is not one of 'recovery'"),
    (["patterns", "--level", "galaxy"], "galaxy"),
    (["patterns", "--limit", "0"], "--limit"),
    (["health", "--hours", "1", "--days", "1"], "--days"),
    (["health", "--hours", "25"], "--hours"),
    (["health", "--by", "mood"], "mood"),
    (["health", "--broker", "nowhere"], "HOST:PORT"),
    (["health", "--tenant", "a.b"], "tenant"),
    (["health", "--timeout", "0"], "--timeout"),
)
def test_a_wrong_argument_is_explained(run: Any, arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_nothing_known_yet_is_no_error(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_lore, "read_lore", lambda *where: known_to_agents([], []))
    for command in ("health", "patterns", "items"):
        result = run(command)
        assert result.exit_code == 0 and "tenant default" in result.stdout
        assert run(command, "--json").exit_code == 0


@pytest.mark.parametrize("command", [["health"], ["patterns"], ["items"], ["adapters", "list"]])
def test_an_unreachable_broker_and_a_missing_stack_are_explained(real: Any, command: list[str], tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = real(*command, "--broker", address, "--timeout", "1", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1 and address in result.stderr
    result = real(*command, "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "; start one with `fleetlore up" in result.stderr


def test_the_store_is_searched(milvus: str, tenant: str, real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill() -> None:
        store = MilvusStore(milvus, "", shared_encoder(), Metrics("test"))
        await store.open()
        rows: dict[str, list[Any]] = {"items": ITEMS, "patterns": [each for each in PATTERNS if each.level == "class"]}
        for collection, lore in rows.items():
            await store.upsert(collection, [row_of(tenant, each) for each in lore])
        await store.close()

    asyncio.run(fill())
    monkeypatch.setenv("FLEETLORE_MILVUS", milvus)
    where = ("--tenant", tenant)
    found = real("items", "--json", "--search", "table dogs", *where)
    assert ids(found)[0] == "bb3" and json.loads(found.stdout)["items"][0]["score"] > 0.5
    assert ids(real("items", "--json", "--search", "orchestras", "--kind", "strategy", *where)) == ["aa2"]
    assert "How to: count" in real("items", "--search", "count orchestras", *where).stdout.splitlines()[1]
    found = real("patterns", "--json", "--search", "table 'dogs' doesn't exist", *where)
    assert ids(found) == ["c2", "c1"] and json.loads(found.stdout)["total"] == 2
    assert ids(real("patterns", "--json", "--search", "unavailable table", "--tool", "read", *where)) == ["c3"]
    assert "No class pattern" in real("patterns", "--search", "elephants", *where).stdout
    assert "No item" in real("items", "--search", "table dogs", "--tenant", f"{tenant}x").stdout

    monkeypatch.setenv("FLEETLORE_MILVUS", f"http://127.0.0.1:{free_port()}")
    away = real("items", "--search", "table", "--timeout", "2", *where)
    assert (away.exit_code, away.stdout) == (1, "") and away.stderr.count("\n") == 1 and "Milvus at" in away.stderr


def test_lore_is_read_from_a_real_broker(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, real: Any, tmp_path: Path
) -> None:
    async def publish() -> None:
        await make_topics(broker.address, tenant, "patterns", "items", partitions=2)
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for each in PATTERNS:
                await producer.send_and_wait(topic(tenant, "patterns"), each.to_json(), key=each.id.encode())
            for known in ITEMS:
                await producer.send_and_wait(topic(tenant, "items"), known.to_json(), key=known.id.encode())
            await producer.send_and_wait(topic(tenant, "items"), None, key=b"bb3")

    asyncio.run(publish())
    stack = {"broker": broker.address, "milvus": "http://127.0.0.1:1", "public_key": ""}
    (tmp_path / "stack.json").write_text(json.dumps(stack))
    where = ("--data", str(tmp_path), "--tenant", tenant)
    health = json.loads(real("health", "--json", *where).stdout)
    assert [each["tool"] for each in health["tools"]] == ["sql", "once", "read"]
    assert ids(real("patterns", "--json", *where)) == ["c1", "c2", "c3"]
    assert ids(real("items", "--json", "--broker", broker.address, "--tenant", tenant)) == ["aa1", "aa2"]
    assert real("adapters", "list", *where).stdout == f"No adapter of tenant {tenant} is published yet.\n"
    # A tenant without records has no lore, and that is no error.
    assert real("health", "--broker", broker.address, "--tenant", f"{tenant}x").exit_code == 0
