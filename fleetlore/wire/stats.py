"""Hash texts, draw by hash, and compute failure rates of calls with intervals and trends.

Hashes are equal in every process, so draws need no state and replays repeat them.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal
from unicodedata import normalize

from fleetlore.wire.lore import PATTERN_LEVELS, Pattern

HASHES: Final = 2**52  # exact in a JSON number (an IEEE double has 53 bits)


def stable_hash(text: str) -> int:
    """Return a 52-bit hash of a text, equal on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 12


cached_hash = lru_cache(maxsize=16_384)(stable_hash)


def user_hash(user: str) -> str:
    """Return the pipeline's only name of a user: 13 hex digits."""
    return f"{stable_hash(normalize('NFC', user)):013x}"


def drawn(key: str, share: float) -> bool:
    """Draw a key with probability `share`, 0..1. A larger share draws the same keys and more."""
    return share > 0 and stable_hash(key) < share * HASHES


@lru_cache(maxsize=16_384)  # called at every step
def withheld(session: str, id: str, share: float) -> bool:
    """Whether a tip is withheld from this session. Sessions differ in difficulty, so only a randomised holdout measures
    its effect.
    """
    return drawn(f"holdout\x1f{session}\x1f{id}", share)


def wilson(failures: float, calls: float, z: float = 1.96) -> tuple[float, float]:
    """Return the interval of a rate (Wilson 1927), or (0, 1) without trials."""
    if calls <= 0:
        return 0.0, 1.0
    rate = failures / calls
    spread = z * math.sqrt(rate * (1 - rate) / calls + z * z / (4 * calls * calls))
    centre = rate + z * z / (2 * calls)
    scale = 1 + z * z / calls
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def newcombe(one: tuple[float, float], other: tuple[float, float], z: float = 1.96) -> tuple[float, float]:
    """Return the interval of the difference of two independent rates, each as (trials, hits): Newcombe's hybrid score
    interval (Newcombe 1998, Statistics in Medicine 17:873–890, method 10).
    """
    (trials, hits), (other_trials, other_hits) = one, other
    rate, other_rate = hits / trials, other_hits / other_trials
    (low, high), (other_low, other_high) = wilson(hits, trials, z), wilson(other_hits, other_trials, z)
    difference = rate - other_rate
    return (
        difference - math.hypot(rate - low, other_high - other_rate),
        difference + math.hypot(high - rate, other_rate - other_low),
    )


Group = Literal["tool", "error", "tenant"]
_Trend = Literal["better", "worse", "same", "unknown"]
_Counts = tuple[int, int]  # calls, failures

# A tool's rate of failure has surely risen: by so much, over at least so many calls.
_RISE, _LEAST_CALLS = 0.10, 5
_COMMONEST = 3


@dataclass(frozen=True, slots=True)
class Window:
    """The last hours or days, up to the newest call: logs are read later. `last_seen` shows its age."""

    unit: Literal["hours", "days"]
    length: int

    def split(self, pattern: Pattern, newest: int) -> tuple[_Counts, _Counts]:
        now, before = (0, 0), (0, 0)
        for number, calls, failures in getattr(pattern, self.unit):
            age = newest - number
            if age < self.length:
                now = now[0] + calls, now[1] + failures
            elif age < 2 * self.length:
                before = before[0] + calls, before[1] + failures
        return now, before

    def newest(self, patterns: Iterable[Pattern]) -> int:
        return max((periods[0][0] for each in patterns if (periods := getattr(each, self.unit))), default=0)


@dataclass(frozen=True, slots=True)
class _Health:
    tool: str
    calls: int
    failures: int
    rate: float
    low: float
    high: float
    trend: _Trend
    errors: tuple[tuple[str, int], ...] = ()
    sessions: int = 0
    agents: int = 0
    last_seen: float = 0.0
    estimated: bool = False


def figure(count: int, estimated: bool) -> str:
    return f"≈{count:,}" if estimated else f"{count:,}"


def tools_of(patterns: Iterable[Pattern]) -> dict[str, Pattern]:
    return {each.tool: each for each in patterns if each.level == "tool"}


