"""Write the one line that is said before a call: that it will likely fail, how, and for which of its names.

Where the call model knows the tool, the model decides: it has seen how such calls end, those that worked as well. A
failure that is newer than the model, or of a tool that it does not know, is judged by counts: how often this kind of
call fails. In free text the kind of a call says little, so there the failure must name something that the call holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from fleetlore.calls.card import like
from fleetlore.calls.context import CALL_CHARACTERS, CallContext, warning_id
from fleetlore.calls.document import Need
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected
from fleetlore.calls.places import PlaceNames
from fleetlore.fingerprint.fingerprint import is_free_text, pattern_id, tool_id
from fleetlore.fingerprint.names import failure_kind, folded, mentioned_names, names_in
from fleetlore.recall.hints import count, worth_showing
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.remedies import cause_of_id
from fleetlore.stats.intervals import wilson
from fleetlore.wire.lore import Pattern

MAX_LINE = 120
# Lower bound of the rate at which a kind of call fails: one failure of one call is enough (0.21).
WARN_RATE = 0.2
NAMED = "<name>"
MAX_LIKE = 2
_ELSE = "…"
_CHECK, _ASSERT = "assertionerror", "assert"
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_WORD = re.compile(r"(?<![<\w])[a-z]{3,}(?![\w>])")


@dataclass(frozen=True, slots=True)
class CallWarning:
    """A call that will likely fail.

    Attributes:
        id: of a pattern, or of the warnings of the call model about a tool.
        text: one line of at most 120 characters.
        kind: the error without the names in it.
        names: of the call, for which it will fail.
        fails: P(the call fails), 0..1.
        pattern: class-level id of the pattern behind it; None where it comes from the call model.
    """

    id: str
    text: str
    kind: str
    names: tuple[str, ...]
    fails: float
    pattern: str | None = None


def by_model(
    model: CallModel, fails: float, call: Call, context: CallContext, place: str | None, own: Collection[Expected]
) -> CallWarning | None:
    """The warning of a call that the model holds likely to fail; None where it cannot say of what."""
    expected = model.expected(call, context, place, own)
    if expected is None or _is_own_check(call, expected.kind):
        return None
    known = model.places.get(place) if place is not None else None
    return CallWarning(
        warning_id(call.tool, context.state),
        _line(call, expected, fails, known),
        expected.kind,
        expected.names,
        fails,
    )


def by_need(model: CallModel, call: Call, context: CallContext) -> CallWarning | None:
    """The warning of a call that takes a thing with which such calls failed; None where nothing is known of it."""
    need = model.need(call.tool, context.objects.marks(call.arguments))
    if need is None:
        return None
    return CallWarning(need_id(need), need_text(need), need.kind, (), (need.failed + 0.5) / (need.held + 1.0))


def need_id(of: Need) -> str:
    """By which a need is withheld at random, and told once."""
    return pattern_id("need", of.tool, of.argument, of.field, of.value)


def need_text(of: Need) -> str:
    """What such calls failed for, how often, and what works instead."""
    failed = f": such calls failed in {of.failed} of {of.held} sessions"
    if not of.field:
        return _fit(f"`{of.argument}` was taken by {of.value} before", failed)
    works = f"; they work with {' or '.join(f'`{value}`' for value in of.works)}" if of.works else ""
    return _fit(f"`{of.argument}` has {of.field} `{of.value}`", failed + works)


def by_counts(
    index: LoreIndex,
    call: Call,
    id: str,
    own_failures: Collection[str],
    since: float | None,
    remedied: Collection[str] = (),
) -> CallWarning | None:
    """The warning of the most frequent failure of this kind of call.

    Args:
        id: of the kind of call.
        own_failures: ids of exact patterns that the session met: what it alone has met is nothing new to it.
        since: only failures first met after this time (seconds since the epoch) count; None: all.
        remedied: causes that the fleet has remedies for: what helps is said instead, and nothing once it is done.
    """
    text = folded(call.text)
    for pattern, mentioned, of_any_call, fails in index.derived(_counted, call.tool, id):
        if not of_any_call and not names_in(text, mentioned):
            continue
        if since is not None and pattern.first_seen <= since:
            continue
        if remedied and cause_of_id(index, pattern.parent) in remedied:
            continue
        if pattern.sessions <= 1 and pattern.id in own_failures:
            continue
        kind = failure_kind(pattern.error_class, pattern.template, pattern.template, call.text)
        expected = Expected(kind.kind or pattern.error_class, kind.names)
        met = f"met by {count(pattern.agents, 'agent')}" if pattern.sessions > 1 else "seen once"
        line = _fit(f"{call.tool} may fail: {_filled(expected, call)}", f" ({met})")
        return CallWarning(pattern.id, line, kind.kind, kind.names, fails, pattern.parent)
    return None


class _Counted(NamedTuple):
    """A failure of a kind of call.

    Attributes:
        mentioned: words of the error, one of which a call has to hold to be warned of it.
        of_any_call: whether such calls fail so often that one without these words is warned of too.
        fails: P(the call fails), 0..1.
    """

    pattern: Pattern
    mentioned: tuple[str, ...]
    of_any_call: bool
    fails: float


def _counted(index: LoreIndex, tool: str, id: str) -> tuple[_Counted, ...]:
    """Failures of a kind of call that are worth a warning, the most frequent first."""
    of_tool, health, transient = index.health(tool_id(tool)), index.health(id), index.transient_of_call(id)
    found = []
    before = 0  # calls that failed for what is passed over where this is said; they say nothing of how often this fails
    for pattern in index.failures_of_call(id):
        if worth_showing(pattern, of_tool):
            failures, calls = lasting(health, (pattern,), transient)
            calls = max(calls - before, pattern.failures)
            failures = min(max(failures - before, pattern.failures), calls)
            of_any_call = not is_free_text(pattern.shape) and wilson(failures, calls)[0] >= WARN_RATE
            mentioned = mentioned_names(pattern.error_class, pattern.template)
            found.append(_Counted(pattern, mentioned, of_any_call, (failures + 0.5) / (calls + 1.0)))
        before += pattern.failures
    return tuple(found)


def lasting(health: Pattern | None, patterns: Collection[Pattern], transient: Collection[Pattern]) -> tuple[int, int]:
    """Failures of a kind of call for a lasting reason, and calls; both without transient errors.

    A new pattern comes at once; the health row of a call that was known before comes seconds later, or not at all.
    Until then the pattern speaks for itself.
    """
    met = sum(pattern.failures for pattern in patterns)
    if health is None or health.calls < met:
        return met, met
    passing = min(sum(pattern.failures for pattern in transient), health.failures)
    failures = max(health.failures - passing, met) if patterns else 0
    return failures, max(health.calls - passing, failures)


def _is_own_check(call: Call, kind: str) -> bool:
    """Whether the failure would be what the call itself says where its own check fails: its author knows that."""
    if kind.startswith(_CHECK):
        return _ASSERT in call.tokens
    said = " ".join(_QUOTED.findall(call.text[:CALL_CHARACTERS])).lower()
    words = _WORD.findall(kind)
    return len(words) > 1 and all(word in said for word in words)


def _line(call: Call, expected: Expected, fails: float, known: PlaceNames | None) -> str:
    """The failure, its record, and names like the wrong one that work at the place; what does not fit is left out."""
    head = f"{call.tool} will likely fail ({fails:.0%}): {_filled(expected, call)}"
    if not expected.held:
        return _fit(head)
    of = f" ({expected.failed} of {count(expected.held, 'session')} with it)"
    found = like(known, expected.names)[:MAX_LIKE] if known is not None else ()
    known_here = f"; known here: {', '.join(found)}" if found else ""
    return _fit(head, of + known_here) if len(head + of + known_here) <= MAX_LINE else _fit(head, of)


def _fit(head: str, tail: str = "") -> str:
    if len(head) + len(tail) > MAX_LINE:
        head = f"{head[: MAX_LINE - len(tail) - 1]}{_ELSE}"
    return head + tail


def _filled(expected: Expected, call: Call) -> str:
    """The error with the names of the call put in, as the call spells them, and an ellipsis for those not known."""
    text = expected.kind
    spelled = {token.lower(): token for token in reversed(call.tokens)} if expected.names else {}
    names = [spelled.get(name, name) for name in expected.names]
    # Of several names it is not known which one each is.
    for name in names if len(names) >= text.count(NAMED) else ():
        text = text.replace(NAMED, f"`{name}`", 1)
    missing = [name for name in names if f"`{name}`" not in text]
    text = re.sub(rf"{NAMED}|<\*>", _ELSE, text)
    return f"{', '.join(f'`{name}`' for name in missing)}: {text}" if missing else text
