"""List the sources of tips, in the order in which they are asked. Each has its row in `docs/results/helps.md`.

A source looks at the lore and at the session's situation and yields tips, the surest first. Nothing that it yields is
shown before `fleetlore.advice.gate.tell` has let it pass. At the start of a session stands what it needs before its
first choice, after a failure what leads past it; those before a call are in `fleetlore.advice.before_call`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

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
from fleetlore.advice.gate import Part, Tip
from fleetlore.advice.provenance import redact_fenced
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.calls.context import CALL_CHARACTERS, values_of
from fleetlore.calls.document import LookUp
from fleetlore.calls.places import PlaceNames, is_covered, missing, structure, unknown
from fleetlore.fingerprint.fingerprint import is_free_text, pattern_id, strategy_id
from fleetlore.fingerprint.names import FailureKind, failure_kind, spelled
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.trajectory import MAX_TEXT
from fleetlore.words import names_of

__all__ = ["SOURCES", "WAYS_OUT"]

_MAX_CARD, _MAX_STRUCTURE = 600, 300
_MOST_RECOVERIES = 2
_MOST_NAMED = 3
# Of one call: for each a name near it is looked for among all of the place.
_MOST_REJECTED = 6
# What Python says of a name that a thing has not. Of other errors the names are files, programs and types, or want a
# definition.
_NO_SUCH_NAME = re.compile(r"\bno attribute\b|\bunexpected keyword\b")


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
        yield Tip("place:card", "card", (*_structure_parts(found), *look_up), key="place:card")


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
    """Yield the calls that solved this very goal."""
    if not at.task:
        return
    sent = redact_fenced(at.goal)[:MAX_TEXT]  # the goal as the session's events hold it
    for item in index.strategies(strategy_id(at.task, sent)):
        if not is_own(item, at.session):
            yield item_tip(item, "way")


def _structure_parts(found: Sequence[tuple[str, Sequence[str]]], lead: str = "Here there are:") -> tuple[Part, ...]:
    return (f"{lead}\n", name_quote("\n".join(f"{owner}({', '.join(members)})" for owner, members in found)))


def needs(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """What the thing that the call took must be like."""
    if at.failed is not None and at.model is not None:
        need = at.model.need(at.failed.failure.tool, at.failed.marks)
        if need is not None:
            yield need_tip(need)._replace(chance=None, sure=False)  # of the call that failed, not of the next


def renamed(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """A name that works at the place in place of each of the call that does not, where one is near to each."""
    failed, place = at.failed, at.known_place
    if failed is None or place is None:
        return
    rejected = _rejected(failed, place)
    parts, swaps = replacements(at, rejected, failed.text)
    parts = (*parts, *members_of(swaps.values(), place))
    if swaps and (len(swaps) == len(rejected) or not place.members):
        id = pattern_id("renamed", failed.failure.class_)
        yield Tip(id, "renamed", parts, key=f"{id}\x1f{' '.join(swaps)}", brings=tuple(swaps.values()))


def worked_instead(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """Names that several agents looked up after this very error, and that worked."""
    failed = at.failed
    if failed is None:
        return
    held = names_of(failed.text[:CALL_CHARACTERS])
    for item in index.recoveries(failed.failure.class_):
        beside = names_beside(item)
        # An error that does not say where it was met is the same at every table.
        if beside is not None and held.issuperset(beside) and not is_own(item, at.session):
            yield change_tip(item, "worked instead")


def looked_up(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """The call by which other sessions found what such a call lacked."""
    failed = at.failed
    found = _look_up(at, failed) if failed is not None else None
    if failed is not None and found is not None:
        id = pattern_id("look-up", found.tool, found.kind)
        names = _quoted([spelled(name, failed.text) for name in _kind(failed).names])
        instead = f" instead of {names}" if names else ""
        parts = ("Send ", look_up_quote(found), f" next: it shows what there is{instead}.")
        yield Tip(id, "looked up", parts, key=id, agents=found.agents)


def known_here(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """What the place has, what the call names and what is nearest to the goal first, where names of the call are not
    there, or are there of something else.
    """
    failed, place = at.failed, at.known_place
    if failed is None or place is None or not is_covered(failed.text, place, _kind(failed).names):
        return
    rejected = _rejected(failed, place)
    elsewhere = () if rejected else missing(failed.text, place, _kind(failed).names)
    instead, swaps = replacements(at, rejected, failed.text)
    call = f"{failed.text} {' '.join(swaps.values())}"
    found = structure(place, at.goal, call, _MAX_STRUCTURE) if rejected or elsewhere else ()
    if found:
        lead = " " if instead else ""
        if left := [name for name in rejected if name not in swaps]:
            lead += f"Do not use {_quoted(left)}. "
        if elsewhere:
            lead += f"{_quoted(elsewhere)} is of something else. "
        parts = (*instead, *_structure_parts(found, f"{lead}Use these names alone:"))
        key = f"place:names\x1f{failed.failure.class_}\x1f{' '.join((*rejected, *elsewhere))}"
        yield Tip("place:names", "known here", parts, key=key, brings=tuple(swaps.values()))


def got_past(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """What got others past this very failure, the likest first where the agent follows the retrieval adapter."""
    failed = at.failed
    if failed is None:
        return
    others = [
        item
        for item in index.recoveries(failed.failure.class_)
        if names_beside(item) is None and not is_own(item, at.session)
    ]
    if is_free_text(failed.failure.shape):
        others = [item for item in others if is_of_tool(item) and is_of_place(item, at.known_place)]
    for item in at.ranked(others):
        yield change_tip(item, "got past")


def forbidden(index: LoreIndex, at: Situation) -> Iterator[Tip]:
    """Names that the call's own error says do not exist: a model mostly sends them again."""
    failed = at.failed
    if failed is None:
        return
    kind = _kind(failed)
    if kind.names and _NO_SUCH_NAME.search(kind.kind):
        names = [spelled(name, failed.text) for name in kind.names]
        id = pattern_id("forbidden", failed.failure.class_)
        yield Tip(id, "forbidden", (f"Do not use {_quoted(names)} again.",), key=f"{id}\x1f{' '.join(names)}")


