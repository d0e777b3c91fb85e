"""Which failure patterns did no harm: told by how the sessions that met them ended, in all of the logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from models.backtest.cases import Case

# Sessions with a known end that must have met a pattern, and as many of the tool that did not: fewer prove nothing.
MIN_SESSIONS = 8


def harmless_patterns(cases: Iterable[Case]) -> frozenset[str]:
    """Ids (class and exact level) of patterns that pass by themselves, or whose sessions fail no more often than the others that
    used the tool, in the same source; over the sessions with a known end.

    A pattern is harmless only where `MIN_SESSIONS` sessions met it and `MIN_SESSIONS` others did not.
    """
    passing: set[str] = set()
    used: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    met: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for case in cases:
        calls = case.trajectory.calls
        ids = {(step.tool, id) for step in calls for id in (step.pattern, step.exact) if id is not None}
        passing |= {id for step in calls if step.transient for id in (step.pattern, step.exact) if id is not None}
        if case.failed is not None:
            for tool in {step.tool for step in calls}:
                _count(used[case.source, tool], case.failed)
            for tool, id in ids:
                _count(met[case.source, tool, id], case.failed)
    # A pattern that does harm in one source is not harmless because it does none in another.
    verdicts: dict[str, bool] = {}
    for (source, tool, id), (failed, ended) in met.items():
        all_failed, all_ended = used[source, tool]
        others, others_failed = all_ended - ended, all_failed - failed
        if min(ended, others) >= MIN_SESSIONS:
            verdicts[id] = verdicts.get(id, True) and failed / ended <= others_failed / others
    return frozenset(passing | {id for id, harmless in verdicts.items() if harmless})


def _count(counts: list[int], failed: bool) -> None:
    counts[0] += failed
    counts[1] += 1
