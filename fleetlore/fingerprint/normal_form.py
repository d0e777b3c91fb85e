"""Put the class and the text of an error together in one form, whatever framework handed it over.

The same exception arrives as a type with its text, as a type of the framework (`ToolError`) with the class in front of
the text, as a `repr`, in a sentence of the framework, or as a traceback. Its form is the class without its package, and
the template of the line that says what went wrong, without that class. Codes (HTTP status, errno, exit) stay in it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from fleetlore.fingerprint.template import QUOTED_TEXT, head_line, template

__all__ = ["is_sentence"]

MAX_CLASS = 128
_SEARCHED = 2_000
_MAX_WRAPPERS = 4

# Types that say who hands an error over and not which it is; in lower case, without punctuation.
_WRAPPERS = frozenset(
    {
        "",
        "agenttoolcallerror",
        "agenttoolexecutionerror",
        "baseexception",
        "error",
        "exception",
        "executionerror",
        "failed",
        "failure",
        "functionerror",
        "functionexecutionerror",
        "mcperror",
        "modelretry",
        "other",
        "toolcallerror",
        "toolerror",
        "toolexception",
        "toolexecutionerror",
        "toolfailed",
        "toolfailederror",
        "toolinvocationerror",
        "toolretryerror",
        "unknown",
        "unknownerror",
    }
)
# What frameworks say in front of what the tool said; its arguments, where they are quoted, are at most 400 characters.
_SENTENCE = re.compile(
    r"(?:an )?error(?: occurred)?(?: (?:when|while))? (?:executing|calling|invoking|running|using) (?:the )?"
    r"(?:tool|function)\b(?:(?! with )[^:{}]){0,100}(?: with (?:args|arguments|kwargs|input)\b ?\{.{0,400}?\})?"
    r"(?: with error)?: +"
    r"|(?:tool (?:(?:execution|call|invocation) )?(?:error|failed|failure)|encountered error): +"
    r"|(?:uncaught|unhandled) (?=[A-Z])|error: +(?=(?-i:[A-Z])\w*Error\b)",
    re.I,
)
_SUFFIXES = ("Error", "Exception", "Warning", "Interrupt", "Exit", "Timeout", "Iteration")
_SUFFIX = f"(?:{'|'.join(_SUFFIXES)})"
_NAMED = re.compile(
    rf"(\(?)((?:[A-Za-z_]\w{{0,63}}\.){{0,8}}(?:[A-Z]\w*{_SUFFIX}|Error|Exception)"
    r"|(?:[a-z_]\w{0,63}\.){1,8}(?:[A-Z]\w*|error))"
    r"(?:: +|:$|$|(?=\()|(?<=\w)\) +)"
)
_OF_REPR = re.compile(r"\((['\"])(.*)\1,?\)$")
_QUOTED_LINE = re.compile(r"(['\"])((?:(?!\1)[^\\]|\\.)*)\1")
_ESCAPED, _ESCAPES = re.compile(r"\\(.)"), {"n": "\n", "r": "\r", "t": "\t"}
# `doesn't` is one word, and its sign begins no quoted name.
_CONTRACTED = re.compile(r"(?<=[a-z])['’](?=(?:t|s|re|ve|ll|d|m)(?![\w'’]))")
_EXCEPTION = re.compile(rf"\b(?<![A-Za-z_]\.)((?:[A-Za-z_]\w*\.){{0,16}}[A-Z]\w*{_SUFFIX})\b")
_HTTP = re.compile(
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|(?<!exit )(?<!exited with )status(?:[ _]?code)?|response(?: code)?)[ :=]{1,3}"
    # 127 and 137 are no status of an answer: they are how a program ended.
    r"(10[0-3]|20[0-8]|226|30[0-8]|[45]\d\d)\b"
    r"|\berror(?: code)?[ :=]{1,3}([45]\d\d)\b|\b([45]\d\d) (?=(?-i:[A-Z][a-z]))",
    re.I,
)
_ERRNO = re.compile(r"\berrno[ :=]*(\d+)", re.I)
_ENDED = r"(?: with)?(?: an?)?(?: non-zero)?"
_EXIT = re.compile(
    rf"\b(?:exit(?:ed)?{_ENDED}(?:[ _-]?(?:exit )?(?:status|code))?"
    rf"|(?:return(?:ed)?|finished|terminated|ended|failed|died){_ENDED}(?: (?:exit|return))?"
    r"[ _-]?(?:status(?: code)?|code)|rc)"
    r"['\"]?[ :=(]{1,3}(-?\d{1,10})\b",
    re.I,
)
# What nearly always passes by itself: the network's time-outs too, but no tool's own, which the next call meets again.
_PASSING = re.compile(
    r"(?:connection|connect|read|request|socket|network|gateway)[ _-]?timed?[ _-]?out|temporar(?:y|ily)|rate.?limit"
    r"|too many requests|try again (?:later|in)|service unavailable|connection (?:reset|aborted)"
    r"|bad gateway|overloaded",
    re.I,
)
# A search that finds nothing takes a hundred times as long as to look for a word that each match holds.
_HTTP_WORDS = ("http", "status", "response", "error", *(f"{digit}{next}" for digit in "45" for next in "0123456789"))
_EXIT_WORDS = ("exit", "return", "finish", "terminat", "ended", "fail", "died", "rc")
_PASSING_WORDS = (
    "time", "temporar", "limit", "too many", "try again", "unavailable", "connection", "gateway", "overloaded",
)  # fmt: skip
_PASSING_STATUS = frozenset({"429", "502", "503", "504"})


class _NormalForm(NamedTuple):
    """error_class: at most `MAX_CLASS` characters. template: `fleetlore.fingerprint.template`. transient: a fault that,
    by its words, will pass by itself; whether it does is not measured."""

    error_class: str
    template: str
    transient: bool


@lru_cache(maxsize=16_384)
def normal_form(error_type: str, message: str) -> _NormalForm:
    """The form of an error. Of its own class and the same message the form is the same.

    Args:
        error_type: OpenTelemetry's `error.type`; empty where there is none.
        message: what the environment said.
    """
    head = head_line(message)[:_SEARCHED]
    error_class = error_type.strip().rpartition(".")[2]
    if _is_wrapper(error_class):
        error_class = ""
    elif len(error_class) == 3 and error_class.isascii() and error_class.isdigit():
        error_class = f"http_{error_class}"  # an HTTP client's `error.type` is the status
    error_class, line = _without_wrappers(error_class, head)
    line = _unquoted(line)
    text = template(line)
    folded = line.lower()
    status = _HTTP.search(line) if _has_any(folded, _HTTP_WORDS) else None
    error_class = error_class or _class_by_text(message, line, status, text)
    transient = (
        (status is not None and _group(status) in _PASSING_STATUS)
        or error_class.removeprefix("http_") in _PASSING_STATUS
        or _passes(f"{error_class}: {line}")
    )
    return _NormalForm(error_class[:MAX_CLASS], text, transient)


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, words))


def _passes(said: str) -> bool:
    return _has_any(said.lower(), _PASSING_WORDS) and _PASSING.search(said) is not None


def _is_wrapper(error_class: str) -> bool:
    return "".join(filter(str.isalnum, error_class)).lower() in _WRAPPERS


def _without_wrappers(error_class: str, line: str) -> tuple[str, str]:
    """The class, as stated or as the line begins with it, and the line without it and without what wraps it."""
    for _ in range(_MAX_WRAPPERS):
        if sentence := _SENTENCE.match(line):
            line = line[sentence.end() :]
            continue
        named = _NAMED.match(line)
        if named is None or bool(named[1]) != named.group().rstrip().endswith(")"):
            break
        name = named[2].rpartition(".")[2]
        own = not _is_wrapper(name)
        if own and error_class not in ("", name):
            break
        rest = line[named.end() :]
        said = _OF_REPR.match(rest)
        # The text of a `KeyError` is the `repr` of its key.
        line = rest if said is None else rest[1:-1].rstrip(",") if name == "KeyError" else said[2]
        if own:
            return name, line
    return error_class, line


def is_sentence(text: str) -> bool:
    """Whether a quoted text says something, and is not a name or a key: it has four words or more."""
    return len(text.split(None, 3)) > 3


def _unquoted(line: str) -> str:
    """A line that is one text in quotes, as the `repr` of a `KeyError`'s text, without them; a name keeps its own."""
    quoted = _QUOTED_LINE.fullmatch(line)
    if quoted is None or not is_sentence(text := quoted[2]):
        return line
    return head_line(_ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), text))


def _class_by_text(message: str, line: str, status: re.Match[str] | None, text: str) -> str:
    """Cheapest sound name for the kind of error; its own words, without names, where nothing else is known."""
    # The last one named is the one that was raised; the others are its causes or its handlers.
    searched = message[:_SEARCHED]
    found = _EXCEPTION.findall(searched) if _has_any(searched, _SUFFIXES) else ()
    for name in reversed(found):
        if not _is_wrapper(own := str(name).rpartition(".")[2]):
            return own
    # Of the same line as the template: what a tool says further down differs from one version to the next.
    if status is not None:
        return f"http_{_group(status)}"
    folded = line.lower()
    for pattern, kinds, name in ((_ERRNO, ("errno",), "errno"), (_EXIT, _EXIT_WORDS, "exit")):
        if _has_any(folded, kinds) and (match := pattern.search(line)) is not None:
            return f"{name}_{_group(match)}"
    words = re.findall(r"[a-z]{2,}", QUOTED_TEXT.sub(" ", _CONTRACTED.sub("", text)))
    return "_".join(words[:6]) or "error"


def _group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)
