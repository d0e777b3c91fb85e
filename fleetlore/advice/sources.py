"""List the sources of tips, in the order in which they are asked. Each has its row in `docs/results/helps.md`."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from fleetlore.advice import before_call, counts
from fleetlore.advice.before_call import look_up_quote, members_of, name_quote, replacements
from fleetlore.advice.changes import change_tip, holds, is_of_place, is_of_tool, item_tip, word_of
from fleetlore.advice.gate import PROVEN, Part, Quote, Tip
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.calls.call import CALL_CHARACTERS, MadeCall, values_of
from fleetlore.calls.context import ERROR_CHARACTERS
from fleetlore.calls.places import PlaceNames, is_covered, missing, structure, unknown
from fleetlore.fingerprint.fingerprint import is_free_text, pattern_id
from fleetlore.fingerprint.names import missing_name, spelled
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Hint
from fleetlore.words import names_of

__all__ = ["PERSON", "WAYS_OUT"]

_NAME = r"[`'\"‘“(\[\\]{0,3}(-{0,2}[A-Za-z_][\w.:-]{0,60})"
_WHAT = r"(?: (?:the )?(?:argument|attribute|column|command|field|function|key|option|parameter|property|table))?"
_AS_WHAT = rf"(?: (?:to )?(?:use|reference|call|run))?{_WHAT}"
_USE = r"(?<!not )(?<!n't )(?<!never )\buse"
_PROPOSALS = re.compile(
    rf"(?:did you mean|(?:perhaps|maybe|probably|might have) (?:you )?meant?){_AS_WHAT}[:\s]{{1,4}}{_NAME}"
    rf"|(?:most similar|closest) (?:command|match|name|option|choice)s?(?: is| are)?[:\s]{{1,4}}{_NAME}"
    rf"|{_USE}{_WHAT} {_NAME}[`'\"’”)\]\\]{{0,3}}(?:\(\))?{_WHAT},? instead|\binstead,? use {_NAME}(?=[`'\"’”(.]|$)"
    rf"|\b(?:renamed(?: from \S{{1,60}})? to|replaced (?:by|with)|in favou?r of){_WHAT} {_NAME}",
    re.IGNORECASE,
)
_NO_NAMES = frozenset("a an another any it one something that the this to your".split())  # noqa: SIM905


def proposed(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the name that the session's own error proposes: models often overlook it in a long error."""
    failed = moment.failed
    found = _PROPOSALS.search(failed.error[:ERROR_CHARACTERS])
    if found is None:
        return
    name = next(group for group in found.groups() if group).rstrip(".:-")
    words = re.findall(r"[\w.-]+", failed.call.text)
    if name.startswith("_"):
        return  # Python proposes whatever is spelled alike
    if name.lower() in _NO_NAMES or name in words or name in {word.rpartition(".")[2] for word in words}:
        return
    named = [each for each in failed.kind.names if each != name.lower()]
    rejected = tuple(get_close_matches(name.lower(), named, 1)) or (tuple(named) if len(named) == 1 else ())
    instead = f" instead of `{spelled(rejected[0], failed.call.text)}`" if rejected else ""
    id = pattern_id("proposed", failed.failure.class_)
    parts = (f"Use `{name}`{instead}: the error itself proposes it.",)
    yield Tip(id, "proposed", parts, key=f"{id}\x1f{name}", rejected=rejected, brings=(name,))


PERSON = "person"
_MOST = 2


