"""List the sources of tips, in the order in which they are asked. Each has its row in `docs/results/helps.md`.

Sources at the start of a session say what it needs for its first choice. Sources after a failure say what leads past
it. Those before a call are in `fleetlore.advice.before_call`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from fleetlore.advice import before_call
from fleetlore.advice.before_call import look_up_quote, members_of, name_quote, need_tip, replacements
from fleetlore.advice.changes import (
    change_tip,
    is_of_argument,
    is_of_place,
    is_of_tool,
    is_own,
    is_sure,
    item_tip,
    names_beside,
)
from fleetlore.advice.gate import PROVEN, Part, Quote, Tip
from fleetlore.advice.persons import PERSON
from fleetlore.advice.proposed import proposed
from fleetlore.advice.provenance import redact_fenced
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.calls.call import CALL_CHARACTERS, values_of
from fleetlore.calls.document import LookUp
from fleetlore.calls.places import PlaceNames, is_covered, missing, structure, unknown
from fleetlore.fingerprint.fingerprint import is_free_text, pattern_id, strategy_id
from fleetlore.fingerprint.names import missing_name, spelled
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.trajectory import MAX_TEXT
from fleetlore.words import names_of

__all__ = ["AFTER_FAILURE", "AT_START", "BEFORE_CALL", "SOURCES", "WAYS_OUT", "Source"]

_MAX_CARD, _MAX_STRUCTURE = 600, 300
_MOST_RECOVERIES = 2
_MOST_NAMED = 3
# Rejected names of one call. Each is compared with all names of the place.
_MOST_REJECTED = 6


def card(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the structure of the place, one `owner(member, …)` a line, nearest to the goal first."""
    place = moment.known_place
    if place is None or moment.met.failed is not None:
        return
    found = structure(place, moment.met.goal, "", _MAX_CARD)
    if found:
        look_up: tuple[Part, ...] = ()
        if place.look_up:
            quote = Quote(f"`{place.look_up}`", PROVEN, "call")
            look_up = ("\nThere may be more: look it up by ", quote, ".")
        yield Tip("place:card", "card", (*_structure_parts(found), *look_up), key="place:card")


