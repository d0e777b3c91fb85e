"""Look up what the fleet knows that matters to the next action: in memory, no network.

Before a call: one line, if it will likely fail (`fleetlore.recall.call_warning`), and what is still to be prepared for
it. After a failure: at most one way out. At the start of a session: what tells success from failure at its task. What
is found by id comes first: the class of the failure, the kind of call, the tool, the task. Where no id is known, what
is likest in words is taken, above a threshold: errors of the same family, goals, facts.

Advice is short, and mostly silent: more recalled memory measured worse than less (ReasoningBank, number of recalled
items: best at one), and a warning before every call says nothing. Nothing is told twice in a session. A share of what
would be said is withheld at random (`fleetlore.recall.holdout`) and its place is left empty: it is compared with
nothing, not with the next best.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

from fleetlore.calls.context import CallContext
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected
from fleetlore.fingerprint.fingerprint import (
    argument_shape,
    arguments_text,
    call_id,
    is_free_text,
    tool_id,
)
from fleetlore.fingerprint.loops import Loop
from fleetlore.recall.call_warning import CallWarning, by_counts, by_model, by_need, lasting
from fleetlore.recall.hints import transient_weight, worth_showing
from fleetlore.recall.holdout import withheld
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.remedies import PreconditionTracker, cause_of_id, remedied_causes, remedies_before
from fleetlore.recall.render import advice_text
from fleetlore.recall.ways_out import LEAST_AGENTS, WayOut, again, is_own, way_out
from fleetlore.stats.intervals import wilson
from fleetlore.wire.lore import MemoryItem, Pattern

__all__ = ["Advice", "Situation", "advise"]

MAX_ITEMS = 3
# In place of the goal of a way, which the session knows.
THIS_TASK = "What tells success from failure at this very task"
_FIGURES = re.compile(r"[\d.,%]+")
MAX_CHARS = 600
MAX_PATTERNS = 3
# Lower bound of the rate at which a kind of call fails, from which what got others past its failures is said before it.
KNOWN_RATE = 0.05
# Sessions: what one session did not get past, or repeated, may have been its own fault.
LEAST_SUPPORT = 2
# Cosine of words, above which a goal is taken for like another goal.
LIKE_GOAL = 0.5
# A fact is long, and what is asked is short.
LIKE_FACT = 0.25


class Caution(NamedTuple):
    """A warning about the session itself, before its next action: a loop, a budget, a dangerous call. Never a block.

    `id`: of a bounded set of words, `guard:loop`, `safety:…`.
    """

    id: str
    text: str

    @property
    def key(self) -> str:
        """By which it is told once: with other figures it is no news."""
        return f"{self.id}\x1f{_FIGURES.sub('', self.text)}"


class Advice(NamedTuple):
    """What the fleet knows; falsy where it says nothing. A named tuple, since one is made before every call.

    Attributes:
        warning: of the call that was asked about, where it will likely fail.
        way_out: what got others past the failure that the session has just met.
        items: memory items, the most useful first, few: what to prepare, how to go about the task.
        transient: errors of the last minutes that pass by themselves: try again later.
        health: calls and failures of this kind of call, transient errors included; None where it was never made.
        risk: chance that the call fails, 0..1: the call model's, or as often as such calls failed (Jeffreys' estimate,
            transient errors left out); None where nothing is known of such a call, or none was asked about.
        withheld: ids of what the holdout withheld.
        call: id of the kind of call that was asked about.
        introduced: whether the session was told before what advice is.
        nonce: of the fence around its text, which no text of others can know; empty where no session asked.
    """

    warning: CallWarning | None = None
    way_out: WayOut | None = None
    items: tuple[MemoryItem, ...] = ()
    transient: tuple[Pattern, ...] = ()
    health: Pattern | None = None
    risk: float | None = None
    withheld: tuple[str, ...] = ()
    cautions: tuple[Caution, ...] = ()
    now: float = 0.0
    call: str | None = None
    introduced: bool = False
    nonce: str = ""

    @property
    def memories(self) -> tuple[MemoryItem, ...]:
        """The item that the way out is of, if it is of one, and the others."""
        if self.way_out is None or self.way_out.item is None:
            return self.items
        return self.way_out.item, *self.items

    @property
    def shown(self) -> Iterator[CallWarning | WayOut | MemoryItem | Caution]:
        """All that is said and has an id."""
        yield from self.cautions
        if self.warning is not None:
            yield self.warning
        if self.way_out is not None:
            yield self.way_out
        yield from self.items

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of what is said, for the outcome's record of what the agent was shown."""
        return tuple([each.id for each in self.shown])

    def __bool__(self) -> bool:
        return any(True for _ in self.shown) or bool(self.transient)

    @property
    def text(self) -> str:
        """Text for a model's context, marked as data: its words come from other sessions. Empty if there is nothing."""
        return advice_text(self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        said = ", ".join((*self.ids, *(f"{each.error_class} passes by itself" for each in self.transient)))
        return f"<Advice: {said or 'nothing'}>"


@dataclass(slots=True)
class Situation:
    """What a session is about to do, and what it has met so far.

    Attributes:
        tool, arguments: the call that is about to be made; None for advice on the session as a whole.
        tools: of which one may be called next, where no call is asked about.
        now: wall time in seconds, by which transient errors grow old.
        task: the session's task.
        goal: the session's goal in words, for a task of which nothing is known.
        session: id of the session; what it alone has taught the fleet is left out.
        own_failures: ids of the exact patterns that the session itself met.
        failed: the call that failed last, if the session has not got past it.
        led_out: whether it was told a way out of that: one is enough until the next failure.
        loop: the loop that the session is in, if it is in one.
        preconditions: what the session met and prepared so far; without it, remedies that are counted over names are
            left out.
        model: of calls; None before the first version.
        context: what the session has shown, for the model.
        place: where the session is; None where that is not known.
        own: failures of the session, with their names.
        beside: what the network makes of the model's chance, where it adds to it.
        told: what the session was told before (`told_by`), which is not told again.
    """

    tool: str | None = None
    arguments: object = None
    _: KW_ONLY
    now: float
    task: str = ""
    goal: str = ""
    session: str = ""
    own_failures: Collection[str] = ()
    failed: FailedCall | None = None
    led_out: bool = False
    loop: Loop | None = None
    preconditions: PreconditionTracker | None = None
    model: CallModel | None = None
    context: CallContext | None = None
    place: str | None = None
    tools: tuple[str, ...] = ()
    own: Collection[Expected] = ()
    beside: Callable[[float], float] | None = None
    told: Collection[str] = ()


def advise(index: LoreIndex, at: Situation, *, holdout_share: float = 0.0, most: int = MAX_ITEMS) -> Advice:
    """Look up what the fleet knows.

    Args:
        holdout_share: share of what would be said that is withheld, 0..1.
        most: items at the most, the withheld ones among them.
    """
    remedies: list[MemoryItem] = []
    remedied: frozenset[str] = frozenset()
    failed = at.failed
    asked = Call.made(at.tool, arguments_text(at.arguments)) if at.tool is not None else None
    about = at.tool if at.tool is not None else failed.failure.tool if failed is not None else None
    if at.preconditions is not None and about is not None:
        remedies = remedies_before(index, about, at.arguments, at.preconditions)
        remedied = index.derived(remedied_causes, about)
        # Free text, and one agent's: what it did may belong to its own task (`fleetlore.recall.ways_out`).
        if _is_free_text(at, asked):
            remedies = [item for item in remedies if item.agents >= LEAST_AGENTS]
    if at.loop is not None:
        # What led one agent out of a loop may have led it nowhere.
        out = [item for item in index.recoveries(at.loop.pattern.exact) if item.agents >= LEAST_AGENTS]
        remedies += out[:1]
    found = None
    if failed is not None and not at.led_out:
        found = way_out(index, failed, at.model, at.place, at.told) or again(
            index, failed, at.model, at.place, at.task, at.told
        )
    if asked is None:
        transient = [each for tool in at.tools for each in index.transient_of_tool(tool)]
        advice = Advice(transient=_lasting_still(transient, at), now=at.now)
        return _said(at, advice, found, [*remedies, *_needed(index, at), *_at_start(index, at)], holdout_share, most)
    call = call_id(asked.tool, asked.arguments)
    known_of = index.derived(_known, asked.tool, call)
    warning, risk = _warning(index, at, asked, call, remedied)
    remedies += [
        item for item in known_of.ways_round if not remedied or cause_of_id(index, item.pattern) not in remedied
    ]
    if warning is not None:
        helped = [item for item in index.recoveries(warning.pattern or "") if item.support >= LEAST_SUPPORT]
        remedies += [*helped[:1], *_lessons(known_of, at, asked, warning)]
    advice = Advice(
        warning,
        transient=_lasting_still(known_of.transient, at),
        health=known_of.health,
        risk=known_of.risk if risk is None else risk,
        now=at.now,
        call=call,
    )
    return _said(at, advice, found, [*remedies, *_facts_of(index, at)], holdout_share, most)


def _said(
    at: Situation, advice: Advice, way_out: WayOut | None, items: Iterable[MemoryItem], share: float, most: int
) -> Advice:
    """What is left of it: the first few items, nothing that was told before, and a share withheld."""
    chosen = [item for item in _chosen(items, at, most) if way_out is None or item.id != way_out.id]
    warning = advice.warning if advice.warning is None or _warned_of(advice.warning) not in at.told else None
    # A fact is shown and not learned, and a warning by counts rests on its pattern: nothing is to be found out of them.
    tried: list[WayOut | MemoryItem | CallWarning | None] = [way_out]
    tried += [item for item in chosen if item.kind != "fact"]
    if warning is not None and warning.pattern is None:
        tried.append(warning)
    kept_back = {each.id for each in tried if each is not None and withheld(at.session, each.id, share)}
    if kept_back:
        warning = None if warning is not None and warning.id in kept_back else warning
        way_out = None if way_out is not None and way_out.id in kept_back else way_out
        chosen = [item for item in chosen if item.id not in kept_back]
    return advice._replace(warning=warning, way_out=way_out, items=tuple(chosen), withheld=tuple(sorted(kept_back)))


def told_by(advice: Advice) -> Iterator[str]:
    """What the session need not be told again."""
    for each in advice.shown:
        if isinstance(each, CallWarning):
            yield from (_warned_of(each), each.id)
        elif isinstance(each, WayOut):
            yield from each.told
        else:
            yield each.key if isinstance(each, Caution) else each.id


def _warned_of(warning: CallWarning) -> str:
    return f"{warning.kind}\x1f{warning.names}"


def _warning(
    index: LoreIndex, at: Situation, asked: Call, call: str, remedied: frozenset[str]
) -> tuple[CallWarning | None, float | None]:
    """The line before a call, and the model's estimate of the risk."""
    risk = since = None
    if at.model is not None and at.context is not None:
        outlook = at.model.outlook(asked, at.context, at.place)
        if outlook is not None:
            if at.beside is not None:
                outlook = outlook._replace(fails=at.beside(outlook.fails))
            risk, since = outlook.fails, at.model.until
            if (need := by_need(at.model, asked, at.context)) is not None:
                return need, max(risk, need.fails)
            if outlook.warned and (warning := by_model(at.model, risk, asked, at.context, at.place, at.own)):
                return warning, risk
    return by_counts(index, asked, call, at.own_failures, since, remedied), risk


def _is_free_text(at: Situation, asked: Call | None) -> bool:
    """Whether the call that is asked about, or else the one that failed, is nothing but text."""
    if asked is not None:
        return is_free_text(argument_shape(asked.arguments))
    return at.failed is not None and is_free_text(at.failed.failure.shape)


def _lessons(known_of: _Known, at: Situation, asked: Call, warning: CallWarning) -> Iterable[MemoryItem]:
    """What sessions tried in vain. Of free text the kind of a call is too many calls: there only what they tried
    against the very failure that is warned of.
    """
    if not _is_free_text(at, asked):
        return known_of.lessons
    return [item for item in known_of.lessons if item.pattern == warning.pattern]


def _lasting_still(transient: Iterable[Pattern], at: Situation) -> tuple[Pattern, ...]:
    return tuple([each for each in transient if transient_weight(each, at.now) and _may_pass(each, at.model)])


def _may_pass(pattern: Pattern, model: CallModel | None) -> bool:
    """Whether it was not measured that calls with this error fail again."""
    of_class = pattern.parent if pattern.level == "exact" else pattern.id
    resent = model.resent.get(of_class or "") if model is not None else None
    return resent is None or resent.decided(guessed=True)


def _needed(index: LoreIndex, at: Situation) -> Iterator[MemoryItem]:
    """What the tools that may be called still need."""
    if at.preconditions is not None:
        for tool in at.tools:
            yield from remedies_before(index, tool, None, at.preconditions)


def _at_start(index: LoreIndex, at: Situation) -> list[MemoryItem]:
    known = tuple([replace(each, title=THIS_TASK) for each in index.strategies(at.task)]) if at.task else ()
    if not known and at.goal:
        # Of like goals the likest alone: the next best is about another task still more often.
        likest = index.derived(_for_like_goal, at.goal)
        known = tuple([item for item in likest if not is_own(item, at.session)][:1])
    return [*known, *(index.derived(_facts, "", at.goal) if index.has_facts("") else ())]


def _facts_of(index: LoreIndex, at: Situation) -> tuple[MemoryItem, ...]:
    tool, failed = at.tool or "", at.failed
    if not index.has_facts(tool):
        return ()
    return index.derived(_facts, tool, at.goal if failed is None else failed.failure.template)


def _facts(index: LoreIndex, tool: str, text: str) -> tuple[MemoryItem, ...]:
    return index.facts_like(tool, text, LIKE_FACT)


def _for_like_goal(index: LoreIndex, goal: str) -> tuple[MemoryItem, ...]:
    return index.strategies_like(goal, LIKE_GOAL)


class _Known(NamedTuple):
    """What is known of a kind of call, for any session. Some items may be the asking session's own.

    lessons: to be said with a warning only; transient: may be old.
    ways_round: what got others past the failures of such calls. Of free text there is none: the kind of such a call is
        too many calls.
    """

    lessons: tuple[MemoryItem, ...]
    ways_round: tuple[MemoryItem, ...]
    transient: tuple[Pattern, ...]
    health: Pattern | None
    risk: float | None


def _known(index: LoreIndex, tool: str, call: str) -> _Known:
    health = index.health(call)
    tools = index.health(tool_id(tool))
    patterns = [pattern for pattern in index.failures_of_call(call) if worth_showing(pattern, tools)]
    failures, calls = lasting(health, patterns, index.transient_of_call(call))
    lessons = [item for key in (call, tool) for item in index.lessons(key) if item.support >= LEAST_SUPPORT]
    ways_round: list[MemoryItem] = []
    if failures and wilson(failures, calls)[0] >= KNOWN_RATE:
        parents = [pattern.parent for pattern in patterns[:MAX_PATTERNS] if not is_free_text(pattern.shape)]
        ways_round += [item for parent in parents if parent is not None for item in index.recoveries(parent)]
        ways_round += index.recoveries(call) if parents else ()
    return _Known(
        tuple(lessons),
        tuple(ways_round),
        index.transient_of_tool(tool)[:2],
        health,
        (failures + 0.5) / (calls + 1.0) if calls else None,
    )


def _chosen(found: Iterable[MemoryItem], at: Situation, most: int) -> list[MemoryItem]:
    """The first few, each once, without what only the session itself has taught or what it was told before."""
    chosen: dict[str, MemoryItem] = {}
    for item in found:
        if len(chosen) >= most:
            break
        if item.id not in at.told and not is_own(item, at.session):
            chosen.setdefault(item.id, item)
    return list(chosen.values())
