"""Figures of the agents in this process, for whatever scrapes or exports them: `fleetlore.metrics()`."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

if TYPE_CHECKING:
    from fleetlore.advice.advice import Advice
    from fleetlore.agent.fleet import Fleet

_MOST_TIMES = 4096
_fleets: WeakSet[Fleet] = WeakSet()
_seconds: deque[float] = deque(maxlen=_MOST_TIMES)
_counts: Counter[str] = Counter()


def metrics() -> dict[str, float]:
    """What the fleets of this process did since it began; names and units as Prometheus has them.

    Returns:
        `fleets`, how many are in use or not yet collected; `events_sent_total`, `events_dropped_total`;
        `advice_total`, `advice_shown_total` and `advice_withheld_total`, in lines; `advice_seconds_p50` and
        `advice_seconds_p99` of the last 4,096, 0 before the first one; `replica_age_seconds`, since the broker last
        answered the copy of the lore that waits longest, 0 without a fleet.
    """
    fleets = list(_fleets)
    p50, p99 = np.quantile(list(_seconds), (0.5, 0.99)) if _seconds else (0.0, 0.0)
    return {
        "fleets": len(fleets),
        "events_sent_total": sum(fleet.sent for fleet in fleets),
        "events_dropped_total": sum(fleet.dropped for fleet in fleets),
        **{f"advice{name}_total": _counts[name] for name in ("", "_shown", "_withheld")},
        "advice_seconds_p50": float(p50),
        "advice_seconds_p99": float(p99),
        "replica_age_seconds": max((fleet.replica.age_seconds for fleet in fleets), default=0.0),
    }


def count_fleet(fleet: Fleet) -> None:
    """Include a fleet from now on, as long as somebody holds it."""
    _fleets.add(fleet)


def count_advice(advice: Advice, seconds: float) -> None:
    """Count what one call of `advise` or `brief` gave, and how long it took."""
    _seconds.append(seconds)
    _counts.update({"": 1, "_shown": len(advice.ids), "_withheld": len(advice.withheld)})
