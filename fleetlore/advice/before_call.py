"""Say before a call why it will fail, and what works instead: at most one line.

The call model judges tools that it knows, because it has also seen working calls.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

from fleetlore.advice.changes import change_tip, is_of_place, is_of_tool, is_rename, is_unmended, parts_of, substituted
from fleetlore.advice.gate import PROVEN, Part, Quote, Tip
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.calls.call import CALL_CHARACTERS, MadeCall
from fleetlore.calls.context import warning_id
from fleetlore.calls.document import LookUp
from fleetlore.calls.model import Expected
from fleetlore.calls.places import PlaceNames, nearest
from fleetlore.fingerprint.fingerprint import pattern_id, tool_id
from fleetlore.fingerprint.names import UNMASKED_WORD, failure_kind, spelled
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.stats import wilson
from fleetlore.words import names_of

# P(the call fails), and failed share of sessions with its names, from which a call may be held.
_SURE = 0.8
_LIKELIER = 0.5
_MOST_MEMBERS = 12
_MAX_NAMES = 3
# Wilson's 95 % bounds of the share of working resends: below the first they never work, above the second they do. From
# `_ENOUGH_RESENDS` sessions on wider kinds of failure are not asked.
_NEVER_WORKS, _MOSTLY_WORKS = 0.2, 0.5
_ENOUGH_RESENDS = 8
_LONGEST_WAIT_SECONDS = 600
_NAME_MASK = "<name>"
_HOST = re.compile(r"\burl\(([^)]+)\)")
_CHECK, _ASSERT = "assertionerror", "assert"
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_ELSE = "…"
_FIGURES = re.compile(r"\d+")
# The reader fills it: `pragma table_info(<name>)` is shown as `pragma table_info(NAME)`.
_SLOT = re.compile(r"<([a-z ]{1,24})>")
# A transient error counts its agents, halved every minute. Below `_TRANSIENT_PASSED` it has passed.
_TRANSIENT_HALF_LIFE_SECONDS = 60.0
_TRANSIENT_PASSED = 0.25
_TRANSIENT_SECONDS = 300.0
# Fewer earlier outages say nothing about how long this one will last.
_LEAST_OUTAGES = 2
# An outage ends after its last known failure.
_UNSEEN_SECONDS = 30


def changed(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Another value or name in place of a failing one."""
    call, outlook, model = moment.asked.call, moment.asked.outlook, moment.known.model
    if call is None or not index.recoveries_of_tool(call.tool):
        return
    for part, is_argument in dict.fromkeys(parts_of(call.arguments)):
        for item in index.changes(call.tool, part):
            # The model decides for a text, because it has also seen working calls. Lore of failures alone changes no
            # call that the model rates likelier to work, if a quorum made such calls.
            is_open = outlook is None or model is None or item.first_seen > model.until
            if not is_open and is_argument and outlook is not None and model is not None:
                old = model.old_value(call.tool, item.was)
                is_open = outlook.fails >= _LIKELIER or (old is not None and old.works < moment.known.quorum)
            fits = item.is_sure and is_unmended(item, call.arguments) and is_open and (is_argument or is_rename(item))
            if fits and item.names_beside is None:
                fails = (item.support + 0.5) / (item.support + item.against + 1.0)
                yield change_tip(item, "changed", call.arguments, fails)