def calls_of(pattern: Pattern, tool: Pattern | None) -> Pattern | None:
    """Return the row with the calls of a failure pattern, or the pattern."""
    return tool if pattern.level in PATTERN_LEVELS and not pattern.is_loop else pattern


def failed_of(pattern: Pattern, tool: Pattern | None) -> str:
    failed, of = figure(pattern.failures, "all" in pattern.estimated), calls_of(pattern, tool)
    return failed if of is None else f"{failed} of {figure(of.calls, 'all' in of.estimated)}"


def health(patterns: Iterable[Pattern], by: Group = "tool", window: Window | None = None) -> list[_Health]:
    """Return one row a group, the most certain failures first."""
    rows = [each for each in patterns if each.level in ("tool", "family") and not each.is_loop]
    tools = tools_of(rows)
    families = [each for each in rows if each.level == "family"]
    newest = window.newest(rows) if window is not None else 0
    if by == "tenant":
        name = ",".join(sorted({each.tenant for each in rows}))
        found = [_of(name, list(tools.values()), families, window, newest)] if tools else []
    elif by == "error":
        known = [each for each in families if each.tool in tools and each.error_class]
        found = [_of_error(each, tools[each.tool], window, newest) for each in known]
    else:
        of_tool = defaultdict[str, list[Pattern]](list)
        for each in families:
            of_tool[each.tool].append(each)
        found = [_of(name, [tool], of_tool[name], window, newest) for name, tool in tools.items()]
    return sorted((each for each in found if each.calls), key=lambda each: (-each.low, each.tool))


def trend(now: _Counts, before: _Counts) -> _Trend:
    """Whether a rate (calls, failures) changed: the difference's 95 % interval excludes 0."""
    if not now[0] or not before[0]:
        return "unknown"
    low, high = newcombe(now, before)
    return "worse" if low > 0 else "better" if high < 0 else "same"


def worsened(now: _Counts, before: _Counts) -> bool:
    """Whether a rate (calls, failures) has surely risen by 10 points. Constant failing is no news."""
    return min(now[0], before[0]) >= _LEAST_CALLS and newcombe(now, before)[0] > _RISE


def _of(
    name: str, tools: Sequence[Pattern], families: Sequence[Pattern], window: Window | None, newest: int
) -> _Health:
    errors: Counter[str] = Counter()
    for each in families:
        errors[each.error_class] += _counts(each, window, newest)[0][1]
    commonest = sorted((+errors).items(), key=lambda each: (-each[1], each[0]))[:_COMMONEST]
    now, before = map(_total, zip(*(_counts(each, window, newest) for each in tools), strict=True))
    return _health(name, now, before, tools, errors=tuple(commonest), estimated=is_estimated(tools, window))


def _of_error(family: Pattern, tool: Pattern, window: Window | None, newest: int) -> _Health:
    pairs = zip(_counts(tool, window, newest), _counts(family, window, newest), strict=True)
    # Estimates may give more failures than calls.
    now, before = ((calls, min(failures, calls)) for (calls, _), (_, failures) in pairs)
    name = f"{family.tool}: {family.error_class}"
    return _health(name, now, before, [family], estimated=is_estimated((family, tool), window))


def is_estimated(rows: Iterable[Pattern], window: Window | None) -> bool:
    figures = window.unit if window is not None else "all"
    return any(figures in each.estimated for each in rows)


def _counts(row: Pattern, window: Window | None, newest: int) -> tuple[_Counts, _Counts]:
    return ((row.calls, row.failures), (0, 0)) if window is None else window.split(row, newest)


def _total(counts: Iterable[_Counts]) -> _Counts:
    calls, failures = zip(*counts, strict=True)
    return sum(calls), sum(failures)


def _health(name: str, now: _Counts, before: _Counts, rows: Sequence[Pattern], **known: Any) -> _Health:
    calls, failures = now
    low, high = wilson(failures, calls)
    if len(rows) == 1:
        known |= {"sessions": rows[0].sessions, "agents": rows[0].agents}
    known["last_seen"] = max(each.last_seen for each in rows)
    return _Health(name, calls, failures, failures / max(1, calls), low, high, trend(now, before), **known)
