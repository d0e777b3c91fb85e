"""Count how often lore would go to agents if only what is significant did: `python -m benchmarks.significance`.

Logged runs go through all stages in memory at 5,000 events a second of a clock that the events move, so counts are
counts and no machine's speed is in them. What the stages publish of patterns and items, each changed one every five
seconds and new failures at once, is counted as it is; where it goes out only if its *rounded* form is another; and, as
a trivial rival, at most once a minute and key. Rounded is: counts to the next lower of 1, 2, …, 10, 11, 13, 14, …, ten
per cent apart, times to the hour. A rounded form is a function of the state, and so of the set of events, whichever
was published before: a topic of such forms can be compared with the store key by key.
"""

from __future__ import annotations

import argparse
import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from benchmarks.traffic import traffic
from benchmarks.volumes import BATCH_RECORDS, Flow
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import MemoryItem, Pattern

RATE = 5_000
BAR = 10.0
MINUTE, HOUR = 60.0, 3600
_KINDS = {"patterns": Pattern, "items": MemoryItem}
_TIMES = ("first_seen", "last_seen")


def _grid() -> list[int]:
    found = [0]
    while found[-1] < 2**53:
        found.append(max(found[-1] + 1, ceil(found[-1] * 1.1)))
    return found


GRID = _grid()


def rounded(value: Any) -> Any:
    """A count, or all counts of a row of a table."""
    if isinstance(value, tuple):
        return tuple(each if isinstance(each, str) else rounded(each) for each in value)
    return GRID[bisect_right(GRID, value) - 1] if isinstance(value, int) and not isinstance(value, bool) else value


def form(entry: Pattern | MemoryItem) -> Pattern | MemoryItem:
    """What would be published of it."""
    changes: dict[str, Any] = {name: getattr(entry, name) // HOUR * HOUR for name in _TIMES}
    if isinstance(entry, Pattern):
        # Periods by their numbers, agents by their names: what stands first of each row is no count.
        for name in ("hours", "days", "by_agent"):
            changes[name] = tuple((row[0], *map(rounded, row[1:])) for row in getattr(entry, name))
        counts: tuple[str, ...] = (
            "calls",
            "failures",
            "sessions",
            "agents",
            "sessions_ended",
            "sessions_failed",
            "agents_lately",
        )
    else:
        counts = ("support", "agents", "goals", "delayed", "against", "shown")
    return replace(entry, **changes, **{name: rounded(getattr(entry, name)) for name in counts})


@dataclass
class Count:
    """Updates of one topic.

    Attributes:
        plain, significant, limited: updates by rule; `fields`: of those that rounding holds back none, what differed.
    """

    plain: int = 0
    significant: int = 0
    limited: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    _forms: dict[str, Any] = field(default_factory=dict)
    _sent: dict[str, float] = field(default_factory=dict)

    def take(self, kind: type[Pattern] | type[MemoryItem], key: str, value: bytes | None, now: float) -> None:
        self.plain += 1
        new = None if value is None else form(kind.from_json(value))
        if key not in self._forms or self._forms[key] != new:
            self.significant += 1
            self.fields.update(_differ(self._forms.get(key), new))
            self._forms[key] = new
        if now - self._sent.get(key, -MINUTE) >= MINUTE:
            self.limited += 1
            self._sent[key] = now


def _differ(old: Any, new: Any) -> Iterator[str]:
    if old is None or new is None:
        yield "new or gone"
    else:
        yield from (name for name in old.__slots__ if getattr(old, name) != getattr(new, name))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=400_000)
    told = parser.parse_args()
    sent, clock = traffic(told.events), FakeClock(1000.0)
    print(sent.describe())
    counts, halves = {name: Count() for name in _KINDS}, []

    def hear(name: str, key: str, value: bytes | None) -> None:
        if name in counts:
            counts[name].take(_KINDS[name], key, value, clock.monotonic())

    flow, seen = Flow(clock, hear), 0
    for start in range(0, len(sent.records), BATCH_RECORDS):
        batch = sent.records[start : start + BATCH_RECORDS]
        await flow.work(batch)
        events = sum(record.events for record in batch)
        clock.advance(events / RATE)
        if seen < sent.events / 2 <= seen + events:
            halves = [(each.plain, each.significant, each.limited) for each in counts.values()]
        seen += events
    for what, since in (("all", [(0, 0, 0)] * 2), ("the second half", halves)):
        among = seen if what == "all" else seen / 2
        sums = [0, 0, 0]
        for (name, count), before in zip(counts.items(), since, strict=True):
            numbers = [
                now - old for now, old in zip((count.plain, count.significant, count.limited), before, strict=True)
            ]
            sums = [one + other for one, other in zip(sums, numbers, strict=True)]
            print(f"{what}, {name}: {said(numbers, among)}")
        print(
            f"{what}, together: {said(sums, among)} (bar: {BAR:.0f} times: "
            f"{'met' if sums[0] >= BAR * sums[1] else 'MISSED'})"
        )
    for name, count in counts.items():
        print(name, "went out for", dict(count.fields.most_common(8)))


def said(numbers: list[int], events: float) -> str:
    plain, significant, limited = numbers
    each = " / ".join(f"{number / events * 1000:.2f}" for number in numbers)
    return (
        f"{each} updates per 1,000 events as it is / significant / once a minute: "
        f"{plain / max(1, significant):.1f} and {plain / max(1, limited):.1f} times fewer"
    )


if __name__ == "__main__":
    asyncio.run(main())
