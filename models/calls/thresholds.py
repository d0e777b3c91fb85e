"""Set from the fleet's own log when to warn of a call: seldom, and where it makes a difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fleetlore.calls.document import Threshold
from fleetlore.stats.intervals import newcombe, wilson
from fleetlore.wire.adapter_manifest import State

# Of the calls of a tool in one state, at most.
_WARNED = 0.2
# By which calls that are warned of fail more often than all do, at the lower end of the interval. And whatever the
# share, a call is warned of only where it rather fails than not.
_LIFT = 0.2
_LIKELY = 0.5
_LEAST_CALLS = 20
# Calls of each arm, before which warnings are not judged, and after which those without a sure effect end.
_LEAST_TRIALS = 20
_MANY_TRIALS = 200
_SHARES = (_WARNED, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)


class Foreseen(NamedTuple):
    """A call, and what was said of it before it was learned.

    Attributes:
        number: of calls that were learned before it.
        position: among the calls of its session.
    """

    number: int
    session: str
    position: int
    tool: str
    state: State
    fails: float
    failed: bool


@dataclass(slots=True)
class Trial:
    """Calls of a tool in one state before which a warning was given, and before which it was withheld at random."""

    shown: int = 0
    shown_failed: int = 0
    withheld: int = 0
    withheld_failed: int = 0

    def add(self, *, shown: bool, failed: bool) -> None:
        """Count a call."""
        if shown:
            self.shown += 1
            self.shown_failed += failed
        else:
            self.withheld += 1
            self.withheld_failed += failed

    @property
    def is_in_vain(self) -> bool:
        """Whether calls surely fail more often with the warning, or after many trials not surely less often."""
        if min(self.shown, self.withheld) < _LEAST_TRIALS:
            return False
        low, high = newcombe((self.withheld, self.withheld_failed), (self.shown, self.shown_failed))
        return high < 0 or (low <= 0 and min(self.shown, self.withheld) >= _MANY_TRIALS)


def thresholds(
    foreseen: Mapping[tuple[str, State], Iterable[Foreseen]], trials: Mapping[tuple[str, State], Trial]
) -> tuple[Threshold, ...]:
    """Of each tool and state with calls that are worth a warning, and whose warnings were not in vain. Elsewhere
    nothing is said.
    """
    found = (
        _threshold(*key, list(calls))
        for key, calls in sorted(foreseen.items())
        if key not in trials or not trials[key].is_in_vain
    )
    return tuple(each for each in found if each is not None)


def _threshold(tool: str, state: State, calls: list[Foreseen]) -> Threshold | None:
    """The widest share whose calls surely fail more often."""
    if len(calls) < _LEAST_CALLS:
        return None
    base = sum(call.failed for call in calls) / len(calls)
    ranked = sorted((call.fails for call in calls), reverse=True)
    for share in _SHARES:
        most = int(share * len(calls))
        if most < 1:
            return None
        least = max(ranked[most - 1], _LIKELY)
        warned = [call.failed for call in calls if call.fails >= least]
        if wilson(sum(warned), len(warned))[0] >= base + _LIFT:
            return Threshold(tool, state, least, sum(warned), len(warned))
    return None
