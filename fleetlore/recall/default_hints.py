"""Give hints on common failures before the fleet has met any: the first rule that fits counts.

A rule says how to find out what is wrong or what usually helps, for a kind of failure that many tools share. Once the
fleet has got past a failure, the hint is what worked there (`fleetlore.recall.hints`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.wire.lore import LOOP, Pattern

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
    (r"read-only file system|erofs", "This file system cannot be written to; choose another path."),
    (
        r"too many open files|emfile|enfile",
        "Close files and connections that are no longer needed, or raise the limit (`ulimit -n`).",
    ),
    (
        r"argument list too long|e2big",
        "Pass the names through `xargs` or `find -exec … +` instead of one command line.",
    ),
    (r"is a directory|eisdir", "The path is a folder: name a file in it, or use the recursive form of the command."),
    (r"not a directory|enotdir", "A part of the path is a file; list the folders above it."),
    (
        r"file exists|already exists|eexist",
        "It is there already: look at it, then use it, choose another name or remove it.",
    ),
    (r"directory not empty|enotempty", "Look at what is in the folder before you remove it recursively."),
    (
        r"text file busy|resource busy|database is locked|could not get lock",
        "Another process holds it: wait for it to end.",
    ),
    # version control
    (
        r"merge conflict|automatic merge failed|unmerged|fix conflicts",
        "`git status` lists the files: mend the marked places, `git add` them, then continue (or `--abort`).",
    ),
    (
        r"non-fast-forward|fetch first|failed to push some refs",
        "Fetch and rebase on (or merge) the remote branch, then push.",
    ),
    (r"not a git repository", "Change into the working copy (`git rev-parse --show-toplevel` tells where it is)."),
    (r"would be overwritten by", "Commit or stash the local changes first."),
    # programs
    (
        r"no module named ['\"](?P<name>[\w.-]+)['\"]",
        "Install the package that has `{name}` for the same interpreter: `python -m pip install …`.",
    ),
    (
        r"cannot find (?:module|package) ['\"](?P<name>[^'\"]+)['\"]",
        "Install `{name}`, or correct the path of the import.",
    ),
    (r"cannot import name", "The installed version has no such name: look at its version and at what it does export."),
    (r"importerror|modulenotfounderror", "Install what is missing for the same interpreter, or mend the import."),
    (r"indentationerror|taberror", "Mend the indentation of the line named; use spaces alone."),
    (
        r"unexpected eof|unterminated|eof while scanning|unexpected end of",
        "A bracket or a quote is open: look before the place named.",
    ),
    (
        r"have an error in your sql syntax|syntax error at or near",
        "Look right before the place quoted: a missing comma, quote or keyword, or a reserved word as a name.",
    ),
    (
        r"syntax ?error|parse ?error|unexpected token",
        "Look at the place named and right before it.",
    ),
    (
        r"nameerror|is not defined|referenceerror",
        "Define or import the name first.",
    ),
    (
        r"undeclared|cannot find (?:symbol|name|value|function|type)|undefined(?:: | reference)|unresolved|in scope|"
        r"in this scope|does not exist in the current context|undefvar|object '[^']*' not found",
        "It is misspelled, or not declared or imported in this file.",
    ),
    (r"keyerror", "Print the keys that are there before you take one."),
    (r"indexerror|out of (?:range|bounds)", "Look at the length first; what was searched may have been empty."),
    (
        r"attributeerror|has no attribute|nonetype|undefined \(reading|null ?pointer",
        "Print what the object is: something before it gave another value, often none.",
    ),
    (r"typeerror|cannot (?:convert|cast)|invalid literal", "Look at the types of the values given and convert them."),
    (r"zerodivision|division by zero", "The divisor is zero: look at where it comes from."),
    (r"recursion|stack ?overflow|maximum call stack", "The recursion does not end: look at its base case."),
    (
        r"out of ?memory|oom|killed|exit_137|cannot allocate",
        "It needs more memory than there is: take smaller parts, or stream.",
    ),
    (
        r"jsondecode|invalid json|unexpected character|expecting value",
        "It is no JSON: print the first characters of the answer.",
    ),
    (r"unicode(?:de|en)code", "Name the encoding of the file (`encoding=`), or read it as bytes."),
    # data bases
    (
        r"unknown column|no such column|column .* does not exist",
        "List the table's columns first (`DESCRIBE` or the catalogue).",
    ),
    (
        r"table .*doesn't exist|no such table|relation .* does not exist|unknown table",
        "List the tables first; mind schema and spelling.",
    ),
    (
        r"only_full_group_by|in the group by|not in group by|isn't in group by|without group by",
        "Group by every selected column, or aggregate it.",
    ),
    (r"ambiguous", "Say which table each column is of."),
    (r"duplicate (?:entry|key)|unique constraint", "The row is there already: update it, or choose another key."),
    (r"foreign key", "The row referred to is missing, or still referred to: see to that one first."),
    (r"deadlock", "Run the whole transaction again."),
    # HTTP and authentication
    (
        r"http_401|unauthori[sz]ed|invalid (?:api key|token|credentials)|authentication failed|"
        r"access denied for user|password authentication",
        "The credentials are missing, wrong or expired: renew them; trying again does not help.",
    ),
    (r"publickey|host key verification", "Check key, user and known hosts (`ssh -v` says which key it offers)."),
    (
        r"http_403|forbidden|accessdenied|access denied|not authorized",
        "This identity may not do it: use one that may, or another way.",
    ),
    (
        r"permission denied|eacces|eperm|operation not permitted|permissionerror|errno_13",
        "Look at owner and mode (`ls -ld`, `id`); use a path that you may write to, rather than more rights.",
    ),
    (r"http_404", "Check the address and the id; list what is there first."),
    (r"http_405", "The address is right, the method is not: look up which one it takes."),
    (r"http_409", "The thing has changed or exists: read it again, then decide."),
    (r"http_41[35]|too large", "Send less at once, or in the format that is asked for."),
    (
        r"http_4(?:00|22)|validation|invalid (?:request|argument|parameter|value)",
        "Compare the arguments with what the tool asks for; the message names the one at fault.",
    ),
    (r"context.{0,8}length|maximum context|too many tokens", "Shorten what you send: the model's context is full."),
    # things that are not there
    (
        r"no such file or directory|enoent|filenotfound|cannot find the (?:file|path)|errno_2\b",
        "List the folder first: the path is wrong, or relative to another folder (`pwd`).",
    ),
    (
        r"no such element|element not (?:found|interactable)|stale element|selector",
        "Wait until the page is ready and look for the element anew; its selector may have changed.",
    ),
    (
        r"no matching distribution|could not find a version|eresolve|404 not found - get|unable to locate package",
        "Check name and version of the package, and which versions fit together.",
    ),
    (
        r"manifest unknown|pull access denied|image.*not found|imagepull",
        "Check name and tag of the image, and log in to its registry.",
    ),
    (
        r"port is already allocated|address already in use|eaddrinuse",
        "Find who has the port (`ss -ltnp`), or take another.",
    ),
    (
        r"certificate|ssl|tls|curl: \(code (?:35|51|60)\)",
        "Check the host's name, the clock and the CA certificates; do not switch the check off.",
    ),
    (
        r"curl: \(code 6\)|name or service not known|could not resolve|getaddrinfo|enotfound|no such host",
        "The host's name is wrong or cannot be resolved from here.",
    ),
    (
        r"connection refused|econnrefused|curl: \(code 7\)",
        "Nothing listens there: check host and port, and whether the service runs.",
    ),
    (
        r"unrecognized (?:option|argument)|"
        r"(?:unknown|invalid|illegal|no such) (?:option|flag|command|subcommand|switch)",
        "Look up what it takes with `--help`.",
    ),
    (r"not found|does not exist|unknown", "Look up what there is first; the name or id may be wrong."),
)
_COMPILED = tuple((re.compile(pattern), advice) for pattern, advice in _RULES)


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