def sent_again(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    failed = moment.unchanged
    if failed is None:
        return
    known = (index.patterns.get(id) for id in (failed.failure.class_, failed.failure.family))
    for sessions, worked, agents, seconds in (each.again for each in known if each is not None and each.again):
        if agents < moment.known.quorum:
            continue
        low, high = wilson(worked, sessions)
        id = pattern_id("sent again", failed.failure.class_)
        shown = "This exact call failed a moment ago", f"{id}\x1f{failed.call.key('')}"
        if high < _NEVER_WORKS and failed.failure.transient:
            return  # the source `passing` says how long to wait
        if high < _NEVER_WORKS:
            yield _change_it(id, *shown, moment, failed, sessions - worked, sessions)
        elif low > _MOSTLY_WORKS and seconds <= _LONGEST_WAIT_SECONDS:
            worked_then = f"after such a wait it worked in {worked} of {sessions} sessions"
            wait = f"Wait {max(seconds, 1)} s and send it again, or use another way"
            yield Tip(id, "sent again", (f"{shown[0]}. {wait}: {worked_then}.",), shown[1], agents=agents)
        if high < _NEVER_WORKS or sessions >= _ENOUGH_RESENDS:
            return  # the wider kind of failure would hide what is known of this one


def _change_it(id: str, lead: str, key: str, moment: Situation, failed: FailedCall, again: int, sessions: int) -> Tip:
    named = ", ".join(f"`{spelled(name, failed.call.text)}`" for name in failed.kind.names[:_MAX_NAMES])
    parts: tuple[Part, ...] = (
        f"{lead}; sent again unchanged it failed in {again} of {sessions} sessions. Change {named or 'it'}",
    )
    if (look_up := moment.look_up(failed.kind.kind)) is not None:
        parts = (*parts, ", or look up what there is: ", look_up_quote(look_up))
    fails = (again + 0.5) / (sessions + 1.0)
    return Tip(
        id, "sent again", (*parts, "."), key, failed.kind.kind, failed.kind.names, chance=fails, sure=fails >= _SURE
    )


def foreseen(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    outlook, model, call = moment.asked.outlook, moment.known.model, moment.asked.call
    if outlook is None or not outlook.warned or model is None or call is None:
        return
    expected = model.expected(call, moment.history.context, moment.known.place, moment.history.expected)
    kinds = [each for each in (expected, expected.other) if each is not None and each.kind]
    if any(_is_own_check(call, each.kind) for each in kinds):
        return
    id = warning_id(call.tool, moment.history.context.state)
    of_names = _names_tip(id, moment, call, expected, outlook.fails) if expected.names else None
    if of_names is None or not of_names.brings:
        yield from _ways(index, moment, call, expected, outlook.fails)
    if of_names is not None:
        yield of_names
    else:
        why = (": ", _kind_quote(*kinds)) if kinds else ()
        key, is_sure = f"{id}\x1f{expected.kind}", len(kinds) == 1 and outlook.fails >= _SURE
        parts = (f"This {call.tool} call will likely fail", *why, ".")
        yield Tip(id, "foreseen", parts, key, expected.kind, chance=outlook.fails, sure=is_sure)


def _ways(index: LoreIndex, moment: Situation, call: MadeCall, expected: Expected, fails: float) -> Iterator[Tip]:
    if not index.recoveries_of_tool(call.tool):
        return
    words = [part for part, is_argument in parts_of(call.arguments) if not is_argument]
    held = frozenset(call.names)
    names = (name for word in words for name in word.split("."))
    for part in dict.fromkeys((*map(" ".join, pairwise(words)), *words, *names)):
        for item in index.changes(call.tool, part):
            is_known = item.is_sure and is_of_tool(item) and is_of_place(item, moment.known_place)
            fits = is_known and is_unmended(item, call.arguments) and held.issuperset(item.names_beside or ())
            if fits and _fails_so(index, call, expected, item):
                tip = change_tip(item, "changed", call.arguments, fails)
                yield tip._replace(kind=expected.kind, rejected=expected.names)


def _fails_so(index: LoreIndex, call: MadeCall, expected: Expected, item: MemoryItem) -> bool:
    """A value that the error does not name may work with another command."""
    if expected.names and names_of(" ".join(item.was)).issubset(expected.names):
        return True
    known = index.patterns.get(item.pattern or "")
    of_command = any(" " in part for part in item.was)
    if known is None or not (of_command or (is_rename(item) and not expected.names)):
        return False
    kind = failure_kind(known.error_class, known.template, known.template, call.text).kind
    met = any(each.parent == item.pattern for each in index.failures_of_call(call.id))
    return met and expected.kind in ("", kind)


def passing(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield transient faults: of this kind of call or of its host, or at the start of a whole tool."""
    call, time, own = moment.asked.call, moment.known.now, moment.history.failed
    if own is not None and not (own.failure.transient and (call is None or call.id == own.call.id)):
        own = None
    if call is None and own is not None:
        call = own.call
    if call is not None and not index.transient_of_call(call.id):
        return
    host = _HOST.search(call.shape) if call is not None else None
    groups: Iterable[tuple[str, Pattern | None, Iterable[Pattern]]]
    if call is not None:
        what = f"call `{host[1]}` again" if host is not None else f"send this {call.tool} call again"
        met = sorted(index.transient_of_call(call.id), key=lambda each: (-each.last_seen, each.id))
        groups = ((what, index.patterns.get(call.id), met),)
    else:
        groups = (
            (f"send {tool} calls again", index.patterns.get(tool_id(tool)), index.transient_of_tool(tool))
            for tool in moment.asked.tools
        )
    for what, health, faults in groups:
        now = [each for each in faults if _transient_weight(each, time)]
        if not now:
            continue
        id = (now[0].parent or now[0].id) if call is not None else now[0].id
        about, error = f"{id}\x1f{host[1]}" if host else id, error_parts(now[0])
        last = max(each.last_seen for each in (*now, *(index.failures_of_call(call.id) if call is not None else ())))
        passed, has_passed = _passed(health, last, own, moment), f"{about}\x1fpassed"
        met_here = any(each.id in moment.history.failures for each in now)
        parts: tuple[Part, ...]
        if passed and has_passed not in moment.asker.shown:
            ago = f"{max(time - passed, 1):.0f} s ago"
            parts = (f"{what[0].upper()}{what[1:]}: {ago} a later call got past ", *error, ".")
            yield Tip(id, "passing", parts, key=has_passed, pattern=id, tried=False)
        elif (met_here or _is_shared(health, now, moment)) and (passed or _are_most(health, now, last, moment)):
            wait, figures = _wait(now[0], index.patterns.get(id), moment)
            # One attempt costs less than a wait in vain.
            is_met = call is None or own is not None
            lead = f"{wait} and {what}" if is_met else f"If it fails, {wait.lower()} and {what}"
            has = "has had" if figures.startswith(" for") else "has"
            parts = (f"{lead}: it {has} a passing fault (", *error, f"){figures}.")
            # Other seconds are no news.
            yield Tip(id, "passing", parts, key=f"{about}\x1f{_FIGURES.sub('', lead)}", pattern=id, tried=False)


def _passed(health: Pattern | None, last: float, own: FailedCall | None, moment: Situation) -> float:
    if health is None or own is None:
        return 0.0
    worked = _last_call(health, moment)
    return worked if worked > max(own.moment, last) else 0.0


def _last_call(health: Pattern, moment: Situation) -> float:
    """Return when such calls were last made, by two agents where several make them: one alone ends no outage."""
    alone = moment.known.quorum <= 1 or health.agents <= 1
    return health.last_seen if alone or health.level != "call" else health.last_but_one


def _wait(fault: Pattern, wider: Pattern | None, moment: Situation) -> tuple[str, str]:
    """By repeats of such calls, or by how long earlier outages lasted."""
    quorum = max(1, moment.known.quorum)
    sessions, worked, agents, seconds = (wider.again if wider is not None else ()) or (0, 0, 0, 0)
    if agents >= quorum and wilson(worked, sessions)[0] > _MOSTLY_WORKS and seconds <= _LONGEST_WAIT_SECONDS:
        return f"Wait {max(seconds, 1)} s", f". After such a wait it worked in {worked} of {sessions} sessions"
    outages = [(began, lasted) for began, lasted, agents in fault.outages if agents >= quorum]
    if not outages or not _lasts(*outages[0], moment.known.now):
        return "Wait", ""
    age = max(0, int(moment.known.now) - outages[0][0])
    earlier = [lasted + _UNSEEN_SECONDS for _, lasted in outages[1:]]
    longer = sorted(ends for ends in earlier if ends > age)
    if not longer or len(earlier) < _LEAST_OUTAGES:
        return "Wait", f" for {age} s"
    ends = longer[len(longer) // 3]
    if ends - age > _LONGEST_WAIT_SECONDS:
        return "Wait", f" for {age} s"
    ended = sum(each <= ends for each in earlier)
    return f"Wait {ends - age} s", f" for {age} s. {ended} of {len(earlier)} earlier faults ended within {ends} s"


def _are_most(health: Pattern | None, passing: Collection[Pattern], last: float, moment: Situation) -> bool:
    """Whether most calls fail so. A kind of call has no hours, so all its calls count while it is new."""
    met = sum(each.failures for each in passing)
    if health is None or health.calls < met:
        return True
    if not health.hours and _last_call(health, moment) > last:
        return False
    if not health.hours and moment.known.now - health.first_seen > _TRANSIENT_SECONDS:
        return True
    # A row of an earlier release is not balanced.
    calls, failures = health.balanced or (*health.hours, (0, health.calls, health.failures))[0][1:]
    return 2 * min(failures, met) >= calls


def _is_shared(health: Pattern | None, passing: Collection[Pattern], moment: Situation) -> bool:
    """One agent stops no tool that others use."""
    agents = max(_agents_lately(each, moment.known.now) for each in passing)
    return agents >= moment.known.quorum or health is None or health.agents <= agents


def _agents_lately(fault: Pattern, now: float) -> int:
    if not fault.outages:  # a row of an earlier release
        return fault.agents
    return max([agents for began, lasted, agents in fault.outages if _lasts(began, lasted, now)], default=1)


def _lasts(began: int, lasted: int, now: float) -> bool:
    return now - began - lasted <= _TRANSIENT_SECONDS


def _transient_weight(pattern: Pattern, now: float) -> float:
    age = max(0.0, now - pattern.last_seen)
    if not pattern.transient or age > _TRANSIENT_SECONDS:
        return 0.0
    weight = max(pattern.agents_lately, 1) * 0.5 ** (age / _TRANSIENT_HALF_LIFE_SECONDS)
    return weight if weight >= _TRANSIENT_PASSED else 0.0


def error_parts(pattern: Pattern) -> tuple[Part, ...]:
    text = pattern.template if any(map(str.isalpha, pattern.template)) else ""
    agents = pattern.agents - pattern.other_words
    class_ = Quote(pattern.error_class, agents, "class")
    if not text:
        return (class_,)
    quote = Quote(text, agents, "error")
    is_of_text = pattern.error_class.islower() and all(part in text.lower() for part in pattern.error_class.split("_"))
    return (quote,) if is_of_text else (class_, ": ", quote)


def _names_tip(id: str, moment: Situation, call: MadeCall, expected: Expected, fails: float) -> Tip:
    rejected = [spelled(name, call.text) for name in expected.names[:_MAX_NAMES]]
    parts, swaps = replacements(moment, rejected, call.text)
    if swaps:
        parts = (*parts, *members_of(swaps.values(), moment.known_place))
    else:
        last = ", ".join(f"`{name}`" for name in rejected)
        look_up = moment.look_up(expected.kind)
        first: tuple[Part, ...] = ()
        if look_up is not None:
            first = ("Look up first what there is: ", look_up_quote(look_up), ". ")
        parts = (*first, f"{call.tool} fails with {last}: ", _kind_quote(expected), ".")
    arguments = substituted(call.arguments, swaps) if swaps else None
    sure = fails >= _SURE or expected.failed >= _SURE * max(1, expected.held)
    return Tip(
        id, "foreseen", parts, kind=expected.kind, rejected=expected.names, brings=tuple(swaps.values()), chance=fails,
        sure=sure, call=arguments,
    )  # fmt: skip


def look_up_quote(of: LookUp) -> Quote:
    by = "" if of.by == of.tool else of.by if of.text.startswith("(") else f"{of.by} "
    text = _SLOT.sub(lambda slot: slot[1].upper().replace(" ", "_"), of.text)
    return Quote(f"`{by}{text}`", of.agents, "call")


def replacements(moment: Situation, rejected: Collection[str], call: str) -> tuple[tuple[Part, ...], dict[str, str]]:
    """Return the near name at the place of each rejected one that has one, with its text."""
    parts: list[Part] = []
    swaps: dict[str, str] = {}
    for name in rejected:
        near = nearest(name, moment.known_place, f"{call} {' '.join(swaps.values())}")
        if near is not None and near not in swaps.values():
            swaps[name] = near
            parts += [f"{' ' if parts else ''}Use ", name_quote(f"`{near}`"), f" instead of `{name}`."]
    return tuple(parts), swaps


def members_of(names: Iterable[str], place: PlaceNames) -> tuple[Part, ...]:
    found: list[Part] = []
    for name in names:
        if members := place.members.get(name, ())[:_MOST_MEMBERS]:
            found += [" ", name_quote(f"`{name}`"), " has: ", name_quote(", ".join(members)), "."]
    return tuple(found)


def name_quote(text: str) -> Quote:
    """Quote names of a place: the call model holds only those with a quorum."""
    return Quote(text, PROVEN, "name")


def _kind_quote(*kinds: Expected) -> Quote:
    text = re.sub(rf"{_NAME_MASK}|<\*>", _ELSE, " or ".join(each.kind for each in kinds))
    return Quote(text, min(each.agents for each in kinds), "error")


def _is_own_check(call: MadeCall, kind: str) -> bool:
    """Whether the call's own check would fail: its author knows that text."""
    if kind.startswith(_CHECK):
        return _ASSERT in call.tokens
    said = " ".join(_QUOTED.findall(call.text[:CALL_CHARACTERS])).lower()
    words = [word for word in UNMASKED_WORD.findall(kind) if len(word) > 2]
    return len(words) > 1 and all(word in said for word in words)
