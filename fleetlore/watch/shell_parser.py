"""Parse shell text into the commands it would run, without expanding anything.

It finds what `sudo`, `bash -c` and `$(…)` run.
"""

import re
from itertools import islice
from shlex import shlex
from typing import NamedTuple

MAX_TEXT = 3 * 1024
# Only generated loops have more words and operators.
_MAX_TOKENS = 512
# Characters read in all, with nested commands; each text adds a constant.
_MAX_READ, _PER_TEXT = 2 * MAX_TEXT, 64
_HEREDOC = re.compile(r"<<-?[ \t]*+(['\"]?)(?P<end>\w++)\1")
_OPERATORS = "();<>|&\n"
_UNQUOTED = re.compile(r"[;&|()<>\n]+|[^\s;&|()<>'\"]+")
_SUBSTITUTED = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FIRST_WORDS = 8  # to find a substituted command's program
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_PREFIXES = frozenset(
    {"sudo", "doas", "env", "nohup", "time", "nice", "exec", "command", "xargs", "then", "do", "else", "!", "{"}
)
# Options of prefixes that take a value.
_WITH_VALUE = {
    "sudo": ("-u", "-g", "-h", "-p"),
    "nice": ("-n",),
    "xargs": ("-I", "-n", "-P", "-L", "-d"),
    "env": ("-u",),
}


class Command(NamedTuple):
    """One simple command. `words`: program, without its folder, and arguments, unquoted. `into`: targets of
    redirections. `reads`: program whose output it reads through a pipe or substitution, or "".
    """

    words: tuple[str, ...]
    into: tuple[str, ...] = ()
    reads: str = ""

    @property
    def program(self) -> str:
        return self.words[0]

    def flags(self) -> set[str]:
        """Return short options one by one, long ones without their value."""
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
        return [word for word in self.words[1:] if not word.startswith("-")]


def commands(text: str) -> list[Command]:
    """Return the commands in a text, then nested ones."""
    found: list[Command] = []
    waiting = [text[:MAX_TEXT]]
    left = _MAX_READ
    while waiting and left > 0:
        text = waiting.pop(0)[:left]
        left -= len(text) + _PER_TEXT
        outer, inner = _commands(text)
        found += outer
        waiting += inner
    return found


def _commands(text: str) -> tuple[list[Command], list[str]]:
    text = _without_heredocs(text.replace("\\\n", " "))
    found: list[Command] = []
    scripts: list[str] = []
    words: list[str] = []
    into: list[str] = []
    reads = ""
    reader = -1  # index of the reader of the next command's output, `bash <(curl …)`
    redirected = False
    for token in (*_tokens(text), "\n"):
        if token.startswith((">", "&>")):
            redirected = True
        elif all(mark in ";&|()\n<" for mark in token) and ("<" not in token or "(" in token):
            substituted = _substituted(words)
            command = _command(_unwrapped(words), into, reads or _program(substituted))
            scripts += filter(None, ("\n".join(substituted), command and _script(command)))
            if command is not None:
                if reader >= 0:
                    found[reader] = found[reader]._replace(reads=command.program)
                reader = len(found) if "<(" in token else -1
                found.append(command)
            reads = command.program if token in ("|", "|&") and command is not None else ""
            words, into = [], []
        elif redirected:
            into.append(token)
            redirected = False
        elif "<" not in token or token.strip("<"):
            words.append(token)
    return found, scripts


def _without_heredocs(text: str) -> str:
    if "<<" not in text:
        return text
    lines = text.split("\n")
    last = {line.strip(): number for number, line in enumerate(lines)}
    kept: list[str] = []
    rest = iter(enumerate(lines))
    for number, line in rest:
        match = _HEREDOC.search(line)
        if match and last.get(match["end"], -1) > number and not _runs_input(line[: match.start()]):
            line = line[: match.start()] + line[match.end() :]
            for _, data in rest:
                if data.strip() == match["end"]:
                    break
        kept.append(line)
    return "\n".join(kept)


def _tokens(text: str) -> list[str]:
    lexer = shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(islice(lexer, _MAX_TOKENS))
    except ValueError:  # an unclosed quotation
        return [match.group() for match in islice(_UNQUOTED.finditer(text), _MAX_TOKENS)]


def _substituted(words: list[str]) -> list[str]:
    return [
        run or ticked for word in words if "$(" in word or "`" in word for run, ticked in _SUBSTITUTED.findall(word)
    ]


def _program(texts: list[str]) -> str:
    words = _unwrapped(texts[0].split(maxsplit=_FIRST_WORDS)) if texts else []
    return words[0].rpartition("/")[2] if words else ""


def _command(words: list[str], into: list[str], reads: str) -> Command | None:
    return Command((words[0].rpartition("/")[2] or words[0], *words[1:]), tuple(into), reads) if words else None


def _unwrapped(words: list[str]) -> list[str]:
    start = 0
    while start < len(words):
        first = words[start].rpartition("/")[2]
        if _ASSIGNMENT.match(words[start]) or first == "$":
            start += 1
        elif first in _PREFIXES and start + 1 < len(words):
            start += 1
            takes = _WITH_VALUE.get(first, ())
            while start < len(words) and words[start].startswith("-"):
                start += 2 if words[start] in takes else 1
        else:
            break
    return words[start:]


def _script(command: Command) -> str | None:
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
