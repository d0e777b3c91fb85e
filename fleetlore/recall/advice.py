"""Look up what the fleet knows that matters to the next action: in memory, no network, tens of microseconds.

Before an action: how such calls have failed, and what helped. At the start of a session: what tells success from
failure at its task. After a failure: what helped against that failure. What is found by id comes first: the class of
the failure, the kind of call, the tool, the task. Where no id is known, what is likest in words is taken, above a
threshold: errors of the same family, goals, facts.

Advice is short: more recalled memory measured worse than less (ReasoningBank, number of recalled items: best at one). A
share of the items is withheld at random (`fleetlore.recall.holdout`) and its place is left empty: an item is compared
with nothing, not with the next best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from fleetlore.fingerprint.fingerprint import Failure, call_id, cause_of_class, tool_id
from fleetlore.fingerprint.loops import Loop
from fleetlore.recall.hints import transient_weight, worth_showing
from fleetlore.recall.holdout import withheld
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.remedies import PreconditionTracker, cause_of_id, remedied_causes, remedies_before
from fleetlore.recall.render import advice_text
from fleetlore.stats.intervals import wilson
from fleetlore.wire.lore import MemoryItem, Pattern

__all__ = ["Advice", "Situation", "advise"]

MAX_ITEMS = 3
MAX_PATTERNS = 3
# A call is warned of where it surely (lower bound of the 95 % interval) fails at least this often: one failure of one
# call is enough (0.21), one of twenty is not (0.009).
WARN_RATE = 0.05
# Sessions: what one session did not get past, or repeated, may have been its own fault.
LESSON_SUPPORT = 2
# Cosine of words, above which an error is taken for like another one of its family, and a goal for like another goal.
LIKE_ERROR = 0.6
LIKE_GOAL = 0.5
# A fact is long, and what is asked is short.
LIKE_FACT = 0.25


class Caution(NamedTuple):
    """A warning about the session itself, before its next action: a loop, a budget, a dangerous call. Never a block.

    `id`: of a bounded set of words, `guard:loop`, `safety:…`.
    """

    id: str
    text: str


class Advice(NamedTuple):
    """What the fleet knows; falsy where it knows nothing. A named tuple, since one is made before every call.

    Attributes:
        items: memory items, the most useful first, few.
        patterns: failures (exact level) that this kind of call met, the most frequent first; last of all a loop, where
            that many sessions surely got into one with it.
        transient: errors of the last minutes that pass by themselves: try again later.
        health: calls and failures of this kind of call, transient errors included; None where it was never made.
        risk: chance that the call fails for a lasting reason, 0..1, as seen by the fleet (Jeffreys' estimate, transient
            errors left out); None where such a call was never made or no call was asked about.
        withheld: ids of the items that the holdout withheld.
        withheld_about: patterns of those items, of which nothing may be hinted.
        call: id of the kind of call that was asked about.
    """

    items: tuple[MemoryItem, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    transient: tuple[Pattern, ...] = ()
    health: Pattern | None = None
    risk: float | None = None
    withheld: tuple[str, ...] = ()
    withheld_about: frozenset[str | None] = frozenset()
    cautions: tuple[Caution, ...] = ()
    now: float = 0.0
    call: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the items, patterns and cautions, for the outcome's record of what the agent was shown."""
        shown: tuple[MemoryItem | Pattern | Caution, ...] = (*self.items, *self.patterns, *self.cautions)
        return tuple([each.id for each in shown])

    def __bool__(self) -> bool:
        return bool(self.items or self.patterns or self.transient or self.cautions)

    @property
    def text(self) -> str:
        """Text for a model's context, marked as data: its words come from other sessions. Empty if there is nothing."""
        return advice_text(self)