def persons(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the hints that fit the moment, the newest first."""
    if not index.hints.standing:
        return
    call, failed = moment.asked.call, moment.history.failed
    tools = [each.tool for each in (call, None if failed is None else failed.call) if each is not None]
    held = "" if call is None else "\n".join((call.tool, call.json, call.text))
    error = "" if failed is None else failed.error.casefold()
    found = 0
    for hint, decided in index.hints.of_tools(tools or moment.asked.tools):
        key = f"{PERSON}/{decided.id}"
        is_before = call is not None and _fits(hint, moment, call.tool) and _is_named(hint.before, call, held)
        if key in moment.asker.shown or not (is_before or _fits_session(hint, moment, error)):
            continue
        parts = (Quote(hint.text, 1, "person"), f" (written by {hint.author})")
        # A person wants it to be read before that call is made.
        yield Tip(decided.id, PERSON, parts, key=key, sure=is_before, agents=1)
        found += 1
        if found == _MOST:
            return


def _fits_session(hint: Hint, moment: Situation, error: str) -> bool:
    failed = moment.history.failed
    if failed is not None:
        return not moment.asker.led_out and _fits(hint, moment, failed.call.tool) and _is_met(hint.after, failed, error)
    if moment.asked.call is not None or not hint.start or not _fits(hint, moment, *moment.asked.tools):
        return False
    return hint.replaces in ("", moment.strategy)


def _fits(hint: Hint, moment: Situation, *tools: str) -> bool:
    return (
        not 0 < hint.until <= moment.known.now
        and hint.tool in ("", *tools)
        and hint.place in ("", moment.known.place)
        and hint.task in ("", moment.asker.task)
    )


def _is_named(words: Collection[str], call: MadeCall, held: str) -> bool:
    if not words or not all(word_of(word) in held for word in words):
        return False  # nearly all of thousands of hints: `holds` takes 100 µs
    return all(word == call.tool or holds(call.arguments, (word,)) for word in words)


def _is_met(after: str, failed: FailedCall, error: str) -> bool:
    if not after:
        return False
    failure, text = failed.failure, after.casefold()
    exact = (failed.call.tool, failure.error_class, failure.family, failure.class_, failure.exact)
    if text in error and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", error):
        return True
    return any(text == each.casefold() for each in exact)


_MAX_CARD, _MAX_STRUCTURE = 600, 300
_MOST_RECOVERIES = 2
_MOST_NAMED = 3
# Each is compared with all names of the place.
_MOST_REJECTED = 6


def card(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the structure of the place, nearest to the goal first."""
    place = moment.known_place
    if moment.history.failed is not None:
        return
    found = structure(place, moment.asker.goal, "", _MAX_CARD)
    if found:
        look_up: tuple[Part, ...] = ()
        if place.look_up:
            quote = Quote(f"`{place.look_up}`", PROVEN, "call")
            look_up = ("\nThere may be more: look it up by ", quote, ".")
        yield Tip("place:card", "card", (*_structure_parts(found), *look_up), key="place:card")


def recoveries(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield ways past the failures of the tools at hand, for a model that has not chosen a call (`Session.brief`)."""
    if moment.history.failed is not None:
        return
    found = [item for tool in moment.asked.tools for item in index.recoveries_of_tool(tool)]
    found = [item for item in found if item.is_sure and item.is_of_argument and not item.is_own(moment.asker.key)]
    found.sort(key=lambda item: (-item.standing(), item.id))
    for item in found[:_MOST_RECOVERIES]:
        yield change_tip(item, "recoveries")


def way(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    if not moment.asker.task:
        return
    for item in index.strategies(moment.strategy):
        yield item_tip(item, "way")


def _structure_parts(found: Sequence[tuple[str, Sequence[str]]], lead: str = "Here there are:") -> tuple[Part, ...]:
    return (f"{lead}\n", name_quote("\n".join(f"{owner}({', '.join(members)})" for owner, members in found)))


def renamed(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield working names for all rejected ones, if each has a near one."""
    failed, place = moment.failed, moment.known_place
    rejected = _rejected(failed, place)
    parts, swaps = replacements(moment, rejected, failed.call.text)
    parts = (*parts, *members_of(swaps.values(), place))
    if swaps and (len(swaps) == len(rejected) or not place.members):
        id = pattern_id("renamed", failed.failure.class_)
        key = f"{id}\x1f{' '.join(swaps)}"
        yield Tip(id, "renamed", parts, key=key, rejected=_folded(swaps), brings=tuple(swaps.values()))


def worked_instead(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield names that several agents looked up after this error, and that worked."""
    failed = moment.failed
    held = names_of(failed.call.text[:CALL_CHARACTERS])
    for item in index.recoveries(failed.failure.class_):
        beside = item.names_beside
        # An error without a table's name is the same at every table.
        if beside is not None and held.issuperset(beside):
            yield change_tip(item, "worked instead", failed.call.arguments)


def looked_up(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the call by which other sessions found what such a call lacked."""
    failed = moment.failed
    found = moment.look_up(failed.kind.kind)
    if found is None:
        return
    if found.by != failed.call.tool or "<" in found.text or found.text not in failed.seen:
        id = pattern_id("look-up", found.tool, found.kind)
        names = _quoted([spelled(name, failed.call.text) for name in failed.kind.names])
        instead = f" instead of {names}" if names else ""
        parts = ("Send ", look_up_quote(found), f" next: it shows what there is{instead}.")
        yield Tip(id, "looked up", parts, key=id, agents=found.agents)


def known_here(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the place's structure, if the call uses names that are missing or another owner's."""
    failed, place = moment.failed, moment.known_place
    if not is_covered(failed.call.text, place, failed.kind.names):
        return
    rejected = _rejected(failed, place)
    elsewhere = () if rejected else missing(failed.call.text, place, failed.kind.names)
    instead, swaps = replacements(moment, rejected, failed.call.text)
    call = f"{failed.call.text} {' '.join(swaps.values())}"
    found = structure(place, moment.asker.goal, call, _MAX_STRUCTURE) if rejected or elsewhere else ()
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
    failed = moment.failed
    others = [item for item in index.recoveries(failed.failure.class_) if item.names_beside is None]
    if is_free_text(failed.failure.shape):
        others = [item for item in others if is_of_tool(item) and is_of_place(item, moment.known_place)]
    for item in others:
        yield change_tip(item, "got past", failed.call.arguments)


def forbidden(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield names that do not exist by the error itself: models often send them again."""
    failed = moment.failed
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


class Source(NamedTuple):
    """A source of tips. `name`: `Tip.source`. `repeats`: it is asked again if no new tips are left."""

    name: str
    yields: Callable[[LoreIndex, Situation], Iterable[Tip]]
    repeats: bool = False


# Only the first tip is shown, and no other until the next failure.
BEFORE_CALL = (
    Source("changed", before_call.changed),
    Source("sent again", before_call.sent_again),
    Source("foreseen", before_call.foreseen),
    Source("counted", counts.counted),
)
AFTER_FAILURE = (
    Source("worked instead", worked_instead, repeats=True),
    Source("renamed", renamed, repeats=True),
    Source("got past", got_past),
    Source("proposed", proposed, repeats=True),
    Source("known here", known_here, repeats=True),
    Source("looked up", looked_up),
    Source("forbidden", forbidden, repeats=True),
)
PASSING = (Source("passing", before_call.passing),)
# The start shows all tips that fit.
AT_START = (Source("way", way), Source("card", card), Source("recoveries", recoveries), *PASSING)
WAYS_OUT = frozenset(each.name for each in AFTER_FAILURE)
# Beside these a session needs no warning that it goes in circles.
SAYS_HOW = WAYS_OUT | {"passing"}
# The first three are from `fleetlore.watch`.
SOURCES = ("loop", "budget", "safety", PERSON, *(each.name for each in (*BEFORE_CALL, *AFTER_FAILURE, *AT_START)))
