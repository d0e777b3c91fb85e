"""Measure the memory: errors it could have prevented, items that cannot help, and warnings of what does no harm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from benchmarks.backtest.cases import Case
from fleetlore.advice.advice import advise
from fleetlore.advice.situation import Situation
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from models.memory.quality import is_junk

# Sessions with a known end that must have met a pattern, and as many of the tool that did not: fewer prove nothing.
MIN_SESSIONS = 8
NO_EVIDENCE, HARMLESS, REPEATED = "no_evidence", "harmless", "repeated"


def recurrence(train: Sequence[Case], test: Sequence[Case]) -> dict[str, dict[str, float | None]]:
    """By source and level of the pattern: the share of failed calls whose error another agent had met before.

    Before: in training, or in an earlier test session.
    """
    levels = ("family", "class", "exact")
    agents: dict[str, set[str]] = defaultdict(set)
    met: dict[tuple[str, str], int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for number, case in enumerate((*train, *test)):
        ids = [(step.family, step.pattern, step.exact) for step in case.trajectory.calls if step.failed]
        if number >= len(train):
            total[case.source] += len(ids)
            for each in ids:
                for level, id in zip(levels, each, strict=True):
                    met[case.source, level] += bool(id is not None and agents[id] - {case.agent})
        for each in ids:
            for id in each:
                if id is not None:
                    agents[id].add(case.agent)
    return {
        source: {level: met[source, level] / total[source] if total[source] else None for level in levels}
        for source in sorted({case.source for case in test})
    }


def harmless_patterns(cases: Iterable[Case]) -> frozenset[str]:
    """Ids (class and exact level) of patterns that are transient, or whose sessions fail no more often than others.

    The others are sessions of the same source that used the tool; only sessions with a known end count. A pattern is
    harmless only if `MIN_SESSIONS` sessions met it and `MIN_SESSIONS` others did not.
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


def junk_reasons(items: Sequence[MemoryItem], sessions: Collection[str], harmless: Collection[str]) -> Counter[str]:
    """Count junk items by the first reason that applies.

    `no_evidence`: it names no session that backs it, or one that the logs do not hold. Then the reasons of
    `models.memory.quality.is_junk`. `harmless`: a recovery about a harmless pattern. `repeated`: another item
    says the same, word for word.

    Args:
        items: those that could be recalled.
        sessions: ids of all sessions in the logs.
        harmless: ids of harmless patterns (`harmless_patterns`).
    """
    reasons: Counter[str] = Counter()
    said: set[tuple[str, str, str]] = set()
    known = set(sessions)
    for item in sorted(items, key=lambda each: each.id):
        text = (item.kind, item.task, " ".join(item.content.casefold().split()))
        # The id of a part ends in # and its number; the session's own id may hold a # too.
        backed = item.sessions and all({id, id.rpartition("#")[0]} & known for id in item.sessions)
        reason = is_junk(item)
        if item.support < 1 or not backed:
            reason = NO_EVIDENCE
        elif reason is None and item.kind == "recovery" and item.pattern in harmless:
            reason = HARMLESS
        elif reason is None and text in said:
            reason = REPEATED
        said.add(text)
        if reason is not None:
            reasons[reason] += 1
    return reasons


def harmless_warnings(
    test: Iterable[Case],
    patterns: Sequence[Pattern],
    items: Sequence[MemoryItem],
    harmless: Collection[str],
    now: float,
) -> float | None:
    """Share of harmless patterns among the warnings that the test sessions would get before their calls; None without
    one.

    Args:
        now: event time in seconds; transient errors of before are over.
    """
    index = LoreIndex()
    for pattern in patterns:
        index.put_pattern(pattern)
    for item in items:
        index.put_item(item)
    shown = needless = 0
    for case in test:
        own: set[str] = set()
        for step in case.trajectory.calls:
            advice = advise(
                index,
                Situation(
                    step.tool,
                    step.arguments,
                    now=now,
                    task=case.task,
                    session=case.trajectory.session,
                    own_failures=own,
                ),
            )
            warned = [tip.id for tip in advice.tips if tip.source == "counted"]
            shown += len(warned)
            needless += sum(id in harmless for id in warned)
            if step.exact is not None:
                own.add(step.exact)
    return needless / shown if shown else None
