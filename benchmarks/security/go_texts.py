"""Read texts out of the Go sources of scanners: literals, what joins them, and calls of a few known functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`')
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_DEFINED = re.compile(r"^[ \t]*(?:const |var )?([A-Za-z_]\w*)\s*(?:string\s*)?:?=\s*(?=[\"`\w])", re.M)
_VERB = re.compile(r"%[svqd]")

Function = Callable[..., Any]


class GoSource:
    """One file. What an expression means is a text, a list of texts, or None where nobody knows."""

    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        self.text = text
        self._functions: dict[str, Function] = {"fmt.Sprintf": _formatted, "strings.ToUpper": str.upper, **functions}
        self._defined: dict[str, int] = {}
        for match in _DEFINED.finditer(text):
            self._defined.setdefault(match[1], match.end())
        self._open: set[str] = set()

    def value(self, start: int) -> tuple[Any, int]:
        """What the expression at `start` means, and where it ends."""
        found, end = self._term(self._skip(start))
        while self.text[(end := self._skip(end)) : end + 1] == "+":
            more, end = self._term(self._skip(end + 1))
            found = None if not isinstance(found, str) or not isinstance(more, str) else found + more
        return found, end

    def members(self, start: int, closing: str) -> tuple[list[Any], int]:
        """What the expressions up to `closing` mean."""
        found: list[Any] = []
        at = self._skip(start)
        while at < len(self.text) and self.text[at] != closing:
            value, end = self.value(at)
            if end == at:
                return found, at
            found.append(value)
            at = self._skip(end)
            at = self._skip(at + 1) if self.text[at : at + 1] == "," else at
        return found, at + 1

    def _term(self, at: int) -> tuple[Any, int]:
        if match := _LITERAL.match(self.text, at):
            return _literal(match[0]), match.end()
        if self.text.startswith("[]string{", at):
            return self.members(at + len("[]string{"), "}")
        match = _NAME.match(self.text, at)
        if match is None:
            return None, at
        if self.text[match.end() : match.end() + 1] == "(":
            given, end = self.members(match.end() + 1, ")")
            function: Function | None = self._functions.get(match[0])
            if function is None or (None in given and match[0] != "append"):
                return None, end
            return function(*given), end
        return self._named(match[0]), match.end()

    def _named(self, name: str) -> Any:
        start = self._defined.get(name)
        if start is None or name in self._open:
            return None
        self._open.add(name)
        value, _ = self.value(start)
        self._open.remove(name)
        return value

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at


def _literal(text: str) -> str | None:
    if text[0] == "`":
        return text[1:-1]
    try:
        said: str = json.loads(re.sub(r"\\x([0-9a-f]{2})", r"\\u00\1", text).replace("\\'", "'"), strict=False)
    except ValueError:
        return None
    return said


def _formatted(form: str, *given: Any) -> str | None:
    if len(_VERB.findall(form)) != len(given) or not all(isinstance(each, str) for each in given):
        return None
    left = iter(given)
    return _VERB.sub(lambda _: next(left), form).replace("%%", "%")
