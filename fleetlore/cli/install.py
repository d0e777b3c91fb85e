"""Run `install`."""

import difflib
import json
import math
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import typer

from fleetlore.errors import ConfigError
from fleetlore.files import write_whole
from fleetlore.loopback import hostname, is_loopback

_RELAY = "http://127.0.0.1:7411"
_READABLE = 0o644


class _Group(TypedDict, total=False):
    hooks: list[dict[str, Any]]


class _File(TypedDict, total=False):
    hooks: dict[str, list[_Group]]


class _Settings(NamedTuple):
    folder: str
    variable: str
    file: str
    hooks: tuple[str, ...]


_CLAUDES = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
_SETTINGS = {
    "claude-code": _Settings(".claude", "CLAUDE_CONFIG_DIR", "settings.json",
                             (*_CLAUDES, "PostToolUseFailure", "SubagentStart", "SessionEnd")),
    "codex": _Settings(".codex", "CODEX_HOME", "hooks.json", _CLAUDES),
    "cursor": _Settings(".cursor", "", "hooks.json",
                        ("sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure",
                         "afterAgentResponse", "sessionEnd")),
}  # fmt: skip
# Codex's hooks do not say which calls failed, and its rollout does. A hook goes on with the call's line there, and with
# those of MCP's calls that failed, which have no hook. Tools may be given members of these names: they stand between.
_CODEX_HOOK = (
    'hook=$(cat); of() { printf %s "$hook" | grep -ao "\\"$1\\":\\"[^\\"]*\\"" | cut -d \'"\' -f 4; }; '
    "log=$(of transcript_path | head -n 1); call=$(of tool_use_id | tail -n 1); "
    '{ printf \'%s\\n\' "$hook"; [ -f "$log" ] && tail -c 1000000 "$log" | '
    'grep -a -e "\\"id\\":\\"$call\\"" -e \'"type":"McpToolCall".*"status":"failed"\' | tail -n 8; }'
)
_NOTES = {"codex": "Codex runs new hooks once you have trusted them: /hooks"}


def install(
    agent: Annotated[Literal["claude-code", "codex", "cursor"], typer.Argument(help="Agent whose settings to change.")],
    project: Annotated[
        bool, typer.Option("--project", help="Use this folder's settings, shared by its users, not yours.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the hooks.")] = False,
    relay: Annotated[str, typer.Option("--relay", metavar="URL", help="Address of the relay.")] = _RELAY,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Record and advise the calls of a coding agent.

    The command shows the change, then writes hooks into the agent's settings. The hooks send each call to a relay, and
    do nothing while no relay runs.
    """
    if not (host := hostname(relay.partition("://")[2].partition("/")[0])) or not re.match("https?://", relay):
        raise typer.BadParameter(f"{relay!r} is no http:// or https:// address", param_hint="--relay")
    if relay.startswith("http://") and not remove and not is_loopback(host):
        typer.echo(f"Warning: the calls and the token go to {relay} unencrypted; give an https:// address", err=True)
    file = _file(agent, project)
    before = _read(file)
    given = _parsed(file, before)
    _take_out(given, agent)
    if not remove:
        if agent == "cursor":
            given.setdefault("version", 1)
        hooks = given.setdefault("hooks", {})
        for event in _SETTINGS[agent].hooks:
            hook = {"command": _command(agent, relay, event)}
            hooks.setdefault(event, []).append(hook if agent == "cursor" else {"hooks": [{"type": "command", **hook}]})
    after = json.dumps(given, indent=2, ensure_ascii=False) + "\n" if given else ""
    if after.encode(errors="replace").decode() != after:
        after = json.dumps(given, indent=2) + "\n"  # half a surrogate pair has no UTF-8
    if _parsed(file, before) == given:
        typer.echo(f"{file} {'has no hooks of fleetlore' if remove else 'has the hooks already'}")
        return
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
    typer.echo("".join(lines))
    if not yes and not _agreed(file):
        raise typer.Abort
    _write(file, after)
    if not remove:
        typer.echo(f"The hooks of {agent} send to {relay}: keep `fleetlore relay` running there.")
        typer.echo(_NOTES.get(agent, ""), nl=agent in _NOTES)


def _agreed(file: Path) -> bool:
    try:
        return typer.confirm("Write this?")
    except typer.Abort:  # standard input has ended, or Ctrl-C
        raise ConfigError(f"{file} is unchanged: without a terminal say --yes") from None


def _file(agent: str, project: bool) -> Path:
    at = _SETTINGS[agent]
    if project:
        return Path.cwd() / at.folder / at.file
    named = os.environ.get(at.variable) if at.variable else None
    return (Path(named) if named else Path.home() / at.folder) / at.file


def _command(agent: str, relay: str, event: str) -> str:
    """curl starts in milliseconds."""
    # Cursor blocks a call that its hook does not allow.
    silent = """printf '{"permission":"allow"}'""" if event == "preToolUse" else "true"
    url = shlex.quote(f"{relay.rstrip('/')}/v1/hooks/{agent}")
    # Without a token, all agents of a person are one principal.
    who = "${FLEETLORE_TOKEN:+Fleetlore-Token: }${FLEETLORE_TOKEN:-Fleetlore-Agent: ${USER:-me}:" + agent + "}"
    # Other users can read arguments, so options come from a file. Stdin stays the hook's: Node passes a socket, which
    # /dev/fd/3 cannot open.
    curl = f"curl -q -sf -m 2 --noproxy localhost,127.0.0.1,::1 -K /dev/fd/4 --data-binary @- {url}"
    sent = f"""{{ printf 'header = "%s"\\n' "{who}" | {curl} 4<&0 <&3; }} 3<&0 || {silent}"""
    return f"{_CODEX_HOOK} | {sent}" if agent == "codex" else sent


def _take_out(given: dict[str, Any], agent: str) -> None:
    hooks, emptied = given.get("hooks", {}), False
    for event, groups in list(hooks.items()):
        kept = []
        for group in groups:
            inner = group.get("hooks")
            if inner is not None and (others := [each for each in inner if not _is_ours(each, agent)]) != inner:
                if not others:
                    continue
                group = {**group, "hooks": others}
            if not _is_ours(group, agent):
                kept.append(group)
        if kept:
            hooks[event] = kept
        elif groups:
            del hooks[event]
            emptied = True
    if emptied and not hooks:
        del given["hooks"]
        if agent == "cursor" and given == {"version": 1}:
            given.clear()


def _is_ours(hook: dict[str, Any], agent: str) -> bool:
    return f"/v1/hooks/{agent}" in str(hook.get("command", ""))


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def _parsed(file: Path, text: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = json.loads(
            text or "{}", object_pairs_hook=_members, parse_float=_number, parse_constant=_number
        )
        msgspec.convert(given, _File)
    except msgspec.ValidationError:
        raise ConfigError(f"{file} has hooks of another form than is known, nothing is changed") from None
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON, nothing is changed: {error}") from None
    return given


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError: writing them would lose the first of two."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError(f"a member stands twice among {', '.join(found)}")
    return found


def _number(text: str) -> float:
    """Raises ValueError: it could not be written as JSON."""
    if not math.isfinite(found := float(text)):
        raise ValueError(f"{text} is no number of JSON, or too large")
    return found


def _write(file: Path, text: str) -> None:
    try:
        if not text and not file.is_symlink():
            file.unlink(missing_ok=True)
            return
        file = file.resolve()  # keep a link a link
        file.parent.mkdir(parents=True, exist_ok=True)
        mode = file.stat().st_mode & 0o777 if file.exists() else _READABLE
        write_whole(file, (text or "{}\n").encode(), mode)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from None
