"""How much of what was learned is junk: memory items that cannot help, and warnings of what does no harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from fleetlore.recall.advice import advise
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from models.backtest.cases import Case
from models.memory.quality import is_junk

NO_EVIDENCE, HARMLESS, REPEATED = "no_evidence", "harmless", "repeated"


def junk_reasons(items: Sequence[MemoryItem], sessions: Collection[str], harmless: Collection[str]) -> Counter[str]:
    """Why items are junk, and how many for each reason (the first that applies).

    `no_evidence`: it names no session that backs it, or one that the logs do not hold. Then the reasons of
    `models.memory.quality.is_junk`, which look at what it says. `harmless`: a recovery or lesson about a pattern that does no harm
    (`models.backtest.harm`: judged by how sessions ended, of which the distiller does not ask). `repeated`: another item
    says the same, word for word.

    Args:
        items: those that could be recalled.
        sessions: ids of all sessions in the logs.
        harmless: ids of harmless patterns.
    """
    reasons: Counter[str] = Counter()
    said: set[tuple[str, str, str]] = set()
    known = set(sessions)
    for item in sorted(items, key=lambda each: each.id):
        text = (item.kind, item.task, " ".join(item.content.casefold().split()))
        # A part of a long session is named by its number behind the session's id, which may hold the same sign.
        backed = item.sessions and all({id, id.rpartition("#")[0]} & known for id in item.sessions)
        reason = is_junk(item)
        if item.kind != "fact" and (item.support < 1 or not backed):
            reason = NO_EVIDENCE
        elif reason is None and item.kind in ("recovery", "lesson") and item.pattern in harmless:
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
    """Share of harmless patterns among the warnings that the test sessions would have been given before their calls.

    None where no warning would have been given.

    Args:
        now: event time in seconds; what is weather then is over for the test.
    """
    index = LoreIndex()
    for pattern in patterns:
        index.put_pattern(pattern, now)
    for item in items:
        index.put_item(item, now)
    shown = needless = 0
    for case in test:
        own: set[str] = set()
        for step in case.trajectory.calls:
            advice = advise(
                index,
                step.tool,
                step.arguments,
                now=now,
                task=case.task,
                session=case.trajectory.session,
                own_failures=own,
            )
            shown += len(advice.patterns)
            needless += sum(pattern.id in harmless for pattern in advice.patterns)
            if step.exact is not None:
                own.add(step.exact)
    return needless / shown if shown else None
