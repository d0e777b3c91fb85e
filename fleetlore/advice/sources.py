"""List the sources of tips, in the order in which they are asked. Each has its row in `docs/results/heard.md`.

A source looks at the lore and at the session's situation and yields tips, the surest first. Nothing that it yields is
shown before `fleetlore.advice.gate.tell` has let it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleetlore.advice import after_failure, at_start, before_call
from fleetlore.advice.gate import Tip
from fleetlore.advice.situation import Situation
from fleetlore.recall.index import LoreIndex

__all__ = ["AFTER_FAILURE", "AT_START", "BEFORE_CALL", "BESIDE", "SAID_AGAIN", "SOURCES", "WAYS_OUT", "Source"]

Source = Callable[[LoreIndex, Situation], Iterable[Tip]]

# Of these the first tip alone.
BEFORE_CALL: tuple[Source, ...] = (
    before_call.changed,
    before_call.needed,
    before_call.foreseen,
    before_call.counted,
)
# Of these the first tip alone.
AFTER_FAILURE: tuple[Source, ...] = (
    after_failure.needs,
    after_failure.worked_instead,
    after_failure.renamed,
    after_failure.got_past,
    after_failure.known_here,
    after_failure.looked_up,
    after_failure.usual,
)
# Of these the first, where nothing else is left to say: names that are known to work in place of those that failed.
SAID_AGAIN: tuple[Source, ...] = (after_failure.worked_instead, after_failure.renamed, after_failure.known_here)
# Of these all, as far as they fit: where no call is asked about, and beside a call.
AT_START: tuple[Source, ...] = (
    before_call.prepared,
    at_start.way,
    at_start.card,
    at_start.recoveries,
    before_call.passing,
)
BESIDE: tuple[Source, ...] = (before_call.prepared, before_call.passing)
# Of these one is enough until the next failure.
WAYS_OUT = frozenset(("needed", "worked instead", "renamed", "got past", "looked up", "known here", "usual"))
# Names of the sources, as `Tip.source` has them; the first three watch the session itself (`fleetlore.watch`).
SOURCES: tuple[str, ...] = (
    "loop",
    "budget",
    "safety",
    "changed",
    "needed",
    "foreseen",
    "counted",
    "worked instead",
    "renamed",
    "got past",
    "known here",
    "looked up",
    "usual",
    "prepared",
    "way",
    "card",
    "recoveries",
    "passing",
)