@dataclass(slots=True)
class Situation:
    """What a session is about to do, and what it has met so far.

    Attributes:
        tool, arguments: the call that is about to be made; None for advice on the session as a whole.
        now: wall time in seconds, by which transient errors grow old.
        task: the session's task.
        goal: the session's goal in words, for a task of which nothing is known.
        session: id of the session; what it alone has taught the fleet is left out.
        own_failures: ids of the exact patterns that the session itself met.
        last_failure: the failure that the session has just met, if it has not got past it.
        loop: the loop that the session is in, if it is in one.
        preconditions: what the session met and prepared so far; without it, remedies that are counted over names are
            left out.
    """

    tool: str | None = None
    arguments: object = None
    _: KW_ONLY
    now: float
    task: str = ""
    goal: str = ""
    session: str = ""
    own_failures: Collection[str] = ()
    last_failure: Failure | None = None
    loop: Loop | None = None
    preconditions: PreconditionTracker | None = None


def advise(index: LoreIndex, at: Situation, *, holdout_share: float = 0.0, most: int = MAX_ITEMS) -> Advice:
    """Look up what the fleet knows.

    Args:
        holdout_share: share of the items that is withheld, 0..1.
        most: items at the most, the withheld ones among them.
    """
    tool, last_failure = at.tool, at.last_failure
    found: list[MemoryItem] = []
    if at.loop is not None:
        found += index.recoveries(at.loop.pattern.exact)
    remedied: frozenset[str] = frozenset()
    about = tool if tool is not None else last_failure.tool if last_failure is not None else None
    if at.preconditions is not None and about is not None:
        remedies = remedies_before(index, about, at.arguments, at.preconditions)
        found += remedies
        most = max(most, len(remedies))
        remedied = index.derived(remedied_causes, about)
    if last_failure is not None and not last_failure.transient and _cause(last_failure) not in remedied:
        # Its class is known by its id; the words of an error that is new may still be like those of another.
        found += index.recoveries(last_failure.class_) or index.derived(
            _after_like_error, last_failure.tool, last_failure.family, last_failure.template
        )
    known, call = _NOTHING, None
    if tool is None:
        found += (index.strategies(at.task) if at.task else ()) or (
            index.derived(_for_like_goal, at.goal) if at.goal else ()
        )
        found += index.derived(_facts, "", at.goal) if index.has_facts("") else ()
    else:
        call = call_id(tool, at.arguments)
        known = index.derived(_known, tool, call)
        if at.own_failures and not known.of_one_session.isdisjoint(at.own_failures):
            known = _known(index, tool, call, at.own_failures)
        if remedied:  # what helps is said instead of what fails, and nothing once it is done
            known = known.without(index, remedied)
        found += known.items
        if index.has_facts(tool):
            found += index.derived(_facts, tool, at.goal if last_failure is None else last_failure.template)
    transient = known.transient and tuple([each for each in known.transient if transient_weight(each, at.now)])
    items = _choose(found, at.session, most)
    # A fact is shown and not learned: there is nothing to be found out about it.
    kept_back = [item for item in items if item.kind != "fact" and withheld(at.session, item.id, holdout_share)]
    if not kept_back:
        return Advice(tuple(items), known.patterns, transient, known.health, known.risk, now=at.now, call=call)
    return Advice(
        tuple([item for item in items if item not in kept_back]),
        known.patterns,
        transient,
        known.health,
        known.risk,
        tuple([item.id for item in kept_back]),
        frozenset([item.pattern for item in kept_back]),
        now=at.now,
        call=call,
    )


def _cause(failure: Failure) -> str:
    return cause_of_class(failure.tool, failure.error_class, failure.template)


def _after_like_error(index: LoreIndex, tool: str, family: str, error: str) -> tuple[MemoryItem, ...]:
    return index.recoveries_like(tool, family, error, LIKE_ERROR)


def _facts(index: LoreIndex, tool: str, text: str) -> tuple[MemoryItem, ...]:
    return index.facts_like(tool, text, LIKE_FACT)


def _for_like_goal(index: LoreIndex, goal: str) -> tuple[MemoryItem, ...]:
    return index.strategies_like(goal, LIKE_GOAL)


