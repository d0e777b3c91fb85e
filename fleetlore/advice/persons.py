"""Show hints of persons: before a call that names something, after a failure, or at the start of a session."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from fleetlore.advice.changes import holds
from fleetlore.advice.gate import Quote, Tip
from fleetlore.advice.provenance import redact_fenced
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.calls.call import MadeCall
from fleetlore.fingerprint.fingerprint import strategy_id
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Hint
from fleetlore.wire.trajectory import MAX_TEXT

__all__ = ["PERSON", "persons"]

PERSON = "person"
_MOST = 2


def persons(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the hints that fit the moment, the newest first. They displace no other tip."""
    if not index.hints.standing:
        return
    call, failed = moment.asked.call, moment.met.failed
    tools = [each.tool for each in (call, None if failed is None else failed.call) if each is not None]
    found = 0
    for hint, decided in index.hints.of_tools(tools or moment.asked.tools):
        key = f"{PERSON}/{decided.id}"
        is_before = call is not None and _fits(hint, moment, call.tool) and _is_named(hint.before, call)
        if key in moment.met.shown or not (is_before or _fits_session(hint, moment)):
            continue
        parts = (Quote(hint.text, 1, "person"), f" (written by {hint.author})")
        # A person wants it to be read before that call is made.
        yield Tip(decided.id, PERSON, parts, key=key, sure=is_before, agents=1)
        found += 1
        if found == _MOST:
            return


def _fits_session(hint: Hint, moment: Situation) -> bool:
    failed = moment.met.failed
    if failed is not None:
        return not moment.met.led_out and _fits(hint, moment, failed.call.tool) and _is_met(hint.after, failed)
    if moment.asked.call is not None or not hint.start or not _fits(hint, moment, *moment.asked.tools):
        return False
    goal = redact_fenced(moment.met.goal)[:MAX_TEXT]
    return not hint.replaces or hint.replaces == strategy_id(moment.met.task, goal)


def _fits(hint: Hint, moment: Situation, *tools: str) -> bool:
    return (
        not 0 < hint.until <= moment.known.now
        and hint.tool in ("", *tools)
        and hint.place in ("", moment.known.place)
        and hint.task in ("", moment.met.task)
    )


def _is_named(words: Collection[str], call: MadeCall) -> bool:
    return bool(words) and all(word == call.tool or holds(call.arguments, (word,)) for word in words)


def _is_met(after: str, failed: FailedCall) -> bool:
    if not after:
        return False
    failure, text = failed.failure, after.casefold()
    exact = (failed.call.tool, failure.error_class, failure.family, failure.class_, failure.exact)
    whole = rf"(?<!\w){re.escape(text)}(?!\w)"
    return text in {each.casefold() for each in exact} or re.search(whole, failed.error.casefold()) is not None
