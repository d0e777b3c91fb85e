"""Read which program a command runs, and in which form: what times out, is missing or is refused is mostly the program.

Of free text it is the first word of the command, after `cd x &&`, assignments and `sudo`; of any other call the tool
itself. A form is the program with its subcommand and the set of its options, without values: `nohup pip install
--no-deps &`. It comes in three lengths, the most specific first.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from fleetlore.calls.context import CALL_CHARACTERS
from fleetlore.fingerprint.fingerprint import argument_shape, is_free_text, parsed

Ending = Literal["timed out", "not found", "refused"]

MAX_FORM = 80
_MAX_OPTIONS = 4
# A capital begins a sentence.
_PROGRAM = re.compile(r"[a-z_][\w.+-]{0,39}")
_SUBCOMMAND = re.compile(r"[a-z][a-z-]{1,19}")
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
# One command of a line ends here; what is quoted is no command.
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_END = re.compile(r"&&|\|\||[;|\n]|(?<![>&])&(?![>&])")
_ASIDE = frozenset(["cd", "export", "source", "set", "true", "echo"])
_AROUND = frozenset(["sudo", "env", "time", "exec", "nice"])
# These change how a program ends, so they belong to its form.
_KEPT = frozenset(["nohup", "timeout", "setsid"])
_TIMED_OUT = re.compile(r"\btim(?:ed|e)[ -]?out\b", re.I)
_NOT_FOUND = re.compile(
    r"(?:^|[:\s'\"`])([\w.+-]{1,40})['\"`]?: (?:command )?not found\b(?!:)|command not found: ([\w.+-]{1,40})", re.M
)
_REFUSED = re.compile(
    r"permission denied|not permitted|not allowed|read-only file system|\bforbidden\b|invalid action|is disabled", re.I
)


class _Forms(NamedTuple):
    """Of the first command of a line.

    Attributes:
        own: the most specific first, the program last.
        beside: programs of the other commands of the line, and what runs the first one, such as `sudo`.
    """

    own: list[str]
    beside: list[str]


def forms(tool: str, arguments: str) -> _Forms:
    """Forms of a call; of one that is no free text, the tool."""
    if not is_free_text(argument_shape(arguments)):
        return _Forms([tool], [])
    value = parsed(arguments)
    texts = value.values() if isinstance(value, dict) else (arguments,)
    text = _QUOTED.sub(" ", " ".join(each for each in texts if isinstance(each, str))[:CALL_CHARACTERS])
    own: list[str] = []
    beside: dict[str, None] = {}
    position = 0
    for end in (*_END.finditer(text), None):
        words = text[position : end.start() if end is not None else len(text)].split()
        position = end.end() if end is not None else len(text)
        around = list[str]()
        while words and (words[0] in _AROUND or words[0] in _KEPT or _ASSIGNMENT.fullmatch(words[0])):
            word = words.pop(0)
            if word in _AROUND:
                beside[word] = None
            elif word in _KEPT:
                around.append(word)
                words = words[word == "timeout" :]  # its first word is how long
        program = words[0].rpartition("/")[2] if words else ""
        if not _PROGRAM.fullmatch(program) or program in _ASIDE:
            continue
        if own:
            beside[program] = None
        else:
            own = _forms(program, words[1:], around, behind=end is not None and end[0] == "&")
    return _Forms(own, [each for each in beside if each not in own])


def _forms(program: str, words: list[str], around: list[str], *, behind: bool) -> list[str]:
    first = words[0] if words and _SUBCOMMAND.fullmatch(words[0]) else ""
    options = sorted({found[0] for word in words if (found := _OPTION.match(word)) is not None})[:_MAX_OPTIONS]
    short = f"{program} {first}" if first else program
    whole = " ".join([*around, short, *options, *(["&"] if behind else [])])
    return [each for each in dict.fromkeys((whole, short, program)) if len(each) <= MAX_FORM]


def missing_program(error: str) -> str:
    """The program that an error says is not there; empty where it says nothing of that sort."""
    found = _NOT_FOUND.search(error[:CALL_CHARACTERS])
    name = (found[1] or found[2]) if found is not None else ""
    return name if _PROGRAM.fullmatch(name) else ""


def ending_of(error: str) -> Ending | None:
    """In which of the ways that depend on the program a call failed; None of any other."""
    if missing_program(error):
        return "not found"
    if _TIMED_OUT.search(error[:CALL_CHARACTERS]):
        return "timed out"
    return "refused" if _REFUSED.search(error[:CALL_CHARACTERS]) else None
