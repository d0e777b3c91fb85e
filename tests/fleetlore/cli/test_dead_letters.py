"""`dead-letters list` and `show`, on a real broker."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner, Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.cli import app as cli_app
from fleetlore.cli.dead_letters import SHOWN_CHARACTERS
from fleetlore.wire.dead_letter import MAX_VALUE_BYTES, mark
from fleetlore.wire.topics import topic
from tests.build import letter
from tests.rows import for_each

SECRET = "ghp_" + "a1B2" * 9
EVENT = {"type": "ai.fleetlore.outcome.v9", "data": {"fleetlore.content": f"token {SECRET}", "password": "hunter22"}}

Run = Callable[..., Result]


@pytest.fixture
def run(
    broker: EmbeddedBroker, tenant: str, make_topics: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The commands, on a topic with these letters."""
    monkeypatch.setattr(cli_app, "entry_points", lambda group: ())
    name = topic(tenant, "dead-letters")

    about = {"to": name, "topic": topic(tenant, "events"), "partition": 0, "offset": 5, "headers": {}, "detail": "no"}
    about["key"] = f"key-{SECRET}".encode()

    def made(value: bytes, reason: str, **changes: Any) -> Any:
        return letter(**{**about, "value": value, "reason": reason, **changes})

    async def fill(letters: Sequence[Any]) -> None:
        await make_topics(broker.address, tenant, "dead-letters", partitions=1)
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for each in letters:
                await producer.send_and_wait(name, each.value, key=each.key, partition=0, headers=each.headers)

    first = made(orjson.dumps(EVENT), "unknown_version", headers={"authorization": b"Bearer " + SECRET.encode()})
    letters = [
        first,
        made(b"\xff\x1b[2Jbroken", "not_json", offset=6, detail=f"at {SECRET} \x1b[2J"),
        made(b"\xff\x1b[2Jbroken", "not_json", offset=6),  # written twice
        made(b'["' + b"x" * (MAX_VALUE_BYTES + 5), "not_json", offset=7, topic=topic(tenant, "trajectories")),
        mark(_Place("0:0"), name),
    ]
    asyncio.run(fill(letters))
    options = ["--broker", broker.address, "--tenant", tenant]
    return lambda *arguments: CliRunner().invoke(cli_app.build_app(), ["dead-letters", *arguments, *options])


class _Place:
    def __init__(self, place: str) -> None:
        self.place = place


def test_list_counts_by_reason_and_shows_the_newest_first(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout and SECRET not in result.stdout
    groups, letters = result.stdout.split("\n\n")
    assert [line.split()[:2] for line in groups.splitlines()[1:]] == [["not_json", "2"], ["unknown_version", "1"]]
    assert [line.split()[0] for line in letters.splitlines()[1:]] == ["0:3", "0:1", "0:0"]
    assert "yes" in letters.splitlines()[3].split() and "yes" not in letters.splitlines()[1].split()


def test_list_filters_and_limits(run: Run) -> None:
    document = json.loads(run("list", "--json").stdout)
    assert (document["total"], [each["id"] for each in document["letters"]]) == (3, ["0:3", "0:1", "0:0"])
    assert [each["sent_back"] for each in document["letters"]] == [False, False, True]
    assert {each["reason"]: each["letters"] for each in document["reasons"]} == {"not_json": 2, "unknown_version": 1}

    def ids(*options: str) -> list[str]:
        return [each["id"] for each in json.loads(run("list", "--json", *options).stdout)["letters"]]

    assert ids("--limit", "1") == ["0:3"]
    assert ids("--reason", "not_json") == ["0:3", "0:1"]
    assert ids("--reason", "not_json", "--reason", "unknown_version") == ["0:3", "0:1", "0:0"]
    assert "1 of 3; more with --limit" in run("list", "--limit", "1").stdout
    assert "No dead letter" in run("list", "--reason", "too_large").stdout


def test_show_masks_secrets_wherever_they_are(run: Run) -> None:
    result = run("show", "0:0")
    assert result.exit_code == 0, result.output
    assert SECRET not in result.stdout and "hunter22" not in result.stdout
    assert '"type": "ai.fleetlore.outcome.v9"' in result.stdout, "JSON is indented"
    assert "[redacted:github_token]" in result.stdout
    document = json.loads(run("show", "0:0", "--json").stdout)
    assert SECRET not in json.dumps(document)
    assert (document["stage"], document["reason"], document["shown_whole"]) == ("sessions", "unknown_version", True)
    assert document["headers"].keys() == {"authorization"}
    broken = run("show", "0:1").stdout
    assert "broken" in broken and "\x1b" not in broken


def test_show_cuts_what_is_long_unless_all_is_asked_for(run: Run) -> None:
    short, full = run("show", "0:3").stdout, run("show", "0:3", "--full").stdout
    assert len(short) < SHOWN_CHARACTERS + 2000 and "more characters; show them with --full" in short
    assert len(full) > MAX_VALUE_BYTES and "--full" not in full
    assert f"{MAX_VALUE_BYTES} of {MAX_VALUE_BYTES + 7} bytes are kept here" in full


@for_each("place", "nonsense", "0", "0:x", "-1:0", "0:99", "7:0", "0:4", "٣:0")
def test_what_is_no_letter_is_wrong_usage(run: Run, place: str) -> None:
    assert run("show", place).exit_code == 2
