"""Detect from calls and results that a session goes in circles, at the agent and from the log.

repeat: the same call gave the same result repeatedly, with or without others between (A A A, A A x A A y). cycle:
several calls in turn with the same results (A B A B). retry: the same failure again, though the call changed a little.

Loops exclude polling (the same call with other results) and calls without results, which may be scratch pads. Parts of
results that change in every call are masked.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from fleetlore.fingerprint.fingerprint import arguments_text, call_id, pattern_id
from fleetlore.wire.lore import LOOP
from fleetlore.wire.trajectory import Step
from fleetlore.words import WORD

__all__ = ["Loop", "LoopDetector", "LoopPattern"]

# A repeat: calls in a row, or with others between.
_IN_A_ROW = 3
_OFTEN, _OF_LAST = 4, 6
# A cycle: several calls in turn, at least twice.
_MAX_PERIOD = 4
_MIN_CYCLE_CALLS = 6
# A retry: this many such calls in a row.
_RETRIES = 4
ALIKE = 0.5

_KEPT = max(_OF_LAST, 2 * _MAX_PERIOD, _MIN_CYCLE_CALLS)
# Characters of a result, and of arguments.
_MAX_KEPT = 8_000
_MAX_COMPARED = 1_000
_MAX_TOOLS = 200
# Stores keep texts of this length. The call's mark replaces longer ones.
_MAX_WHOLE = 300
# Characters hashed at each end of a longer text, with its length: hashing 1 MiB takes 20 ms.
_HASHED_END = 16 * 1024
# Texts equal after masking have a masked part this near to their first difference.
_NEAR = 80
_VOLATILE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"  # dates and times
    r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\b1\d{9}(?:\.\d+|\d{3})?\b"  # seconds or milliseconds since the epoch
    r"|\b\d+(?:\.\d+)? ?(?:ms|s|sec|seconds|µs|us)\b"
    r"|\b0x[0-9a-fA-F]+\b"
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|/tmp/[\w./-]+|\bpid[ =:]+\d+",
    re.IGNORECASE,
)


class LoopPattern(NamedTuple):
    """The common form of loops of many sessions, with ids of the `patterns` topic. `tool`: the tools of one round,
    joined. `template`: the kind of circle. `call`: the kind of call that loops, or None for several.
    """

    tool: str
    template: str
    family: str
    class_: str
    exact: str
    call: str | None


class _Call:
    __slots__ = ("_arguments", "pattern", "result", "tool")
    mark = ""

    def __init__(self, tool: str, arguments: str, result: str, pattern: str | None) -> None:
        self.tool, self._arguments, self.result, self.pattern = tool, arguments, result, pattern

    @property
    def call(self) -> str:
        return call_id(self.tool, self._arguments)


_Called = _Call | Step


class Loop(NamedTuple):
    kind: Literal["repeat", "cycle", "retry"]
    times: int
    around: tuple[_Called, ...]
    arguments: tuple[str, ...]

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple([each.tool for each in self.around])

    @property
    def id(self) -> str:
        """Equal from any point of the round."""
        failure = self.around[0].pattern
        if self.kind == "retry" and failure is not None:
            return failure
        pairs = zip(self.tools, self.arguments, strict=True)
        return pattern_id(LOOP, *_turned(tuple([pattern_id(LOOP, *pair) for pair in pairs])))

    @property
    def failed(self) -> bool:
        return all(each.pattern is not None for each in self.around)

    @property
    def pattern(self) -> LoopPattern:
        return _pattern(self.kind, self.tools, tuple([each.call for each in self.around]))

    def __str__(self) -> str:
        if self.kind == "repeat":
            came = "failed in the same way" if self.failed else "gave the same result"
            return f"{self.tools[0]} was called {self.times} times with the same arguments and {came}."
        if self.kind == "retry":
            return f"{self.tools[0]} failed {self.times} times in a row in the same way."
        return f"The calls {' → '.join(self.tools)} were gone through {self.times} times with the same results."


class LoopDetector:
    """Detects the loops of one session in its last eight calls."""

    __slots__ = ("_arguments", "_calls", "_failing", "_keys")

    def __init__(self) -> None:
        self._calls: list[_Called] = []
        self._arguments: list[str] = []
        self._keys: list[str] = []  # equal for equal whole arguments
        self._failing = 0  # calls in a row with the same failure

    def add(self, tool: str, arguments: object, result: object, pattern: str | None = None) -> Loop | None:
        """Add a call that ended and return the session's loop. `pattern`: class of its failure."""
        kept = "" if pattern else result if isinstance(result, str) else arguments_text(result)
        text = arguments_text(arguments)
        return self.take(text, _Call(tool, text, kept[:_MAX_KEPT], pattern))

    def take(self, arguments: str, last: _Called) -> Loop | None:
        """Do `add` for a recognised call. `arguments`: their whole text, or the mark."""
        calls, texts, keys = self._calls, self._arguments, self._keys
        key = key_of(arguments, last.mark)
        again = key in keys
        if last.pattern is None:
            self._failing = 0
        else:
            self._failing = self._failing + 1 if calls and calls[-1].pattern == last.pattern else 1
        if len(calls) == _KEPT:
            del calls[0], texts[0], keys[0]
        calls.append(last)
        texts.append(arguments)
        keys.append(key)
        if again and (loop := self._repeat() or self._cycle()):
            return loop
        return self._retry() if self._failing >= _RETRIES else None

    def compared(self) -> Iterator[tuple[Any, str]]:
        """Yield the calls that the next one is compared with, with arguments or mark."""
        yield from zip(self._calls[-_KEPT + 1 :], self._arguments[-_KEPT + 1 :], strict=True)

    def _repeat(self) -> Loop | None:
        calls, keys = self._calls, self._keys
        last, key = calls[-1], keys[-1]
        if keys.count(key) < _IN_A_ROW:
            return None
        pairs = zip(keys[-_OF_LAST:], calls[-_OF_LAST:], strict=True)
        same = [other == key and _same(each, last) for other, each in pairs]
        times = sum(same)
        in_a_row = same[-_IN_A_ROW:] == [True] * _IN_A_ROW
        return Loop("repeat", times, (last,), (self._arguments[-1],)) if times >= _OFTEN or in_a_row else None

    def _cycle(self) -> Loop | None:
        calls, texts, keys = self._calls, self._arguments, self._keys
        for period in range(2, _MAX_PERIOD + 1):
            rounds = max(2, -(-_MIN_CYCLE_CALLS // period))
            span = rounds * period
            if len(calls) < span or keys[-span:-period] != keys[period - span :]:
                continue
            if all(map(_same, calls[-span:-period], calls[period - span :])):
                return Loop("cycle", rounds, tuple(calls[-period:]), tuple(texts[-period:]))
        return None

    def _retry(self) -> Loop | None:
        # The latest first: most are not alike, and splitting a long call into words is slow.
        texts = self._arguments[: -_RETRIES - 1 : -1]
        alike = all(_alike(one, other) for one, other in pairwise(texts))
        return Loop("retry", len(texts), (self._calls[-1],), (texts[0],)) if alike else None


@lru_cache(maxsize=4096)
def _pattern(kind: str, tools: tuple[str, ...], calls: tuple[str, ...]) -> LoopPattern:
    tool = tools[0] if len(set(tools)) == 1 else " → ".join(_turned(tools))[:_MAX_TOOLS]
    template = {
        "repeat": "the same call gives the same result",
        "cycle": f"{len(tools)} calls in turn give the same results",
        "retry": "small changes to the call do not help",
    }[kind]
    return LoopPattern(
        tool,
        template,
        pattern_id("family", LOOP, tool),
        pattern_id("class", LOOP, tool, template),
        pattern_id("exact", LOOP, tool, template, *_turned(calls)),
        calls[0] if len(set(calls)) == 1 else None,
    )


def _turned(around: tuple[str, ...]) -> tuple[str, ...]:
    return min(around[start:] + around[:start] for start in range(len(around)))


def key_of(arguments: str, mark: str = "") -> str:
    """Return an equal key for equal arguments: the text, or a hash of a long one."""
    if key := mark.rpartition("|")[0]:
        return key
    if len(arguments) <= _MAX_WHOLE:
        return arguments
    if len(arguments) > 2 * _HASHED_END:
        arguments = f"{arguments[:_HASHED_END]}\x1f{len(arguments)}\x1f{arguments[-_HASHED_END:]}"
    return f"\x1f{pattern_id(LOOP, arguments)}"


def mark_of(arguments: str, result: str) -> str:
    """Return hashes of arguments and result that a store may cut, or ""."""
    short = len(arguments) <= _MAX_WHOLE and len(result) <= _MAX_WHOLE
    return "" if short else f"{key_of(arguments)}|{_said_key(result)}"


def _said_key(result: str) -> str:
    said = _plain(result) or result.strip()
    return pattern_id(LOOP, said) if said else ""


def _same(one: _Called, other: _Called) -> bool:
    if one.tool != other.tool or one.pattern != other.pattern:
        return False
    if one.pattern is not None:
        return True
    if one.mark or other.mark:
        said, others = [each.mark.rpartition("|")[2] or _said_key(each.result) for each in (one, other)]
        return said == others != ""
    return _said_the_same(one.result, other.result)


def _said_the_same(one: str, other: str) -> bool:
    if one == other:
        return bool(one) and not one.isspace()
    # Masking long texts is slow, so first test whether they begin to differ in a masked part.
    length = bisect_left(range(min(len(one), len(other))), True, key=lambda last: one[: last + 1] != other[: last + 1])
    start, end = max(0, length - _NEAR), length + _NEAR
    if not any(
        match.start() <= length - start <= match.end()
        for text in (one, other)
        for match in _VOLATILE.finditer(text[start:end])
    ):
        return False
    return _plain(one) == _plain(other) != ""


@lru_cache(maxsize=256)
def _plain(said: str) -> str:
    return _VOLATILE.sub("", said).strip()


def _alike(one: str, other: str) -> bool:
    words, others = _words(one[:_MAX_COMPARED]), _words(other[:_MAX_COMPARED])
    return len(words & others) > ALIKE * len(words | others)


@lru_cache(maxsize=256)
def _words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text))
