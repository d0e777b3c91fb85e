"""`fleetlore import`: what it finds, masks and sends."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.transcripts.session import timed_events
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from tests import command
from tests.fleetlore.transcripts.test_read import in_claude_code, in_messages
from tests.read_back import sent

run = partial(command.run, "import")


def test_it_says_what_is_found_and_masked(tmp_path: Path) -> None:
    in_claude_code(tmp_path)
    secret = {"role": "user", "content": "the key is AKIAIOSFODNN7EXAMPLE"}
    (tmp_path / "b.jsonl").write_bytes(orjson.dumps({"type": "user", "sessionId": "s2", "message": secret}))
    done = run("claude-code", str(tmp_path), "--dry-run")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[1] == "2 calls, 1 failed; 3 messages" and lines[2].startswith("from 2026-01-01 00:00:01 to ")
    assert lines[3:] == [
        "masked: 2 aws_access_key",  # goal and message
        "1 parts hold no session and are left out",
        "left out 1 times: call that was never made",
    ]
    counted = orjson.loads(run("claude-code", str(tmp_path), "--dry-run", "--json").output)
    assert (counted["sessions"], counted["calls"], counted["failed"], counted["unreadable"]) == (2, 2, 1, 1)
    assert counted["left_out"] == {"call that was never made": 1}


@pytest.mark.long
async def test_large_logs_are_imported_by_several_processes(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=2)
    for number in range(3):
        said = [{"role": "user", "content": "the key is AKIAIOSFODNN7EXAMPLE"}]
        (tmp_path / f"{number}.jsonl").write_bytes(
            orjson.dumps({"id": f"{number}", "messages": said, "reward": number}) + b"\n" + b" " * 6_000_000
        )
    options = ("messages", str(tmp_path), "--json", "--broker", broker.address, "--tenant", tenant)
    options += ("--agent", "old", "--task", "files")
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    by_one = await asyncio.to_thread(run, *options)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    by_two = await asyncio.to_thread(run, *options)
    assert by_one.exit_code == by_two.exit_code == 0, by_two.output
    found = [orjson.loads(each.output) for each in (by_one, by_two)]
    assert found[0]["sessions"] == 3 and found[0]["outcomes"] == {"failure": 1, "success": 2}
    assert found[0]["masked"] == {"aws_access_key": 6}
    for name in ("sessions", "events", "messages", "outcomes", "masked", "files", "bytes"):
        assert found[0][name] == found[1][name], name
    events = await sent(broker.address, tenant)
    assert len(events) == 2 * len({each["id"] for each in events}) == 2 * found[0]["events"], "the same events twice"
    assert {each["agent"] for each in events} == {"old"} and events[0]["data"][ev.TASK] == "files"

    missing = await asyncio.to_thread(run, *options[:2], "--broker", "127.0.0.1:1", "--timeout", "0.5")
    assert missing.exit_code == 1 and "import them again" in missing.output


def test_mistakes_are_told_in_one_line(tmp_path: Path, unused_address: str) -> None:
    assert "does not exist" in run("messages", str(tmp_path / "no")).output
    assert run("nonsense", str(tmp_path)).exit_code == 2
    in_messages(tmp_path)
    done = run("messages", str(tmp_path), "--broker", unused_address, "--timeout", "0.5")
    assert done.exit_code == 1 and "took 0 of 6 events" in done.output


def test_what_is_of_another_form_ends_with_a_line_and_a_code(tmp_path: Path) -> None:
    in_claude_code(tmp_path)
    done = run("messages", str(tmp_path), "--dry-run")
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert "no session of the form `messages` was found in 1 files" in done.output


def test_a_log_without_times_has_the_same_events_each_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_messages(tmp_path)
    made: list[list[Event]] = []

    def recorded(*given: Any) -> list[Event]:
        made.append(list(timed_events(*given)))
        return made[-1]

    monkeypatch.setattr("fleetlore.cli.transcripts.timed_events", recorded)
    for now in (2e9, 3e9):
        monkeypatch.setattr("time.time", lambda now=now: now)
        assert run("messages", str(tmp_path), "--dry-run").exit_code == 0
    half = len(made) // 2
    assert half and made[:half] == made[half:]