def _rejected(failed: FailedCall, place: PlaceNames) -> list[str]:
    """Names of the call that do not work at the place, as it spells them: those that the error names, and all others
    that a place of known structure has not.
    """
    named = _kind(failed).names
    if not named or not place.members:
        return [name for name in named if place.rejects(name)]
    keys = frozenset(key.lower() for key in values_of(failed.arguments))
    return [name for name in unknown(failed.text, place, named) if name.lower() not in keys][:_MOST_REJECTED]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])


def _kind(failed: FailedCall) -> FailureKind:
    failure = failed.failure
    return failure_kind(failure.error_class, failure.template, failed.error, failed.text)


def _look_up(at: Situation, failed: FailedCall) -> LookUp | None:
    found = at.look_up(_kind(failed).kind)
    if found is None or (found.by == failed.failure.tool and "<" not in found.text and found.text in failed.seen):
        return None
    return found


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
    needs,
    worked_instead,
    renamed,
    got_past,
    known_here,
    looked_up,
    forbidden,
)
# Of these the first, where nothing else is left to say: names that work in place of those that failed, or that failed.
SAID_AGAIN: tuple[Source, ...] = (worked_instead, renamed, known_here, forbidden)
# Of these all, as far as they fit: where no call is asked about, and beside a call.
AT_START: tuple[Source, ...] = (
    way,
    card,
    recoveries,
    before_call.passing,
)
BESIDE: tuple[Source, ...] = (before_call.passing,)
# Of these one is enough until the next failure.
WAYS_OUT = frozenset(("needed", "worked instead", "renamed", "got past", "looked up", "known here", "forbidden"))
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
    "forbidden",
    "way",
    "card",
    "recoveries",
    "passing",
)