def recoveries(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    if moment.met.failed is not None:
        return
    found = [item for tool in moment.asked.tools for item in index.recoveries_of_tool(tool)]
    found = [item for item in found if is_sure(item) and is_of_argument(item) and not is_own(item, moment.met.key)]
    found.sort(key=lambda item: (-item.standing(), item.id))
    for item in found[:_MOST_RECOVERIES]:
        yield change_tip(item, "recoveries")


def way(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    if not moment.met.task:
        return
    sent = redact_fenced(moment.met.goal)[:MAX_TEXT]
    for item in index.strategies(strategy_id(moment.met.task, sent)):
        if not is_own(item, moment.met.key):
            yield item_tip(item, "way")


def _structure_parts(found: Sequence[tuple[str, Sequence[str]]], lead: str = "Here there are:") -> tuple[Part, ...]:
    return (f"{lead}\n", name_quote("\n".join(f"{owner}({', '.join(members)})" for owner, members in found)))


def needs(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    if moment.met.failed is not None and moment.known.model is not None:
        need = moment.known.model.need(moment.met.failed.call.tool, moment.met.failed.marks)
        if need is not None:
            yield need_tip(need)._replace(chance=None, sure=False)


def renamed(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield working names for all rejected ones, if each has a near one at the place."""
    failed, place = moment.met.failed, moment.known_place
    if failed is None or place is None:
        return
    rejected = _rejected(failed, place)
    parts, swaps = replacements(moment, rejected, failed.call.text)
    parts = (*parts, *members_of(swaps.values(), place))
    if swaps and (len(swaps) == len(rejected) or not place.members):
        id = pattern_id("renamed", failed.failure.class_)
        key = f"{id}\x1f{' '.join(swaps)}"
        yield Tip(id, "renamed", parts, key=key, rejected=_folded(swaps), brings=tuple(swaps.values()))


def worked_instead(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield names that several agents looked up after this very error, and that worked."""
    failed = moment.met.failed
    if failed is None:
        return
    held = names_of(failed.call.text[:CALL_CHARACTERS])
    for item in index.recoveries(failed.failure.class_):
        beside = names_beside(item)
        # An error without a table's name is the same at every table.
        if beside is not None and held.issuperset(beside) and not is_own(item, moment.met.key):
            yield change_tip(item, "worked instead")


def looked_up(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """The call by which other sessions found what such a call lacked."""
    failed = moment.met.failed
    found = _look_up(moment, failed) if failed is not None else None
    if failed is not None and found is not None:
        id = pattern_id("look-up", found.tool, found.kind)
        names = _quoted([spelled(name, failed.call.text) for name in failed.kind.names])
        instead = f" instead of {names}" if names else ""
        parts = ("Send ", look_up_quote(found), f" next: it shows what there is{instead}.")
        yield Tip(id, "looked up", parts, key=id, agents=found.agents)


def known_here(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the structure of the place, if the call uses names that are not there or belong to another owner."""
    failed, place = moment.met.failed, moment.known_place
    if failed is None or place is None or not is_covered(failed.call.text, place, failed.kind.names):
        return
    rejected = _rejected(failed, place)
    elsewhere = () if rejected else missing(failed.call.text, place, failed.kind.names)
    instead, swaps = replacements(moment, rejected, failed.call.text)
    call = f"{failed.call.text} {' '.join(swaps.values())}"
    found = structure(place, moment.met.goal, call, _MAX_STRUCTURE) if rejected or elsewhere else ()
    if found:
        lead = " " if instead else ""
        if left := [name for name in rejected if name not in swaps]:
            lead += f"Do not use {_quoted(left)}. "
        if elsewhere:
            lead += f"{_quoted(elsewhere)} is of something else. "
        parts = (*instead, *_structure_parts(found, f"{lead}Use these names alone:"))
        key = f"place:names\x1f{failed.failure.class_}\x1f{' '.join((*rejected, *elsewhere))}"
        brings = tuple(swaps.values())
        yield Tip("place:names", "known here", parts, key=key, rejected=_folded(rejected), brings=brings)


def got_past(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield changes that got other agents past this failure."""
    failed = moment.met.failed
    if failed is None:
        return
    others = [
        item
        for item in index.recoveries(failed.failure.class_)
        if names_beside(item) is None and not is_own(item, moment.met.key)
    ]
    if is_free_text(failed.failure.shape):
        others = [item for item in others if is_of_tool(item) and is_of_place(item, moment.known_place)]
    for item in others:
        yield change_tip(item, "got past")


def forbidden(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield names that do not exist by the call's own error: models often send them again."""
    failed = moment.met.failed
    if failed is None:
        return
    rejected = missing_name(failed.error)
    if names := [spelled(name, failed.call.text) for name in failed.kind.names if name == rejected]:
        id = pattern_id("forbidden", failed.failure.class_)
        parts, key = (f"Do not use {_quoted(names)} again.",), f"{id}\x1f{' '.join(names)}"
        yield Tip(id, "forbidden", parts, key=key, rejected=_folded(names))


def _rejected(failed: FailedCall, place: PlaceNames) -> list[str]:
    named = failed.kind.names
    if not named or not place.members:
        return [name for name in named if place.rejects(name)]
    keys = frozenset(key.lower() for key in values_of(failed.call.json))
    return [name for name in unknown(failed.call.text, place, named) if name.lower() not in keys][:_MOST_REJECTED]


def _folded(names: Iterable[str]) -> tuple[str, ...]:
    return tuple([name.lower() for name in names])


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])


def _look_up(moment: Situation, failed: FailedCall) -> LookUp | None:
    found = moment.look_up(failed.kind.kind)
    if found is None or (found.by == failed.call.tool and "<" not in found.text and found.text in failed.seen):
        return None
    return found


class Source(NamedTuple):
    """A source of tips.

    Attributes:
        name: `Tip.source`.
        moment: when it is asked: at the start of a session, before a call, or after a failure.
        repeats: whether it is asked again if no new tips are left.
    """

    name: str
    moment: Literal["start", "before", "after"]
    yields: Callable[[LoreIndex, Situation], Iterable[Tip]]
    repeats: bool = False


# All tips of the start are shown, as far as they fit. Before a call and after a failure only the first one is shown,
# and no other way out until the next failure.
_ASKED = (
    Source("changed", "before", before_call.changed),
    Source("needed", "before", before_call.needed),
    Source("sent again", "before", before_call.sent_again),
    Source("foreseen", "before", before_call.foreseen),
    Source("counted", "before", before_call.counted),
    Source("needed", "after", needs),
    Source("worked instead", "after", worked_instead, repeats=True),
    Source("renamed", "after", renamed, repeats=True),
    Source("got past", "after", got_past),
    Source("proposed", "after", proposed, repeats=True),
    Source("known here", "after", known_here, repeats=True),
    Source("looked up", "after", looked_up),
    Source("forbidden", "after", forbidden, repeats=True),
    Source("way", "start", way),
    Source("card", "start", card),
    Source("recoveries", "start", recoveries),
    Source("passing", "start", before_call.passing),
)
BEFORE_CALL, AFTER_FAILURE, AT_START = (
    tuple(each for each in _ASKED if each.moment == when) for when in ("before", "after", "start")
)
WAYS_OUT = frozenset(each.name for each in AFTER_FAILURE)
# The first three are from `fleetlore.watch`, the fourth from `fleetlore.advice.persons`.
SOURCES = tuple(dict.fromkeys(("loop", "budget", "safety", PERSON, *(each.name for each in _ASKED))))
