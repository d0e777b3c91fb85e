"""Say at the start of a session what it needs before its first choice: the place, what got others past the failures of
the tools at hand, and the way that solved this very goal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetlore.advice.before_call import look_up_quote, name_quote, need_tip
from fleetlore.advice.changes import change_tip, is_of_argument, is_own, is_sure, item_tip
from fleetlore.advice.gate import Part, Tip, all_of
from fleetlore.advice.situation import Situation
from fleetlore.calls.card import structure
from fleetlore.calls.document import LookUp
from fleetlore.calls.model import CallModel
from fleetlore.fingerprint.literals import masked_text
from fleetlore.recall.index import LoreIndex
from fleetlore.stats.text_index import words
from fleetlore.wire.lore import HOW_TO

__all__ = ["ToolFact", "facts_of_tools", "structure_parts"]

_MAX_CARD = 600
_MOST_RECOVERIES = 2
# Share of all their words that two goals hold both, from which they are one.
_SAME_GOAL = 0.9


# List what a version of the call model says of tools.
@dataclass(frozen=True, slots=True)
class ToolFact:
    """What agents are told of a tool, before a call or after it failed.

    Attributes:
        about: `need`, what calls fail for; `look-up`, where what they lack is found.
        agents, sessions: that it rests on; of each agent a few sessions.
    """

    tool: str
    about: str
    says: str
    agents: int
    sessions: int


def facts_of_tools(model: CallModel) -> list[ToolFact]:
    """What a version says of tools: needs, then look-ups; of each the best backed first."""
    needs = [ToolFact(of.tool, "need", all_of(need_tip(of).parts), of.agents, of.failed) for of in model.needs.values()]
    look_ups = [
        ToolFact(of.tool, "look-up", f"after {of.kind}: {all_of(look_up_parts(of))}", of.agents, of.used)
        for of in model.look_ups.values()
    ]
    return [
        each
        for some in (needs, look_ups)
        for each in sorted(some, key=lambda each: (-each.agents, -each.sessions, each.tool, each.says))
    ]


def card(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """What the place has: `owner(member, …)` a line, the nearest to the goal first, and how to see the rest."""
    place = at.known_place
    if place is None or at.failed is not None:
        return
    found = structure(place, at.goal, "", _MAX_CARD)
    if found:
        look_up: tuple[Part, ...] = ()
        if place.look_up:
            look_up = ("\nThere may be more: look it up by ", name_quote(f"`{place.look_up}`"), ".")
        yield Tip("place:card", "card", (*structure_parts(found), *look_up), key="place:card")


def recoveries(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """What got others past the failures of the tools at hand that matter most."""
    if at.failed is not None:
        return
    found = [item for tool in at.tools for item in index.recoveries_of_tool(tool)]
    found = [item for item in found if is_sure(item) and is_of_argument(item) and not is_own(item, at.session)]
    found.sort(key=lambda item: (-item.standing(), item.id))
    for item in found[:_MOST_RECOVERIES]:
        yield change_tip(item, "recoveries")


def way(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """The calls that solved this very goal."""
    for item in index.strategies(at.task) if at.task else ():
        if _is_same_goal(item.title.removeprefix(HOW_TO), at.goal) and not is_own(item, at.session):
            yield item_tip(item, "way")


def structure_parts(found: Sequence[tuple[str, Sequence[str]]], lead: str = "Here there are:") -> tuple[Part, ...]:
    """Owners with their members, one a line."""
    return (f"{lead}\n", name_quote("\n".join(f"{owner}({', '.join(members)})" for owner, members in found)))


def look_up_parts(of: LookUp) -> tuple[Part, ...]:
    """The call that shows what there is."""
    return ("Look up what there is: ", look_up_quote(of), ".")


def _is_same_goal(one: str, other: str) -> bool:
    some, others = (frozenset(words(masked_text(goal, frozenset()))) for goal in (one, other))
    return bool(some) and len(some & others) >= _SAME_GOAL * len(some | others)
