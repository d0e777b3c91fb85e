"""Parse shell text into the commands it would run, for rules that look at what is done to which argument.

Not a shell: it expands nothing. It tells words from quoted text, one command from the next, and what runs inside
another (`sudo`, `bash -c`, `$(…)`), so that `rm -rf / tmp/x` and `rm -rf /tmp/x` are two things and `echo "rm -rf /"`
is a third.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_TEXT = 5 * 1024
# Words and operators that are looked at: what is more stands in a loop that a machine wrote.
_MAX_TOKENS = 1024
_MAX_DEPTH = 4
_HEREDOC = re.compile(
    r"^(?P<head>[^\n]*?)<<-?\s*(['\"]?)(?P<end>\w+)\2(?P<tail>[^\n]*)\n.*?^\s*(?P=end)\s*$", re.M | re.S
)
_BLANK = " \t\r"
_QUOTES = frozenset("'\"\\")
_TOKEN = re.compile(r"[();<>|&\n]+|(?:'[^']*'|\"(?:[^\"\\]|\\(?s:.))*+\"|\\(?s:.)|[^ \t\r\n'\"\\();<>|&]+)++")
_QUOTED = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\(?s:.))*+)\"|\\(?P<escaped>(?s:.))")
_ESCAPE = re.compile(r"\\([\"\\])")
_UNQUOTED = re.compile(r"[;&|()<>\n]+|[^\s;&|()<>'\"]+")
_SUBSTITUTED = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_PREFIXES = frozenset(
    {"sudo", "doas", "env", "nohup", "time", "nice", "exec", "command", "xargs", "then", "do", "else", "!", "{"}
)
# Options of prefixes that take a word of their own.
_WITH_VALUE = {
    "sudo": ("-u", "-g", "-h", "-p"),
    "nice": ("-n",),
    "xargs": ("-I", "-n", "-P", "-L", "-d"),
    "env": ("-u",),
}


class Command(NamedTuple):
    """One simple command.

    Attributes:
        words: program and arguments, unquoted; the program without its folder.
        into: files that it writes to by redirection.
        reads: program of the command whose output it reads through a pipe or substitution; empty where there is none.
    """

    words: tuple[str, ...]
    into: tuple[str, ...] = ()
    reads: str = ""

    @property
    def program(self) -> str:
        return self.words[0]

    def flags(self) -> set[str]:
        """Short options one by one (`-rf` gives `-r` and `-f`), long ones without their value."""
        found: set[str] = set()
        for word in self.words[1:]:
            if word == "--":
                break
            if word.startswith("--"):
                found.add(word.partition("=")[0])
            elif word.startswith("-"):
                found |= {f"-{letter}" for letter in word[1:]}
        return found

    def operands(self) -> list[str]:
        """Arguments that are no options."""
        return [word for word in self.words[1:] if not word.startswith("-")]


def commands(text: str, depth: int = 0) -> list[Command]:
    """The commands in a text, nested ones too, in order. Text that is no shell never raises."""
    text = text[:MAX_TEXT].replace("\\\n", " ")
    # What a here-document feeds to a shell is run; to anything else it is data.
    text = _HEREDOC.sub(lambda m: m[0] if _runs_input(m["head"]) else f"{m['head']} {m['tail']}", text)
    found: list[Command] = []
    words: list[str] = []
    into: list[str] = []
    reads = ""
    reader = -1  # place of the command that reads the next one's output, `bash <(curl …)`
    redirected = False
    for token in (*_tokens(text), "\n"):
        if token.startswith((">", "&>")):
            redirected = True
        elif all(mark in ";&|()\n<" for mark in token) and ("<" not in token or "(" in token):
            parsed = _parsed(words, into, reads, depth)
            if reader >= 0 and parsed:
                found[reader] = found[reader]._replace(reads=parsed[0].program)
                reader = -1
            if "<(" in token and parsed:
                reader = len(found)
            found += parsed
            reads = parsed[0].program if token in ("|", "|&") and parsed else ""
            words, into = [], []
        elif redirected:
            into.append(token)
            redirected = False
        elif "<" not in token or token.strip("<"):
            words.append(token)
    return found


def _tokens(text: str) -> list[str]:
    """Words, unquoted, and runs of operators. It splits as `shlex` does, which takes characters one by one."""
    found: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if text[end : match.start()].strip(_BLANK):
            break  # a quotation that does not end
        end = match.end()
        word = match.group()
        if len(found) == _MAX_TOKENS:
            return found
        found.append(_QUOTED.sub(_unquoted, word) if _QUOTES.intersection(word) else word)
    if text[end:].strip(_BLANK):
        return _UNQUOTED.findall(text)[:_MAX_TOKENS]  # as good as can be told without quotations
    return found


def _unquoted(match: re.Match[str]) -> str:
    if match["escaped"]:
        return match["escaped"]
    text = match["double"]
    if text is None:
        return match["single"]
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text


def _parsed(words: list[str], into: list[str], reads: str, depth: int) -> list[Command]:
    inner = [
        each
        for word in words
        for run, ticked in _SUBSTITUTED.findall(word)
        for each in (commands(run or ticked, depth + 1) if depth < _MAX_DEPTH else ())
    ]
    words = _unwrapped(words)
    if not words:
        return inner
    program = words[0].rpartition("/")[2] or words[0]
    outer = Command((program, *words[1:]), tuple(into), reads or (inner[0].program if inner else ""))
    script = _script(outer)
    if script is not None and depth < _MAX_DEPTH:
        return [outer, *commands(script, depth + 1), *inner]
    return [outer, *inner]


def _unwrapped(words: list[str]) -> list[str]:
    """Without assignments and programs that only run another one."""
    while words:
        first = words[0].rpartition("/")[2]
        if _ASSIGNMENT.match(words[0]) or first == "$":
            words = words[1:]
        elif first in _PREFIXES and len(words) > 1:
            takes, words = _WITH_VALUE.get(first, ()), words[1:]
            while words and words[0].startswith("-"):
                words = words[2:] if words[0] in takes else words[1:]
        else:
            break
    return words


def _script(command: Command) -> str | None:
    """The text that the command runs as shell, where it is one of its arguments."""
    words = command.words
    if command.program in _SHELLS:
        for place, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                return words[place + 1]
    if command.program == "eval":
        return " ".join(words[1:])
    if command.program == "ssh" and len(command.operands()) > 1:
        return " ".join(command.operands()[1:])
    return None


def _runs_input(head: str) -> bool:
    words = _unwrapped(head.split("|")[-1].split())
    return bool(words) and words[0].rpartition("/")[2] in _SHELLS
