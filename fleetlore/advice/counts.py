"""Warn before a call by counts: of failures that are newer than the call model, and of tools that it does not know.

In free text the failure must name something that the call holds.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from fleetlore.advice.before_call import error_parts
from fleetlore.advice.changes import SURE_ONCE, change_tip, is_of_place, is_of_tool, is_unmended
from fleetlore.advice.gate import Part, Tip
from fleetlore.advice.situation import Situation
from fleetlore.fingerprint.fingerprint import is_free_text, tool_id
from fleetlore.fingerprint.literals import FILE
from fleetlore.fingerprint.names import folded, kind_with, mentioned_names, names_in, occurrences, spelled
from fleetlore.recall.index import LoreIndex, worth_showing
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.stats import wilson

# Lower bound of the rate: one failure of one call is enough (0.21).
_WARN_RATE = 0.2
_MAX_NAMES = 3
# A call that holds what such an error lacks is the cure. A masked value may be the rejected one, not the names beside.
_BLAMES_NONE = re.compile(
    r"\bmissing\b.{0,40}\b(?:argument|field|header|key|option|parameter|property)|\brequire[sd]\b|\w <\*>", re.I
)
# The characters before a part of a longer name, and those behind a whole name.
_BEFORE, _BEHIND = re.compile(r"\w-?\Z"), re.compile(rf"(?:\.{FILE})?(?!\w|-\w|\.[\w.-]{{1,99}}$)", re.MULTILINE)


def counted(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the most frequent failure of this kind of call that the model cannot know yet."""
    call, model, history = moment.asked.call, moment.known.model, moment.history
    if call is None or history.context.tried.get(call.trajectory_key) == 0:
        return  # it has worked since
    since = model.until if moment.asked.outlook is not None and model is not None else None
    mentioned_in_any, known = index.derived(_counted, call.tool, call.id)
    newer = [each for each in known if since is None or each.pattern.first_seen > since]
    text = folded(call.text) if newer else ""
    held = names_in(text, mentioned_in_any)
    for pattern, mentioned, blames_none, of_any_call, fails, shown, changes in newer:
        if not of_any_call and (blames_none or held.isdisjoint(mentioned)):
            continue
        named = held & mentioned
        parts_of_names = () if blames_none else named
        names = [name for name in parts_of_names if _is_whole(name, text)]
        is_own_failure = pattern.id in history.failures
        # Counts do not tell the value that failed from the one that the session sends now, or from a longer one.
        if not names and (parts_of_names or not of_any_call or (is_own_failure and moment.unchanged is None)):
            continue
        if pattern.sessions <= 1 and is_own_failure:
            continue
        ways = [item for item in changes if is_unmended(item, call.arguments)]
        if changes and not ways:
            continue  # it is the other half of these calls that fails
        quoted = ", ".join(f"`{spelled(name, call.text)}`" for name in sorted(names)[:_MAX_NAMES])
        parts = (f"This {call.tool} call may fail{quoted and f' with {quoted}'}: ", *shown, ".")
        kind = kind_with(pattern.error_class, pattern.template, named)
        for item in ways if names else ():
            is_known = is_of_tool(item) and is_of_place(item, moment.known_place) and item.names_beside is None
            if is_known:
                tip = change_tip(item, "changed", call.arguments, fails)
                yield tip._replace(kind=kind.kind, rejected=kind.names)
        yield Tip(
            pattern.id, "counted", parts, key=pattern.id, kind=kind.kind, rejected=kind.names, chance=fails,
            sure=bool(names) and fails >= SURE_ONCE, pattern=pattern.parent, tried=False,
        )  # fmt: skip
        return


class _Counted(NamedTuple):
    pattern: Pattern
    mentioned: frozenset[str]
    blames_none: bool
    of_any_call: bool
    fails: float
    shown: tuple[Part, ...]
    changes: list[MemoryItem]


def _counted(index: LoreIndex, tool: str, id: str) -> tuple[frozenset[str], tuple[_Counted, ...]]:
    of_tool, health, transient = index.patterns.get(tool_id(tool)), index.patterns.get(id), index.transient_of_call(id)
    found = []
    before = 0  # calls that failed for another reason do not count towards this failure's rate
    for pattern in index.failures_of_call(id):
        if worth_showing(pattern, of_tool):
            failures, calls = lasting(health, (pattern,), transient)
            calls = max(calls - before, pattern.failures)
            failures = min(max(failures - before, pattern.failures), calls)
            # A warning of all calls of a kind is wrong of those that work.
            is_likely = 2 * failures > calls and wilson(failures, calls)[0] >= _WARN_RATE
            of_any_call = is_likely and not is_free_text(pattern.shape)
            mentioned = frozenset(mentioned_names(pattern.template))
            blames_none = _BLAMES_NONE.search(pattern.template) is not None
            fails, shown = (failures + 0.5) / (calls + 1.0), error_parts(pattern)
            changes = [item for item in index.recoveries(pattern.parent or "") if item.is_sure]
            found.append(_Counted(pattern, mentioned, blames_none, of_any_call, fails, shown, changes))
        before += pattern.failures
    return frozenset().union(*(each.mentioned for each in found)), tuple(found)


def lasting(health: Pattern | None, patterns: Collection[Pattern], transient: Collection[Pattern]) -> tuple[int, int]:
    """Return lasting failures of a kind of call, and calls, without transient errors.

    A new pattern comes at once, the call's health row seconds later, or not at all. Until then only the pattern counts.
    """
    met = sum(pattern.failures for pattern in patterns)
    if health is None or health.calls < met:
        return met, met
    passing = min(sum(pattern.failures for pattern in transient), health.failures)
    failures = max(health.failures - passing, met) if patterns else 0
    return failures, max(health.calls - passing, failures)


def _is_whole(name: str, text: str) -> bool:
    return any(
        not _BEFORE.search(text, max(0, start - 2), start) and _BEHIND.match(text, end)
        for start, end in occurrences(name, text)
    )
