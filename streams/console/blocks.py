"""Turn a snapshot into the rows of the page's six blocks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import quote

from fleetlore.adapters.listing import Listed
from fleetlore.advice.changes import change_tip
from fleetlore.advice.gate import all_of
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.stats import Window, is_estimated, tools_of, trend, wilson
from fleetlore.words import count
from streams.console.sources import Snapshot

__all__ = ["ROWS", "failing", "hint", "learned", "points", "refused", "versions"]

# A failure is rising or cured in these hours, compared with as many before.
WINDOW = Window("hours", 6)
_DAY = 86_400.0
ROWS = 8
_POINTS = 160

_Change = Literal["new", "rising", "cured", ""]
_ORDER: dict[_Change, int] = {"new": 0, "rising": 1, "": 2, "cured": 3}


class _Failing(NamedTuple):
    family: Pattern
    example: Pattern
    change: _Change
    calls: int
    failures: int
    low: float
    high: float
    hint: str
    estimated: bool


@dataclass(frozen=True, slots=True)
class Refused:
    letters: tuple[tuple[str, int], ...]
    adapters: tuple[tuple[str, int], ...]
    junk: tuple[tuple[str, int], ...]


def failing(snapshot: Snapshot) -> list[_Failing]:
    """Return up to `ROWS` failures: new, rising, others, cured. The most frequent and then the newest come first."""
    patterns = snapshot.index.patterns.values()
    rows = [each for each in patterns if each.level in ("tool", "family") and not each.is_loop]
    tools = tools_of(rows)
    newest = WINDOW.newest(rows)
    commonest: dict[str, Pattern] = {}
    for each in patterns:
        if each.level == "class" and each.parent is not None:
            known = commonest.get(each.parent)
            if known is None or (each.failures, each.id) > (known.failures, known.id):
                commonest[each.parent] = each
    found = []
    for family in rows:
        if family.level != "family" or family.tool not in tools or family.transient:
            continue
        now, before = WINDOW.split(family, newest)
        calls, calls_before = (WINDOW.split(tools[family.tool], newest)[place][0] for place in (0, 1))
        change = _change(family, snapshot.now, (calls, now[1]), (calls_before, before[1]))
        if not now[1] and change != "cured":
            continue
        low, high = wilson(now[1], calls) if calls else (0.0, 1.0)
        example = commonest.get(family.id, family)
        advice, estimated = hint(snapshot, example), is_estimated((family, tools[family.tool]), WINDOW)
        found.append(_Failing(family, example, change, calls, now[1], low, high, advice, estimated))

    def order(each: _Failing) -> tuple[int, int, float, str]:
        return _ORDER[each.change], -each.failures, -each.family.last_seen, each.family.id

    return sorted(found, key=order)[:ROWS]


def _change(family: Pattern, now: float, lately: tuple[int, int], before: tuple[int, int]) -> _Change:
    if lately[1] and now - family.first_seen < _DAY and not before[1]:
        return "new"
    if before[1] and not lately[1]:
        return "cured" if trend(lately, before) == "better" else ""
    return "rising" if trend(lately, before) == "worse" else ""


def hint(snapshot: Snapshot, pattern: Pattern) -> str:
    recoveries = snapshot.index.recoveries(pattern.id) if pattern.level == "class" else ()
    for item in recoveries:
        by = f"{count(item.agents, 'agent')} in {count(item.support, 'session')}"
        return f"{all_of(change_tip(item, 'got past').parts)} ({by})"
    return ""


def learned(snapshot: Snapshot) -> list[MemoryItem]:
    since = snapshot.now - _DAY
    found = [each for each in snapshot.index.items.values() if each.first_seen >= since]
    return sorted(found, key=lambda each: (-each.first_seen, each.id))


def points(values: Sequence[float], seconds: float) -> list[tuple[float, str]]:
    """Return the points of a chart: means of equally many values from the newest on, and how long ago each was.

    There is a value every `seconds`.
    """
    step = -(-len(values) // _POINTS) or 1
    groups = [values[max(0, end - step) : end] for end in range(len(values), 0, -step)][::-1]
    ages = [(len(groups) - 1 - place) * step * seconds for place in range(len(groups))]
    ago = ["now" if not age else f"{age:.0f} s ago" if age < 120 else f"{age / 60:.0f} min ago" for age in ages]
    return [(sum(group) / len(group), when) for group, when in zip(groups, ago, strict=True)]


def versions(snapshot: Snapshot) -> list[Listed]:
    return sorted(snapshot.adapters.versions(), key=lambda each: (-each.created, each.adapter, each.version))


def refused(snapshot: Snapshot) -> Refused:
    sample = snapshot.figures.sample
    acks = Counter(str(each.get("result")) for each in snapshot.adapters.acks if each.get("result") != "applied")
    junk = _most(sample.by("junk_items_total", "reason")) if sample is not None else ()
    return Refused(_most(Counter(each.reason for each in snapshot.letters)), _most(acks), junk)


class _Changed(NamedTuple):
    time: float
    kind: str
    text: str
    path: str


def changes(snapshot: Snapshot, since: float) -> list[_Changed]:
    index, named = snapshot.index, snapshot.decisions.values()
    found = [
        _Changed(each.family.last_seen, f"{each.change} failure", _failure(each.example), f"/patterns/{each.family.id}")
        for each in failing(snapshot)
        if each.change in ("rising", "cured") and each.family.last_seen >= since
    ]
    found += [
        _Changed(each.first_seen, "new failure", _failure(each), f"/patterns/{each.id}")
        for each in index.patterns.values()
        if each.level == "class" and each.first_seen >= since
    ]
    found += [
        _Changed(each.first_seen, "new item", each.title, f"/items/{each.id}")
        for each in index.items.values()
        if each.first_seen >= since
    ]
    for each in (each for each in named if each.time >= since):
        said = f"{each.kind} {each.id} {each.effect} by {each.by}: {each.why}"
        found.append(_Changed(each.time, "decision", said, "/decisions"))
    for made in (made for made in versions(snapshot) if made.created >= since):
        path = f"/versions/{quote(made.adapter)}/{quote(made.version)}"
        found.append(_Changed(made.created, "version", f"{made.adapter} {made.ordinal}", path))
    letters = [each for each in snapshot.letters if each.time >= since]
    found += [_Changed(each.time, "dead letter", f"{each.reason}: {each.detail}", "") for each in letters]
    return sorted(found, key=lambda each: (-each.time, each.kind, each.path))


def _failure(pattern: Pattern) -> str:
    return f"{pattern.tool}: {pattern.template or pattern.error_class}"


def _most(counted: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in counted.most_common(ROWS) if count)
