"""Make the template of an error text: its head line with what differs from one instance to the next masked as `<*>`.

Two texts shall have one template where one piece of advice would serve both. So instances are masked: paths, files,
hosts, users, branches, ids, addresses, times, sizes, values; by what they look like, or else by where they stand
(`pathspec '…'`, `…: No such file or directory`). What the advice would name is kept: commands, packages, modules,
functions, options, tables, columns, keys; and so are codes: HTTP status, errno, exit code, the code of an error. The
rules are in `fleetlore.fingerprint.template_rules` and `fleetlore.fingerprint.maskers`.

Everything is masked alike, because the same place holds a number here and a word there: `got 3`, `got []`; `host
10.0.0.7`, `host build-7`. Measured against labels by `python -m benchmarks patterns`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.maskers import LOOKS, MASK
from fleetlore.fingerprint.template_rules import NOISE, PLACES, QUOTED, SYSTEM_SAYS

__all__ = ["head_line", "template"]

MAX_TEMPLATE = 240
# Of the head line: what comes later says little, and every mask looks at all of it.
_MAX_LINE = 600

_TRACEBACK_SIGNS = ("Traceback (most recent call last)", "During handling of the above exception, another")
_FRAME = 'File "'
_NAMED_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Iteration)\b(?:$|:)")
# A line that says what was done, and the next one what came of it.
_GOES_ON = re.compile(r"Error (?:executing|calling|invoking) .{0,500}:$")
# What was searched for in vain: there it is not the instance but the failure.
_SOUGHT = re.compile(
    rf"\bno (?:match(?:es)?|occurrences?|references?)(?: \w+)? (?:for|of):? ({QUOTED}|.{{1,80}}?)(?= in |$)", re.I
)
_KEPT = "\x1a"

QUOTED_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_ANY_QUOTED = re.compile(rf"(?<!\w){QUOTED}(?!\w)")
# What may be a name that the advice would give: a word with what holds names together, a few words in lower case, a
# command.
_NAME = re.compile(r"[A-Za-z_$@-][\w$@.:+#/-]{0,63}(?:\(\))?|[A-Za-z]+(?: [a-z]+){1,5}|[\w.-]+(?: --?[\w-]+){1,2}")
# A kind of thing of which there are many: what is quoted behind it is an instance.
_INSTANCES = frozenset(
    [
        "pathspec",
        "branch",
        "tag",
        "ref",
        "remote",
        "commit",
        "user",
        "role",
        "account",
        "group",
        "host",
        "hostname",
        "server",
        "node",
        "pod",
        "container",
        "image",
        "volume",
        "network",
        "namespace",
        "bucket",
        "instance",
        "cluster",
        "project",
        "repository",
        "repo",
        "job",
        "queue",
        "stream",
        "session",
        "device",
        "process",
        "thread",
        "file",
        "directory",
        "folder",
        "path",
        "url",
        "request",
        "order",
        "item",
        "customer",
        "ticket",
        "entry",
        "value",
        "endpoint",
        "deployment",
        "service",
        "worker",
        "address",
        "email",
    ]
)
_LEADING = frozenset({"name", "named", "id", "with", "called"})
_VALUES = re.compile(r"\[[\s,.;:<*>-]*\]|\([\s,.;:<*>-]*<\*>[\s,.;:<*>-]*\)|\{[\s,.;:<*>-]*\}")
_WITH_MASK = re.compile(r"\[[^\[\]]*<\*>[^\[\]]*\]")
_QUOTED_MASK = re.compile(r"['\"`‘“]<\*>['\"`’”]")
_RUN = re.compile(r"<\*>(?:[\s,.;:/=*_-]*<\*>)+")
_AT_LINE = re.compile(r" (?:at|on) line <\*>|(?<=\bline )<\*>(?:,? col(?:umn)? <\*>)?", re.I)
# In brackets at the end, with a mask in it: of this one instance.
_ASIDE = re.compile(rf" ?\((?![^()]*(?:{SYSTEM_SAYS}))[^()]*<\*>[^()]*\)[.!]?$", re.I)
# What no sentence ends in.
_INCOMPLETE = re.compile(r"\b(?:an?|the|this|that|existing|valid|needs?|requires?|missing|without) $", re.I)
# Words that lead to an instance, and say nothing when it is gone.
_GLUE = frozenset(
    [
        "for",
        "at",
        "from",
        "to",
        "of",
        "in",
        "on",
        "after",
        "with",
        "url",
        "id",
        "request",
        "trace",
        "character",
        "retry",
        "second",
        "seconds",
    ]
)


def head_line(message: str) -> str:
    """The line that says what went wrong: of a Python traceback the last that names an exception, else the first."""
    lines = [line.strip() for line in message[:8000].splitlines() if line.strip()]
    if not lines:
        return ""
    if lines[0].startswith(_FRAME) or (len(lines) > 1 and any(sign in message for sign in _TRACEBACK_SIGNS)):
        return next((line for line in reversed(lines) if _NAMED_EXCEPTION.match(line)), lines[-1])
    # `thread 'main' panicked at src/main.rs:5:27:` says nothing without the line that follows.
    return " ".join(lines[:2]) if " panicked at " in lines[0] or _GOES_ON.match(lines[0]) else lines[0]


def template(line: str) -> str:
    """A head line, masked, in lower case, at most `MAX_TEMPLATE` characters."""
    return _template(" ".join(line[:_MAX_LINE].split()))


@lru_cache(maxsize=8192)  # an error is read when it comes, and several times more when its session is distilled
def _template(line: str) -> str:
    if not line:
        return ""
    line, sought = _without_sought(line)
    for rules in (NOISE, PLACES, LOOKS):
        lower = line.lower()
        for marks, pattern, instead in rules:
            for mark in marks:
                if mark in lower:
                    line = pattern.sub(instead, line)
                    break
    line = _ANY_QUOTED.sub(_quoted, line)
    if MASK in line:
        for _ in range(4):  # values may lie in one another
            shorter = _RUN.sub(MASK, _VALUES.sub(MASK, _QUOTED_MASK.sub(MASK, line)))
            if shorter == line:
                break
            line = shorter
        line = _ASIDE.sub("", _WITH_MASK.sub(MASK, _AT_LINE.sub("", line)))
    line = _without_tail(line)
    return (line.rstrip(" .,;:").replace(_KEPT, sought)[:MAX_TEMPLATE].strip() or MASK).casefold()


def _without_sought(line: str) -> tuple[str, str]:
    """The line with what was searched for put aside, so that no mask takes it."""
    found = _SOUGHT.search(line) if "no " in line.lower() else None
    if found is None:
        return line.replace(_KEPT, ""), ""
    start, end = found.span(1)
    return line[:start].replace(_KEPT, "") + _KEPT + line[end:].replace(_KEPT, ""), found[1]


def _quoted(match: re.Match[str]) -> str:
    """What is in quotes is kept where it may be a name, and no kind of instance stands before it."""
    quoted, start = match.group(), match.start()
    if not _NAME.fullmatch(quoted[1:-1]):
        return MASK
    words = match.string[max(0, start - 40) : start].lower().replace(":", " ").split()
    while words and words[-1] in _LEADING:
        words.pop()
    if not words or words[-2:-1] == ["or"]:  # `type or namespace name 'x'` is code
        return quoted
    kind = words[-1].partition(".")[0].strip("\"'(,")
    return MASK if kind in _INSTANCES or kind.removesuffix("s") in _INSTANCES else quoted


def _without_tail(line: str) -> str:
    """What ends in nothing but masks, with the words that lead to them, ends before them; what lacks its object without
    the mask (`needs a <*>`) keeps it."""
    while True:
        line = line.rstrip(" .,;:!")
        bare = line.rstrip(")]")
        if bare.endswith(MASK):
            before = bare[: -len(MASK)]
            if _INCOMPLETE.search(before):
                return bare
            line = before.rstrip(" ([#")
            continue
        before, _, last = line.rpartition(" ")
        if not before or last.lower().lstrip("([") not in _GLUE:
            return line
        line = before
