"""Say after a failure what got others past one like it: at most one way out, or nothing.

Names that several agents looked up after this very error, and that worked, come first. Of a tool with enough failures
that sessions got past, the names that this session lacks are said where they are likely enough all that it lacks
(`fleetlore.calls.lacked`), and else nothing. Of any other tool what was changed in the calls of others is ranked
(`fleetlore.calls.ranker`). Where a name of the call is at fault, names are needed: at a known place (a database, a
repository) those that work there are said, elsewhere the call by which other sessions looked them up, the same for all
of them. Where an argument is written otherwise than in all calls that work, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from fleetlore.calls.card import card, like
from fleetlore.calls.context import CALL_CHARACTERS, words_of
from fleetlore.calls.document import ArgumentForms, LookUp, Resent
from fleetlore.calls.failed_call import FailedCall, words
from fleetlore.calls.lacked import LackedNames
from fleetlore.calls.model import CallModel
from fleetlore.calls.nearest import Example, examples, new_part
from fleetlore.calls.places import PlaceNames
from fleetlore.calls.ranker import LEAST, chances, figures
from fleetlore.fingerprint.fingerprint import is_free_text, pattern_id
from fleetlore.fingerprint.names import FailureKind, failure_kind
from fleetlore.fingerprint.value_form import DIGIT, value_form, values_of
from fleetlore.recall.call_warning import need_id, need_text
from fleetlore.recall.default_hints import default_hint
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.provenance import handle
from fleetlore.wire.lore import INSTEAD_OF, MemoryItem

MAX_TEXT = 300
CANDIDATES = 20
# A place of which less is known has no card.
PLACE_SESSIONS = 5
# Forms of an argument.
MOST_SHOWN = 2
# Names for a call that is made again.
MOST_AGAIN = 5
# What cannot be ranked rests on its evidence.
LEAST_AGENTS = 2
# Agents and goals, from which a change is no longer one task's. At fewer it was mostly of no use to others.
PROVEN = 3
PLACE_ID = "place:names"
_NAME_TOLD = f"{PLACE_ID}\x1f"

# What may stand for one task or one person only: quoted texts, numbers, and words with a digit in them.
_LITERAL = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?<!\w)\w*\d[\w.]*")
_MASK = "<value>"
_QUOTED_NAME = re.compile(r"`([^`]+)`")
_MAX_HELD = 8192


class WayOut(NamedTuple):
    """What to say.

    Attributes:
        text: one or two lines, at most 300 characters; every literal in it is one that the session holds.
        id: of the item, of the look-up, of what is said after this class of failure, or `PLACE_ID`: for the holdout
            and the credit.
        names: what it brings that the session has not seen, lower-case.
        chance: that it brings all that the session lacks, 0..1; 0 where it was not ranked.
        item: that it is of; None of names and of a look-up.
        beside: id of what is said with it and not tried by itself; empty for nothing.
    """

    text: str
    id: str
    names: tuple[str, ...]
    chance: float = 0.0
    item: MemoryItem | None = None
    beside: str = ""

    @property
    def told(self) -> Iterator[str]:
        """What a session that was told this need not be told again: ids, and of a place each name."""
        ids = self.id, self.beside
        yield from (id for id in ids if id and id != PLACE_ID)
        if PLACE_ID in ids:
            yield from (f"{_NAME_TOLD}{name}" for name in self.names)


def way_out(
    index: LoreIndex,
    failed: FailedCall,
    model: CallModel | None = None,
    place: str | None = None,
    told: Collection[str] = (),
) -> WayOut | None:
    """At most one way out of a failure; None where nothing is likely enough to help. No network.

    Args:
        model: holds names that sessions lack, names of places, and look-ups; None before the first version.
        place: that the session is at; None where that is not known.
        told: what the session was told before (`WayOut.told`); it is passed over.
    """
    failure = failed.failure
    resent = model.resent.get(failure.class_) if model is not None else None
    if resent is not None and resent.decided(guessed=failure.transient):
        id = pattern_id("resent", failure.class_)
        return None if id in told else WayOut(_resent_text(resent), id, (), round(resent.passed / resent.sent, 9))
    if resent is None and failure.transient:
        return None
    need = model.need(failure.tool, failed.marks) if model is not None else None
    if need is not None:
        id = need_id(need)
        return None if id in told else WayOut(need_text(need), id, (), round(need.failed / need.held, 9))
    kind = failure_kind(failure.error_class, failure.template, failed.error, failed.text)
    look_up = _look_up(model, failed, kind) if model is not None else None
    untold = _looked_up(look_up) if look_up is not None and look_up_id(look_up) not in told else None
    # Names of a known place are known without a look-up; that comes after them, where they did not help.
    here = _of_place(model, failed, kind, place, told) if model is not None and place is not None else None
    if (instead := _instead(index, failed, told)) is not None:
        beside = here or untold
        return instead if beside is None else _both(instead, beside)
    if here is None and untold is None:
        form = _form(model, failed, told) if model is not None else None
        here = form or _proven(index, failed, kind, told)
    if here is not None:
        return here
    lacked = model.lacked.get(failure.tool) if model is not None else None
    found = _names(lacked, failed, told) if lacked is not None else _of_item(index, failed, told)
    # The look-up's own names say less clearly what it says whole.
    if found is not None and look_up is not None and not set(words(look_up.text)).isdisjoint(found.names):
        found = None
    return found if untold is None or (found is not None and found.chance > untold.chance) else untold


def again(
    index: LoreIndex,
    failed: FailedCall,
    model: CallModel | None = None,
    place: str | None = None,
    task: str = "",
    told: Collection[str] = (),
) -> WayOut | None:
    """What a session that makes a failing call again could do instead: each thing once, and the surest of them once
    more after four failures of the call, after eight, sixteen and so on.

    Args:
        task: of the session; the others are those of `way_out`.
    """
    resent = model.resent.get(failed.failure.class_) if model is not None else None
    if failed.times < 2 or (resent.decided(guessed=True) if resent is not None else failed.failure.transient):
        return None
    id = again_id(failed)
    keyed = {f"{id}:{pattern_id(each)}": each for each in _left_undone(index, failed, model, place, task, told)}
    new = next((key for key in keyed if key not in told), None)
    if new is None and keyed and failed.times.bit_count() == 1:
        new = next(iter(keyed))
    if new is None:
        return None
    text = f"Failed {failed.times} times here and will again. {keyed[new]}"
    return WayOut(text[:MAX_TEXT], id, (), beside=new)


def again_id(failed: FailedCall) -> str:
    """By which what is said of such a failure that is met again and again is withheld at random."""
    return pattern_id("again", failed.failure.class_)


def _left_undone(
    index: LoreIndex, failed: FailedCall, model: CallModel | None, place: str | None, task: str, told: Collection[str]
) -> Iterator[str]:
    """What could be done instead, the surest first."""
    kind = failure_kind(failed.failure.error_class, failed.failure.template, failed.error, failed.text)
    if (way := way_told(index, task, told)) is not None:
        yield way
    look_up = _look_up(model, failed, kind) if model is not None else None
    if look_up is not None:
        yield f"Look it up: {_call_text(look_up)}"
    known = model.places.get(place) if model is not None and place is not None else None
    if known is not None and known.sessions >= PLACE_SESSIONS and _is_unknown(kind, known):
        names = card(known, failed.goal, failed.text, words_of(failed.text, CALL_CHARACTERS))[:MOST_AGAIN]
        if names:
            yield f"Known here: {', '.join(names)}"
    if look_up is None and (hint := default_hint(failed.failure)) is not None:
        yield hint


def way_told(index: LoreIndex, task: str, told: Collection[str]) -> str | None:
    """Where the session was told what solved its task; None where it was not."""
    way = next((item.id for item in index.strategies(task) if item.id in told), None) if task else None
    return None if way is None else f"[#{handle(way)}] tells what worked."


def _of_place(
    model: CallModel, failed: FailedCall, kind: FailureKind, place: str, told: Collection[str]
) -> WayOut | None:
    """Names that work at a known place, where a name of the call does not: a card of them, then those alone that are
    like the name that failed.
    """
    known = model.places.get(place)
    if known is None or known.sessions < PLACE_SESSIONS or not _is_unknown(kind, known):
        return None
    names_told = {key.removeprefix(_NAME_TOLD) for key in told if key.startswith(_NAME_TOLD)}
    if not names_told:
        names = card(known, failed.goal, failed.text, failed.seen)
        return WayOut(_names_text("Known here", names), PLACE_ID, tuple(names)) if names else None
    names = like(known, kind.names, names_told.union(failed.seen))
    head = f"Known here, like {', '.join(f'`{name}`' for name in kind.names)}"
    return WayOut(_names_text(head, names), PLACE_ID, tuple(names)) if names else None


def _form(model: CallModel, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """How an argument is written in calls that work, where this call wrote it otherwise: the best backed one."""
    found: list[tuple[int, WayOut]] = []
    for name, value in values_of(failed.arguments).items():
        known, form = model.forms.get((failed.failure.tool, name)), value_form(value)
        if known is not None and form is not None and form not in known.forms:
            id = pattern_id("form", known.tool, known.argument)
            found.append((known.sessions, WayOut(form_text(known, form), id, ())))
    untold = [each for each in found if each[1].id not in told]
    return max(untold, key=lambda each: each[0])[1] if untold else None


def _instead(index: LoreIndex, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """The names that worked where this very error had rejected others."""
    for item in index.recoveries(failed.failure.class_):
        _, found, said = item.title.partition(INSTEAD_OF)
        if not found or item.agents < LEAST_AGENTS or item.id in told or is_own(item, failed.session):
            continue
        beside, _, names = (_QUOTED_NAME.findall(part) for part in said.rpartition(": "))
        held = words_of(failed.text, CALL_CHARACTERS)
        # An error that does not say where it was met is the same at every table.
        if held.issuperset(beside) and not all(name in failed.seen for name in names):
            text = f"Instead{said}: worked after this very error ({item.agents} agents)"
            return WayOut(text[:MAX_TEXT], item.id, tuple(names), item=item)
    return None


def _both(instead: WayOut, new: WayOut) -> WayOut:
    """Names that worked after this very error, and those that work here or how to find them."""
    text = f"{instead.text}. {new.text}"
    return instead._replace(text=text[:MAX_TEXT], names=(*instead.names, *new.names), beside=new.id)


def _proven(index: LoreIndex, failed: FailedCall, kind: FailureKind, told: Collection[str]) -> WayOut | None:
    """A change that got several agents at several goals past this very failure for a name of the call."""
    for item in index.recoveries(failed.failure.class_) if kind.names else ():
        if min(item.agents, item.goals) < PROVEN or item.id in told or is_own(item, failed.session):
            continue
        for example in examples(item):
            new = new_part(example.change)
            made = " ".join(failed.text.split())
            if not all(part in made for part in _QUOTED_NAME.findall(new)):
                return WayOut(_text(masked(example.change, failed), item), item.id, tuple(words(new)), item=item)
    return None


def _names(lacked: LackedNames, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """The names that the session likely lacks."""
    id = pattern_id("lacked", failed.failure.class_)
    if lacked.least > 1.0 or id in told:
        return None
    names, chance = lacked.most_likely(failed)
    return WayOut(_lacked_text(names, lacked), id, names, chance) if chance >= lacked.least else None


def _of_item(index: LoreIndex, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """What was changed in a call of others, where it is likely enough; else what rests on its evidence."""
    best = ranked(index, failed, told)
    if best is None or best[1] < LEAST:
        return _best_backed(index, failed, told)
    (item, _, change, *_), likely = best
    change = masked(change, failed)
    return WayOut(_text(change, item), item.id, tuple(words(new_part(change))), likely, item)


def _look_up(model: CallModel, failed: FailedCall, kind: FailureKind) -> LookUp | None:
    """The call by which other sessions found what such a call lacked; not one that was made here."""
    found = model.look_ups.get((failed.failure.tool, kind.kind))
    if found is None:
        return None
    made = found.by == found.tool and "<" not in found.text and all(name in failed.seen for name in words(found.text))
    return None if made else found


def _looked_up(of: LookUp) -> WayOut:
    return WayOut(look_up_text(of), look_up_id(of), words(of.text), round(of.used / of.met, 9))


def look_up_id(of: LookUp) -> str:
    """By which a look-up is withheld at random, and told once."""
    return pattern_id("look-up", of.tool, of.kind)


def _best_backed(index: LoreIndex, failed: FailedCall, told: Collection[str]) -> WayOut | None:
    """What got others past this very failure, where words cannot rank it: it is no change of the call (a look-up, a
    call that prepares, a wait), and several agents did it; or the call is no free text.
    """
    is_text = is_free_text(failed.failure.shape)
    for item in (*index.recoveries(failed.failure.class_), *index.remedies(failed.cause)):
        if is_text and (item.near or item.agents < LEAST_AGENTS):
            continue
        if item.id not in told and not is_own(item, failed.session):
            # What is one session's own in a call that is counted over names was left open when it was counted.
            title = item.title if item.cause is not None else masked(item.title, failed)
            return WayOut(_text(title, item), item.id, (), item=item)
    return None


def ranked(index: LoreIndex, failed: FailedCall, told: Collection[str] = ()) -> tuple[Example, float] | None:
    """The likeliest way out and its chance, however small; None where nothing is known of the tool."""
    asked = failed.words
    near = index.recoveries_near(failed.failure.tool, asked, CANDIDATES)
    scored = [
        (likely, example)
        for example, likely in zip(near.examples, chances(figures(near, asked, failed)), strict=True)
        if example.item.id not in told and not is_own(example.item, failed.session)
    ]
    best = min(scored, key=lambda each: (-each[0], each[1].item.id), default=None)
    return (best[1], best[0]) if best is not None else None


def is_own(item: MemoryItem, session: str) -> bool:
    """Whether only this session backs the item, or a part of it: a long one is worked on in parts, `session#1`."""
    return item.support <= 1 and any(each == session or each.startswith(f"{session}#") for each in item.sessions)


def masked(change: str, failed: FailedCall) -> str:
    """The change with `<value>` for each literal that this session does not hold."""
    held = "\n".join(text[:_MAX_HELD] for text in (failed.goal, failed.text, failed.error)).lower()

    def shown(match: re.Match[str]) -> str:
        text = match.group()
        if text[0] not in "'\"":
            return text if len(text) == 1 or _holds(held, text.lower()) else _MASK
        return text if _holds(held, text[1:-1].lower()) else f"{text[0]}{_MASK}{text[0]}"

    return _LITERAL.sub(shown, change)


def _holds(held: str, literal: str) -> bool:
    """Whether a literal stands there whole: 4721 is not held where 14721 or 4721.5 is."""
    return literal in held and bool(re.search(rf"(?<!\w)(?<!\d\.){re.escape(literal)}(?!\w|\.\d)", held))


def _is_unknown(kind: FailureKind, place: PlaceNames) -> bool:
    """Whether the error is about a name of the call that mostly fails at the place, or was never met there."""
    return any(ended.failed >= ended.worked for name in kind.names if (ended := place.ended(name)))


def look_up_text(of: LookUp) -> str:
    """The call by which others looked up what works, and how many of them did."""
    return f"After such a failure {of.used} of {of.met} sessions looked up what works: {_call_text(of)}"


def _call_text(of: LookUp) -> str:
    return f"`{of.text}`" if of.by == of.tool else f"`{of.by}{'' if of.text.startswith('(') else ' '}{of.text}`"


def form_text(of: ArgumentForms, here: str = "") -> str:
    """How an argument is written in calls that work, and how the call that failed has it."""
    worked = " or ".join(map(_shown, of.shown[:MOST_SHOWN]))
    often = f"{of.agents} agents, {of.sessions} sessions; a: letters, N: a digit"
    failed = f", here {_shown(here)}" if here else ""
    return f"In calls that worked `{of.argument}` was {worked} ({often}){failed}"


def _shown(form: str) -> str:
    # Nines would be taken for a number of somebody's.
    return f"`{form.replace(DIGIT, 'N')}`"


def _resent_text(of: Resent) -> str:
    return f"Sent again unchanged, such a call worked in {of.passed} of {of.sent} sessions"


def _lacked_text(names: tuple[str, ...], of: LackedNames) -> str:
    often = f"all that was missing in {of.right} of {of.said} cases"
    return f"Names that others brought in after failures like this: {', '.join(names)} ({often})"


def _names_text(head: str, names: list[str]) -> str:
    said = f"{head}: {', '.join(names)}"
    while len(said) > MAX_TEXT:
        names.pop()
        said = f"{head}: {', '.join(names)}"
    return said


def _text(change: str, item: MemoryItem) -> str:
    who = "seen once" if item.agents <= 1 else f"{item.agents} agents"
    said = f"Past a failure like this ({who}): {change}"
    return said if len(said) <= MAX_TEXT else f"{said[: MAX_TEXT - 1]}…"
