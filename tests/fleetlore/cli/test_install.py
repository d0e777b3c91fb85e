"""`fleetlore install`: what it writes, that it takes that out again, and that what it wrote works in a shell."""

import asyncio
import json
import resource
import socket
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from fleetlore import Fleet
from fleetlore.cli.app import build_app
from fleetlore.relay.app import relay_app
from fleetlore.relay.callers import read_tokens
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.test_hooks import RECORDED
from tests.fleetlore.transcripts.samples import DATA
from tests.served import serving

CODEX_HOOKS = RECORDED.with_name("codex-0.171.0.jsonl")
# What Codex wrote meanwhile.
CODEX_ROLLOUT = DATA / "codex/codex-0.171.0.jsonl"
MISSING = "cat: missing.txt: No such file or directory"
FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "cursor": ".cursor/hooks.json"}
RELAYS = ("http://relay:7411", "https://relay:7411", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1")
OTHERS: dict[str, dict[str, Any]] = {
    "claude-code": {
        "model": "opus",
        "hooks": {
            "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "format ü"}]}],
            "Notification": [{"hooks": [{"type": "command", "command": "beep"}]}],
        },
    },
    "codex": {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep", "timeout": 3}]}]}},
    "cursor": {"version": 1, "hooks": {"postToolUse": [{"command": "./format.sh", "matcher": "Write"}]}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "FLEETLORE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    return home


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(build_app(), ["install", *arguments], input=answer)


def settings(home: Path, agent: str, text: bytes) -> Path:
    """The settings of an agent, as they are before."""
    file = home / FILES[agent]
    file.parent.mkdir()
    file.write_bytes(text)
    return file


def commands(value: Any) -> list[str]:
    """All hooks' commands in a file."""
    if isinstance(value, dict):
        own = [value["command"]] if "command" in value else []
        return own + [each for inner in value.values() for each in commands(inner)]
    return [each for inner in value for each in commands(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("agent", FILES)
def test_it_shows_the_change_asks_and_undoes_it(home: Path, agent: str) -> None:
    file = home / FILES[agent]
    refused = run(agent, answer="n\n")
    assert refused.exit_code == 1 and "+  " in refused.output and not file.exists()
    unanswered = run(agent)
    assert unanswered.exit_code == 1 and "is unchanged" in unanswered.output and "--yes" in unanswered.output
    assert not file.exists()
    done = run(agent, answer="y\n")
    assert done.exit_code == 0 and "keep `fleetlore relay` running" in done.output, done.output
    written = file.read_text()
    assert all(f"http://127.0.0.1:7411/v1/hooks/{agent}" in each for each in commands(json.loads(written)))
    assert "has the hooks already" in run(agent).output and file.read_text() == written
    assert run(agent, "--remove", "--yes").exit_code == 0 and not file.exists()
    assert "has no hooks of fleetlore" in run(agent, "--remove").output


@pytest.mark.parametrize("agent", FILES)
def test_what_others_wrote_stays_as_it_is(home: Path, agent: str) -> None:
    before = json.dumps(OTHERS[agent], indent=2, ensure_ascii=False) + "\n"
    file = settings(home, agent, before.encode())
    file.chmod(0o600)
    assert run(agent, "--yes").exit_code == 0
    given = json.loads(file.read_text())
    assert set(commands(OTHERS[agent])) < set(commands(given)) and file.stat().st_mode & 0o777 == 0o600
    ours = [each for each in commands(given) if "/v1/hooks/" in each]
    assert run(agent, "--yes", "--relay", "https://relay.example.com:7411/").exit_code == 0
    moved = [each for each in commands(json.loads(file.read_text())) if "/v1/hooks/" in each]
    assert len(moved) == len(ours) and all(f"https://relay.example.com:7411/v1/hooks/{agent}" in each for each in moved)
    assert run(agent, "--remove", "--yes").exit_code == 0
    assert file.read_text() == before


def test_the_project_s_settings_are_another_file_and_a_folder_may_be_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("claude-code", "--project", "--yes").exit_code == 0
    assert (tmp_path / "project/.claude/settings.json").exists() and not (home / ".claude").exists()
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert "/hooks" in run("codex", "--yes").output
    assert (tmp_path / "elsewhere/hooks.json").exists()


@pytest.mark.parametrize("options", [(), ("--project",)])
def test_settings_that_are_a_link_stay_one(home: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    kept, file = tmp_path / "dotfiles.json", (tmp_path / "project" if options else home) / FILES["claude-code"]
    kept.write_text("{}")
    file.parent.mkdir()
    file.symlink_to(kept)
    assert run("claude-code", "--yes", *options).exit_code == 0
    assert file.is_symlink() and "hooks" in json.loads(kept.read_text())
    assert run("claude-code", "--yes", "--remove", *options).exit_code == 0
    assert file.is_symlink() and kept.read_text() == "{}\n"


@pytest.mark.parametrize("before", ["\ufeff{}", '{"env": {"X": "\\ud83d"}}', '{"env": {"X": "é"}}'])
def test_settings_in_any_encoding_of_json_are_kept(home: Path, before: str) -> None:
    file = settings(home, "claude-code", before.encode())
    assert run("claude-code", "--yes").exit_code == 0
    assert json.loads(before.lstrip("\ufeff")).items() <= json.loads(file.read_text("utf-8")).items()


@pytest.mark.parametrize("before", ["{}", '{"version": 1}', '{"hooks": {}}'])
def test_settings_without_our_hooks_are_left_by_removing_them(home: Path, before: str) -> None:
    file = settings(home, "cursor", before.encode())
    assert "has no hooks of fleetlore" in run("cursor", "--yes", "--remove").output
    assert file.read_text() == before


def test_what_would_go_unencrypted_is_said(home: Path) -> None:
    said = {relay: run("codex", "--yes", "--relay", relay).stderr for relay in RELAYS}
    assert [bool(each) for each in said.values()] == [True, False, False, False, False]
    assert "the token go to http://relay:7411 unencrypted" in said["http://relay:7411"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{// comment", "is no JSON, nothing is changed"),
        (b"[]", "of another form than is known"),
        (b'{"hooks": []}', "of another form than is known"),
        (b'{"hooks": {"Stop": {}}}', "of another form than is known"),
        (b'{"hooks": {"Stop": [{"hooks": ["x"]}]}}', "of another form than is known"),
        (b"\x80", "cannot be read"),
        (b'{"env": {"a": 1e400}}', "1e400 is no number"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"env": {"a": "b"}, "env": {}}', "stands twice"),
    ],
)
def test_settings_that_it_does_not_understand_stay(home: Path, text: bytes, said: str) -> None:
    file = settings(home, "claude-code", text)
    done = run("claude-code", "--yes")
    assert done.exit_code == 1 and said in done.output.replace("\n", " ") and str(file) in done.output
    assert file.read_bytes() == text


def test_a_mistake_is_told(home: Path) -> None:
    assert run("vim").exit_code == 2
    for relay in ("nowhere", "http://[::1", "http://", "https:///x", "ftp://x"):
        assert run("codex", "--yes", "--relay", relay).exit_code == 2 and not (home / FILES["codex"]).exists()
    (home / ".claude").write_text("")
    done = run("claude-code", "--yes")
    assert done.exit_code == 1 and "cannot be" in done.output


@pytest.mark.parametrize("token", ["", "a token of 20 chars."])
async def test_what_it_wrote_sends_a_session_to_the_relay(
    home: Path, fleet: Fleet, recorder: Recorder, tmp_path: Path, token: str
) -> None:
    """By the shell, as Claude Code runs it, what Claude Code sent: on a socket, as Node gives it. Other requests of
    this person go by a proxy.
    """
    token, tokens = token.replace(" ", "-"), tmp_path / "tokens"
    tokens.write_text(f"{token} ann\n")
    (home / ".curlrc").write_text('proxy = "http://127.0.0.1:9"\noutput = "/nowhere/else"\n')
    curl, arguments = tmp_path / "curl", tmp_path / "arguments"
    curl.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {arguments}\nexec /usr/bin/curl "$@"\n')
    curl.chmod(0o755)
    async with serving(relay_app({"default": fleet}, read_tokens(tokens) if token else None)) as relay:
        assert run("claude-code", "--yes", "--relay", relay).exit_code == 0
        hooks = json.loads((home / FILES["claude-code"]).read_text())["hooks"]
        said: list[bytes] = []
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "USER": "dev", "FLEETLORE_TOKEN": token, "HOME": str(home)}
        env["http_proxy"] = "http://127.0.0.1:9"
        for line in RECORDED.read_bytes().splitlines():
            [command] = commands(hooks[orjson.loads(line)["hook_event_name"]])
            ours, its = socket.socketpair()
            with ours:
                with its:
                    process = await asyncio.create_subprocess_shell(
                        command, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
                    )
                ours.sendall(line)
                ours.shutdown(socket.SHUT_WR)
                output, errors = await process.communicate()
            said.append(output)
            assert process.returncode == 0 and not errors
        assert not token or token not in arguments.read_text(), "everybody on the machine can read it"
    assert {each.agent for each in recorder.events} == {"ann" if token else "dev:claude-code"}
    assert len(recorder.outcomes) == 2 and recorder.kinds[-1] == "session.ended"
    told = [each for each in map(orjson.loads, said) if each]
    assert [each["hookSpecificOutput"]["hookEventName"] for each in told] == ["UserPromptSubmit"]


async def test_codex_sends_which_calls_failed(home: Path, fleet: Fleet, recorder: Recorder, tmp_path: Path) -> None:
    """The first says what a working one could say. For a failed call of MCP there is no hook."""
    rollout = tmp_path / "a folder" / "rollout.jsonl"
    rollout.parent.mkdir()
    given = {path: path.read_text().replace(MISSING, "1 of 3 is odd") for path in (CODEX_ROLLOUT, CODEX_HOOKS)}
    rollout.write_text(given[CODEX_ROLLOUT])
    async with serving(relay_app({"default": fleet})) as relay:
        assert run("codex", "--yes", "--relay", relay).exit_code == 0
        hooks = json.loads((home / FILES["codex"]).read_text())["hooks"]
        for line in given[CODEX_HOOKS].replace("/home/me/.codex/sessions/rollout.jsonl", str(rollout)).splitlines():
            [command] = commands(hooks[orjson.loads(line)["hook_event_name"]])
            process = await asyncio.create_subprocess_shell(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"LC_ALL": "C"}
            )
            _, errors = await process.communicate(line.encode())
            assert process.returncode == 0 and not errors
    found = [(each[events.TOOL], recorder.error(each)) for each in recorder.outcomes]
    invalid = "Error executing tool get_current_time: Invalid timezone: 'No time zone found with key Nowhere/City'"
    assert found[0] == ("Bash", ("_OTHER", "1 of 3 is odd\n")) and found[1] == ("Bash", None)
    assert found[2][0] == "Bash" and "ModuleNotFoundError" in str(found[2][1])
    assert found[3:] == [("mcp__time__get_current_time", ("_OTHER", invalid)), ("apply_patch", None)]


def test_a_hook_costs_some_milliseconds_and_is_silent_without_a_relay(home: Path, unused_address: str) -> None:
    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    assert run("codex", "--yes", "--relay", f"http://{unused_address}").exit_code == 0
    command = commands(json.loads((home / FILES["codex"]).read_text()))[0]
    before = used()
    for _ in range(10):
        done = subprocess.run(command, shell=True, input=b"{}", capture_output=True, check=True)
        assert not done.stdout and not done.stderr
    assert (used() - before) / 10 < 0.05, "of the processor; a Python process takes 300 ms"


@pytest.mark.parametrize("agent", FILES)
def test_without_a_relay_no_hook_blocks_a_call(home: Path, agent: str, unused_address: str) -> None:
    """Cursor blocks a call unless its hook allows it; the others take silence for a yes."""
    assert run(agent, "--yes", "--relay", f"http://{unused_address}").exit_code == 0
    hooks = json.loads((home / FILES[agent]).read_text())["hooks"]
    for event, given in hooks.items():
        done = subprocess.run(["sh", "-c", commands(given)[0]], input=b"{}", capture_output=True, check=True)
        assert done.stdout == (b'{"permission":"allow"}' if event == "preToolUse" else b"")
