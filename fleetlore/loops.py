"""Is the session going in circles? Told from its calls and what came of them, at the agent and from a log alike.

repeat   the same call gave the same result again and again, other calls between or not: A A A, A A x A A y
cycle    several calls in turn with the same results: A B A B A B, A B C A B C
retry    the same failure again and again, though the call was changed a little each time

Calls are compared with their results, so that polling which gets on (the same call, another result) is no loop; and what
returns nothing is none either, for a scratch pad repeats without being stuck. Arguments are compared whole and as they are:
a blank more or less makes another command. Of results, what changes by itself is masked: times, durations, addresses, ids.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, NamedTuple

from fleetlore.patterns import arguments_text, failure_of

__all__ = ["Loop", "LoopDetector", "find_loop"]

# A repeat: so many of the last calls. Three in a row, or four of six with others between.
IN_A_ROW = 3
OFTEN, OF_LAST = 4, 6
# A cycle: periods of two to four calls, gone through at least twice, and over at least six calls in all.
MAX_PERIOD = 4
MIN_CYCLE_CALLS = 6
# A retry: so many calls of one tool in a row with the same failure, each like the one before.
RETRIES = 4
ALIKE = 0.5

_KEPT = max(OF_LAST, 2 * MAX_PERIOD, MIN_CYCLE_CALLS)
# Characters kept of a result, and compared of arguments.
MAX_RESULT = 8_000
MAX_COMPARED = 2_000
_WORDS = re.compile(r"\w+")
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


class Loop(NamedTuple):
    """What goes round.

    Attributes:
        kind: see the module.
        period: calls in one round; 1 for a repeat or a retry.
        times: rounds so far, as far back as was looked.
        tools: of one round, in order.
        id: the same for the same loop, wherever in its round it is looked at.
    """

    kind: Literal["repeat", "cycle", "retry"]
    period: int
    times: int
    tools: tuple[str, ...]
    id: str

    def __str__(self) -> str:
        if self.kind == "repeat":
            return f"{self.tools[0]} was called {self.times} times with the same arguments and gave the same result."
        if self.kind == "retry":
            return f"{self.tools[0]} failed {self.times} times in a row in the same way; small changes to the call do not help."
        return f"The calls {' → '.join(self.tools)} were gone through {self.times} times with the same results."


@dataclass(slots=True)
class _Call:
    """One call that ended.

    Attributes:
        pair: digest of the call and what came of it. None where nothing came, and as long as the call is the only one of its
            kind: masking a long result costs more than all the rest.
    """

    tool: str
    arguments: str
    said: str
    failure: str | None
    pair: bytes | None = None

    def settle(self) -> None:
        if self.pair is None:
            said = self.failure or _VOLATILE.sub("", self.said).strip()
            text = "\x1f".join((self.tool, self.arguments, said)).encode("utf-8", "surrogatepass")
            self.pair = blake2b(text, digest_size=16).digest() if said else None


class LoopDetector:
    """Of one session; it keeps the last eight calls."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque(maxlen=_KEPT)

    def add(self, tool: str, arguments: object, result: object, error: str | None = None) -> Loop | None:
        """Take in a call that ended and say whether the session is in a loop now.

        Args:
            error: what the tool said, where it failed.
        """
        text = arguments_text(arguments)
        failure = failure_of(tool, "", None, error).class_ if error else None
        said = "" if failure else result if isinstance(result, str) else arguments_text(result)
        last = _Call(tool, text, said[:MAX_RESULT], failure)
        same = [each for each in self._calls if each.tool == tool and each.arguments == text]
        for each in (*same, last) if same else ():
            each.settle()
        self._calls.append(last)
        return self._repeat() or self._cycle() or self._retry()

    def _repeat(self) -> Loop | None:
        last = self._calls[-1]
        if last.pair is None:
            return None
        calls = list(self._calls)
        times = [each.pair for each in calls[-OF_LAST:]].count(last.pair)
        in_a_row = len(calls) >= IN_A_ROW and all(each.pair == last.pair for each in calls[-IN_A_ROW:])
        if not in_a_row and times < OFTEN:
            return None
        return Loop("repeat", 1, times, (last.tool,), last.pair.hex())

    def _cycle(self) -> Loop | None:
        if self._calls[-1].pair is None:  # as mostly: no call was like it
            return None
        calls = list(self._calls)
        pairs = [each.pair for each in calls]
        for period in range(2, MAX_PERIOD + 1):
            rounds = max(2, -(-MIN_CYCLE_CALLS // period))
            block = pairs[-period:]
            if len(pairs) < rounds * period or None in block:
                continue
            if all(pairs[place] == pairs[place - period] for place in range(-1, -(rounds - 1) * period - 1, -1)):
                known = [pair for pair in block if pair is not None]
                start = known.index(min(known))
                turned = known[start:] + known[:start]
                tools = tuple(each.tool for each in calls[-period:])
                return Loop("cycle", period, rounds, tools, b"".join(turned).hex()[:64])
        return None

    def _retry(self) -> Loop | None:
        last = self._calls[-1]
        if last.failure is None or len(self._calls) < RETRIES:
            return None
        calls = list(self._calls)[-RETRIES:]
        same = all(each.failure == last.failure for each in calls)
        if not same or not all(_alike(one.arguments, other.arguments) for one, other in pairwise(calls)):
            return None
        return Loop("retry", 1, len(calls), (last.tool,), last.failure)


def find_loop(calls: Iterable[tuple[str, object, object, str | None]]) -> Loop | None:
    """The loop that a session was in longest, of its calls (tool, arguments, result, error); None where there was none."""
    detector = LoopDetector()
    found: Counter[str] = Counter()
    loops: dict[str, Loop] = {}
    for call in calls:
        if loop := detector.add(*call):
            found[loop.id] += 1
            loops[loop.id] = loop
    return loops[min(found, key=lambda id: (-found[id], id))] if found else None


def _alike(one: str, other: str) -> bool:
    """More than half of the words of both are the same ones (Jaccard)."""
    words, others = set(_WORDS.findall(one[:MAX_COMPARED])), set(_WORDS.findall(other[:MAX_COMPARED]))
    return len(words & others) > ALIKE * len(words | others)