class _Known(NamedTuple):
    """What is known of a kind of call, for any session. Some `items` may be the asking session's own.

    transient: may be old.
    of_one_session: ids of patterns that a single session met: to that session they are nothing new.
    """

    items: tuple[MemoryItem, ...]
    patterns: tuple[Pattern, ...]
    transient: tuple[Pattern, ...]
    health: Pattern | None
    risk: float | None
    of_one_session: frozenset[str]

    def without(self, index: LoreIndex, causes: frozenset[str]) -> _Known:
        """What is left without errors of these causes."""
        items = [item for item in self.items if cause_of_id(index, item.pattern) not in causes]
        patterns = [pattern for pattern in self.patterns if cause_of_id(index, pattern.parent) not in causes]
        return self._replace(items=tuple(items), patterns=tuple(patterns))


_NOTHING = _Known((), (), (), None, None, frozenset())


def _known(index: LoreIndex, tool: str, call: str, own_failures: Collection[str] = ()) -> _Known:
    health = index.health(call)
    patterns = index.failures_of_call(call)
    of_one_session = frozenset(pattern.id for pattern in patterns if pattern.sessions <= 1)
    # What one session saw, and this one saw it too: there is nothing to learn from it.
    patterns = tuple(
        pattern for pattern in patterns if pattern.id not in of_one_session or pattern.id not in own_failures
    )
    tools = index.health(tool_id(tool))
    patterns = tuple([pattern for pattern in patterns if worth_showing(pattern, tools)])
    failures, calls = _lasting(health, patterns, index.transient_of_call(call))
    items: list[MemoryItem] = []
    if failures and wilson(failures, calls)[0] >= WARN_RATE:
        for pattern in patterns[:MAX_PATTERNS]:
            if pattern.parent is not None:
                items += index.recoveries(pattern.parent)
        items += index.recoveries(call)
        for key in (call, tool):
            items += (item for item in index.lessons(key) if item.support >= LESSON_SUPPORT)
    else:
        patterns = ()
    loops = [each for each in index.loops_of_call(call) if _is_usual(each, health) and worth_showing(each, tools)][:1]
    for each in loops:
        items += index.recoveries(each.id)
    risk = (failures + 0.5) / (calls + 1.0) if calls else None
    transient = index.transient_of_tool(tool)[:2]
    return _Known(tuple(items), (*patterns[:MAX_PATTERNS], *loops), transient, health, risk, of_one_session)


def _is_usual(loop: Pattern, health: Pattern | None) -> bool:
    """Whether as many of the sessions that made such a call got into the loop as would have to fail for a warning."""
    if health is None or loop.sessions < LESSON_SUPPORT:
        return False
    return wilson(min(loop.sessions, health.sessions), health.sessions)[0] >= WARN_RATE


def _lasting(health: Pattern | None, patterns: tuple[Pattern, ...], transient: tuple[Pattern, ...]) -> tuple[int, int]:
    """Failures for a lasting reason and calls, both without transient errors.

    A new pattern comes at once; the health row of a call that was known before comes seconds later, or not at all.
    Until then the pattern speaks for itself.
    """
    met = sum(pattern.failures for pattern in patterns)
    if health is None or health.calls < met:
        return met, met
    passing = min(sum(pattern.failures for pattern in transient), health.failures)
    failures = max(health.failures - passing, met) if patterns else 0
    return failures, max(health.calls - passing, failures)


def _choose(found: Iterable[MemoryItem], session: str, most: int) -> list[MemoryItem]:
    """The first few, each once, without what only the session itself has taught."""
    chosen: dict[str, MemoryItem] = {}
    for item in found:
        if len(chosen) >= most:
            break
        if item.support > 1 or not _taught(item, session):
            chosen.setdefault(item.id, item)
    return list(chosen.values())


def _taught(item: MemoryItem, session: str) -> bool:
    """Whether the item came from this session, or from a part of it: a long one is worked on in parts, `session#1`."""
    return any(each == session or each.rpartition("#")[0] == session for each in item.sessions)
