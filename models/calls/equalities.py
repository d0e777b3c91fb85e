"""Learn which quantities of a tool's calls must be equal: those that are where calls work, and not where they fail.

Sums that must match, lists that must be as long as each other, a field that an argument repeats: of the newest calls of
a tool, pairs of quantities (`fleetlore.calls.quantities`) that were equal in nearly all calls that worked, at different
values, and whose violations mostly failed. They are needs with `=` as their field.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from fleetlore.calls.context import values_of
from fleetlore.calls.document import EQUAL, Need
from fleetlore.calls.quantities import KnownQuantities, Quantity, is_of_argument
from fleetlore.stats.intervals import wilson
from fleetlore.wire.trajectory import Trajectory
from models.calls.evidence import Endings, Evidence, Fleet, Who

KEPT_CALLS, KEPT_TOOLS = 1_000, 64
# Sessions with calls that worked and in which both were equal, and lower bound of their share of all that worked.
LEAST_HELD, LEAST_SHARE = 8, 0.65
_LEAST_VALUES = 3
# Lower bound of the share of sessions in which calls failed where both were not equal.
_LEAST_RATE = 0.5
_MOST = 64


class _Call(NamedTuple):
    who: Who
    kind: str | None
    quantities: dict[str, Quantity]


class EqualityRecords:
    """Quantities of the newest calls of each tool."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._calls: OrderedDict[str, deque[_Call]] = OrderedDict()

    def learn(self, session: Trajectory, kinds: Sequence[tuple[str, tuple[str, ...]] | None]) -> None:
        """Take in a session. `kinds`: by call, the kind of failure and its names; None of one that worked."""
        known, who = KnownQuantities(), Who.of(session)
        for step, kind in zip(session.calls, kinds, strict=True):
            found = known.of(values_of(step.arguments)) if not step.transient else {}
            if len(found) > 1:
                calls = self._calls.setdefault(step.tool, deque(maxlen=KEPT_CALLS))
                self._calls.move_to_end(step.tool)
                calls.append(_Call(who, kind[0] if kind is not None else None, found))
            if not step.failed:
                known.record(step.result)
        while len(self._calls) > KEPT_TOOLS:
            self._calls.popitem(last=False)

    def said(self) -> tuple[Need, ...]:
        """Those that a version holds, the best backed first."""
        found = [need for tool, calls in self._calls.items() for need in self._of(tool, calls)]
        found.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.argument, each.value))
        return tuple(found[:_MOST])

    def _of(self, tool: str, calls: Sequence[_Call]) -> Iterator[Need]:
        if all(call.kind is None for call in calls):
            return
        held: defaultdict[tuple[str, str], Evidence] = defaultdict(lambda: Evidence(self._fleet))
        values: defaultdict[tuple[str, str], set[Quantity]] = defaultdict(set)
        for call in calls:
            if call.kind is None:
                for pair in _equal(call.quantities):
                    held[pair].add(call.who)
                    values[pair].add(call.quantities[pair[0]])
        for pair, equal in sorted(held.items()):
            if (
                any(map(is_of_argument, pair))
                and equal.is_enough
                and equal.sessions >= LEAST_HELD
                and len(values[pair]) >= _LEAST_VALUES
            ):
                yield from self._violated(tool, pair, equal, calls)

    def _violated(self, tool: str, pair: tuple[str, str], equal: Evidence, calls: Sequence[_Call]) -> Iterator[Need]:
        one, other = pair
        ended = Endings(self._fleet)
        for call in calls:
            if one in call.quantities and other in call.quantities and call.quantities[one] != call.quantities[other]:
                ended.add(call.who, call.kind)
        failed, held = ended.counts
        holds = wilson(equal.sessions, equal.sessions + held - failed)[0] >= LEAST_SHARE
        if ended.failed.is_enough and holds and wilson(failed, held)[0] >= _LEAST_RATE:
            yield Need(tool, one, EQUAL, other, ended.kind, failed, held, ended.failed.agents, ())


def _equal(quantities: dict[str, Quantity]) -> Iterator[tuple[str, str]]:
    """Pairs of names with the same value, in order; a name and a field of its own thing are two."""
    by_value: defaultdict[Quantity, list[str]] = defaultdict(list)
    for name, value in quantities.items():
        by_value[value].append(name)
    for names in by_value.values():
        yield from combinations(sorted(names), 2)
