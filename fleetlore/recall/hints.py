"""Say what usually helps against a failure before the fleet has met any, and how long a passing fault lasts."""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.wire.lore import LOOP, Pattern

__all__ = ["count", "default_hint", "default_loop_hint", "transient_weight"]

# A transient error counts its agents, halved every minute. Below this it has passed: one agent's after two minutes.
_TRANSIENT_HALF_LIFE_SECONDS = 60.0
_TRANSIENT_PASSED = 0.25
TRANSIENT_SECONDS = 300.0

# Groups named in a pattern fill the braces of its advice. It is matched with `error class: template` in lower case.
_RULES: tuple[tuple[str, str], ...] = (
    # loops (`fleetlore.fingerprint.loops`)
    (r"^loop that fails: the same call", "It will fail again: change what the error is about, or do something else."),
    (
        r"^loop: the same call",
        "Use that result, or ask something else; to wait for a change, wait longer between the calls.",
    ),
    (r"^loop.*: \d+ calls in turn", "Take a step that is not one of them."),
    (r"^loop.*: small changes", "Small changes do not help: look up what the tool takes, or use another tool."),
    # shell and file systems
    (
        r"(?:command not found: |(?:^|: )(?:\w*sh: )?(?:line <n>: |<n>: )?)(?P<name>[\w.+-]+): (?:command )?not found",
        "Check with `command -v {name}`; install it, or call it by its full path.",
    ),
    (
        r"command not found|not recognized as an internal",
        "Check with `command -v`; install the program or use its path.",
    ),
    (r"disk full|no space left|enospc|disk quota", "Free space first (`df -h`, `du -sh *`), or write to another disk."),
    (
        r"too many open files|emfile|enfile",
        "Close files and connections that are no longer needed, or raise the limit (`ulimit -n`).",
    ),
    (
        r"argument list too long|e2big",
        "Pass the names through `xargs` or `find -exec … +` instead of one command line.",
    ),
    # version control
    (
        r"merge conflict|automatic merge failed|unmerged|fix conflicts",
        "`git status` lists the files: mend the marked places, `git add` them, then continue (or `--abort`).",
    ),
    (r"not a git repository", "Change into the working copy (`git rev-parse --show-toplevel` tells where it is)."),
    # programs
    (
        r"no module named ['\"](?P<name>[\w.-]+)['\"]",
        "Install the package that has `{name}` for the same interpreter: `python -m pip install …`.",
    ),
    (
        r"cannot find (?:module|package) ['\"](?P<name>[^'\"]+)['\"]",
        "Install `{name}`, or correct the path of the import.",
    ),
    (r"unicode(?:de|en)code", "Name the encoding of the file (`encoding=`), or read it as bytes."),
    # data bases
    (
        r"unknown column|no such column|column .* does not exist",
        "List the table's columns first (`DESCRIBE` or the catalogue).",
    ),
    # HTTP and authentication
    (r"publickey|host key verification", "Check key, user and known hosts (`ssh -v` says which key it offers)."),
    (
        r"permission denied|eacces|eperm|operation not permitted|permissionerror|errno_13",
        "Look at owner and mode (`ls -ld`, `id`); use a path that you may write to, rather than more rights.",
    ),
    # things that are not there
    (
        r"no such file or directory|enoent|filenotfound|cannot find the (?:file|path)|errno_2\b",
        "List the folder first: the path is wrong, or relative to another folder (`pwd`).",
    ),
    (
        r"port is already allocated|address already in use|eaddrinuse",
        "Find who has the port (`ss -ltnp`), or take another.",
    ),
    (
        r"unrecognized (?:option|argument)|"
        r"(?:unknown|invalid|illegal|no such) (?:option|flag|command|subcommand|switch)",
        "Look up what it takes with `--help`.",
    ),
)
_COMPILED = tuple((re.compile(pattern), advice) for pattern, advice in _RULES)


# Give hints on common failures before the fleet has met any: the first rule that fits counts.
#
# A rule says how to find out what is wrong or what usually helps, for a kind of failure that many tools share. Once the
# fleet has got past a failure, the hint is what worked there.
def default_hint(pattern: Pattern | Failure) -> str | None:
    """What usually helps against such a failure; None where no rule fits, and for a transient error."""
    return None if pattern.transient else _default_hint(f"{pattern.error_class}: {pattern.template}".casefold())


def default_loop_hint(template: str, *, failed: bool) -> str:
    """What usually helps out of a loop of that kind (`fleetlore.fingerprint.loops.LoopPattern.template`).

    failed: every call of it does.
    """
    return _default_hint(f"{LOOP}{' that fails' if failed else ''}: {template}") or "Do something else."


@lru_cache(maxsize=4096)
def _default_hint(error: str) -> str | None:
    for pattern, advice in _COMPILED:
        if match := pattern.search(error):
            return advice.format(**match.groupdict())
    return None


def transient_weight(pattern: Pattern, now: float) -> float:
    """Weight of a transient pattern: the agents that met it lately, halved every minute; 0 once it has passed."""
    age = max(0.0, now - pattern.last_seen)
    if not pattern.transient or age > TRANSIENT_SECONDS:
        return 0.0
    weight = max(pattern.agents_lately, 1) * 0.5 ** (age / _TRANSIENT_HALF_LIFE_SECONDS)
    return weight if weight >= _TRANSIENT_PASSED else 0.0


def count(number: int, noun: str) -> str:
    """1 session, 12 sessions, 1,200 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
