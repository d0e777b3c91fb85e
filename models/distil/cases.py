"""Find a session's instructive failed calls, and which change of them worked or was tried in vain.

A case is a failed call and the next attempt with other arguments. The change helped if the failure's class is gone and
a changed call worked. A session backs a change that helped more often than not, and contradicts it otherwise. An item's
id hashes its whole text, so its evidence belongs to that very text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.fingerprint.normal_form import head_line, template
from fleetlore.watch.safety import is_harmful
from fleetlore.wire.trajectory import Judgment, Step
from fleetlore.words import PART, PLAIN_WORD, WORD, words
from models.distil.call_diff import Difference, distance, is_of_one_value, is_route, masked_difference
from models.memory.candidate import ERROR, SEVERAL_GOALS, SUCCESS_ABOVE, Candidate, item_id, origin

__all__ = ["LESS", "is_shown_to_work", "telling", "tells", "worked_after"]

# Version of the distiller, in the ids of its items.
VERSION = "extractive-5"
_MAX_ERROR = 300
# Failed calls of a session, and later calls for each. All together would take a worker half a minute.
_MAX_COMPARED = 64
_QUOTED = re.compile(r"(['\"`])([^'\"`]+)\1")
# A number, a program's name (snake_case, a path, an address), or something in quotes or brackets.
_NAME = re.compile(
    r"\d|[^\W\d_][\w-]{0,64}[_/\\.@=][\w-]|[a-z][A-Z]"
    r"|'[^']+'|\"[^\"]+\"|`[^`]+`|\[[^\]]{1,200}\]"
)
_ERROR_CLASS = re.compile(r"\b(?:[A-Z]\w*)?(?:Error|Exception|Warning|Interrupt)\b")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
# A sentence about how a process ended only says that it failed.
_ENDED = re.compile(
    r"\b(?:exit(?:ed)?|return(?:ed)?)(?:[ _]?(?:with|non-?zero|exit|status|code|value)){0,6}[ :=_]+-?\d+\b", re.I
)
# Function words, and words that only say that a call failed.
_EMPTY = frozenset(
    PLAIN_WORD.findall(
        "the and but for not was were are has have had been this that these those its your you our can could cannot "
        "did does don didn doesn isn wasn with there please try again sorry wrong incorrect correct right fail failed "
        "fails failure error errors unsuccessful success successful successfully exception traceback warning assertion "
        "runtime unknown unexpected other something nothing happen happens happened occurred went understand command "
        "action call tool execution process operation request response answer solution result output input exit exited "
        "code status returned non zero"
    )
)
_STEM = 5
# An exception's class that a program named. One made of a message's words is in lower case.
_CLASS = re.compile(r"[A-Za-z_.]*[A-Z]\w*")


def is_verdict(tool: str, error: str, error_type: str | None = None) -> bool:
    """Whether a whole error says only *that* a call failed: "Your answer is wrong", "exit code 1".

    An informative error holds a code, a quotation or a program's name, or its class and message say more together.
    """
    message = _ENDED.sub(" ", error)
    # An apostrophe within a word opens no quotation.
    if _NAME.search(_ERROR_CLASS.sub(" ", _APOSTROPHE.sub("", message))):
        return False
    whole = f"{_named_class(error_type)} {message}"
    left = [word for word in words(whole, PLAIN_WORD) if word not in _EMPTY]
    return not left or (len(left) == 1 and left[0][:_STEM] in {word[:_STEM] for word in words(tool, PLAIN_WORD)})


def _named_class(error_type: str | None) -> str:
    """The class of an error that a program named, or ""."""
    return error_type if error_type and _CLASS.fullmatch(error_type) else ""


def tells(call: Step) -> bool:
    return call.failed and not is_verdict(call.tool, call.error_message or "", call.error_type)


def telling(calls: Sequence[Step]) -> list[int]:
    known: dict[str, bool] = {}
    found = []
    for place, call in enumerate(calls):
        if call.pattern is not None and not call.transient:
            if call.pattern not in known:  # a stuck agent repeats one error
                known[call.pattern] = tells(call)
            if known[call.pattern]:
                found.append(place)
    return found[-_MAX_COMPARED:]


def worked_after(calls: Sequence[Step], place: int, tool: str | None = None) -> Iterator[int]:
    later = range(place + 1, len(calls))
    worked = (at for at in later if not calls[at].failed and (tool is None or calls[at].tool == tool))
    return islice(worked, _MAX_COMPARED)


def is_shown_to_work(judgment: Judgment, call: Step) -> bool:
    """Whether a result, a later step or the session's success shows that the call worked. The log may end before the
    answer, so a last step without a result is no evidence."""
    shown = bool(call.result) or call is not judgment.trajectory.steps[-1]
    return not call.failed and (shown or judgment.verdict.probability > SUCCESS_ABOVE)


def known_of(failed: Step) -> frozenset[str]:
    """The words that any agent with the same error knows."""
    return names(template(failed.answer))


def _named_by(failed: Step) -> frozenset[str]:
    quoted = [match[2] for match in _QUOTED.finditer(template(failed.answer))]
    return frozenset(part for name in quoted for part in (name, *name.split(".")) if part)


def error_text(failed: Step) -> str:
    """The class of an error, if a program named it, and the line that says what is wrong."""
    class_ = _named_class(failed.error_type)
    text = masked_text(line(head_line(failed.answer), _MAX_ERROR), known_of(failed))
    return text if class_ in text else f"{class_}: {text}"


@lru_cache(maxsize=4096)  # some 10 MB: goals, errors and calls repeat
def line(text: str, limit: int) -> str:
    if len(text) <= limit and "  " not in text and text.isprintable():
        return text.strip()
    whole = " ".join(text[: 4 * limit].split())
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


_MAX_RECOVERIES = 48
_MIN_NAME = 3

# An error that rejects what it names, and does not only report on it.
_REJECTS = re.compile(
    r"unknown|unrecogni[sz]ed|unexpected|unsupported|invalid|illegal|unmatched|unterminated|ambiguous|duplicate|syntax|"
    r"not (?:a|an|found|defined|allowed|supported|recogni[sz]ed|permitted|valid|known)|no such|does(?:n't| not) exist|"
    r"no attribute|cannot|extra|too many",
    re.I,
)
# Parts of a command that leave out a part of the task, or hide that it failed.
LESS = re.compile(
    r"\|\| *(?:true|:)|2> */dev/null|(?:^|\s)(?:-k|--ignore|--deselect|--exclude|--skip|--no-verify)\b|\bset \+e"
)
_UNDEFINED = re.compile(
    r"\bnot defined|undefined (?:name|variable|identifier|symbol|local)|undeclared|unresolved", re.I
)
_WITH_VALUE = re.compile(r"(?:-{1,2}[\w-]+[ =]|\w+=)(\S+)")
# An error that rejects the route itself, not the thing that it leads to.
_GONE = re.compile(r"\b(?:410|301|308|gone|moved|retired|deprecated|sunset)\b|no such (?:route|endpoint)", re.I)
_FAILED_CHECK = "AssertionError"
_CHECK = re.compile(r"\bassert\b")
# An error about an option of a tool, and a quoted word that may be one.
_OF_OPTION = re.compile(
    r"\b(?:alias|axis|choice|data type|dtype|encoding|engine|format|freq(?:uency)?|interpolation|level|method|mode|"
    r"option|orient|parser|strategy|style|unit)s?\b|must be one of|allowed values|not supported",
    re.I,
)
# An error that lists what an argument may be.
_OFFERS = re.compile(
    r"\b(?:(?:must|should|can) be|expected|not) (?:one|any) of\b|\binput should be ['\"]|\bchoose from\b|\bchoices\b"
    r"|\b(?:accepted|allowed|available|permitted|possible|supported|valid) (?:\w+ )?"
    r"(?:action|choice|format|level|mode|option|state|transition|type|value)s\b|\bavailable: ",
    re.I,
)
_OPTION = re.compile(r"(?<![\w\\])\\?['\"]((?:[a-z]{1,12}(?:[_-][a-z]{1,12})?|[A-Z]{1,4}))\\?['\"]")


class _Way(NamedTuple):
    pattern: str
    error: str
    done: str


@dataclass(slots=True)
class _Tried:
    """`past` and `again`: how often the error was gone at the next attempt, and came again."""

    failed: Step
    by: Step
    change: Difference
    past: int = 0
    again: int = 0
    delayed: bool = True


def recoveries(judgment: Judgment, calls: Sequence[Step], telling: list[int]) -> list[Candidate]:
    tried = _tried(judgment, calls, telling)
    found = sorted(tried.items(), key=lambda each: each[1].past <= each[1].again)
    return [_candidate(judgment, way, each) for way, each in found[:_MAX_RECOVERIES] if each.past or each.again]


def _tried(judgment: Judgment, calls: Sequence[Step], telling: list[int]) -> dict[_Way, _Tried]:
    found: dict[_Way, _Tried] = {}
    first = {call.pattern: place for place, call in reversed(list(enumerate(calls)))}
    last_worked = max((place for place, call in enumerate(calls) if not call.failed), default=-1)
    for place in telling:
        if place > last_worked:
            break
        failed = calls[place]
        of_tool = (at for at in range(place + 1, len(calls)) if calls[at].tool == failed.tool)
        later = [at for at in islice(of_tool, _MAX_COMPARED) if _tries_the_same(calls[at], failed)]
        if not later:
            continue
        attempt, after = later[0], calls[later[0]]
        works = [at for at in later if is_shown_to_work(judgment, calls[at])]
        between = [at for at in range(place + 1, attempt) if not calls[at].failed]
        is_same = not failed.is_cut and distance(failed.arguments, after.arguments) == 0
        if not is_same and (changed := _change(calls, failed, after, works, between)) is not None:
            way, made = changed
            if (each := found.setdefault(way, made)) is not made:
                each.past, each.again = each.past + made.past, each.again + made.again
            made.delayed = works[0] > first[failed.pattern] + 1 if works else True
    return found


def _change(
    calls: Sequence[Step], failed: Step, after: Step, works: list[int], between: list[int]
) -> tuple[_Way, _Tried] | None:
    helped = after.pattern != failed.pattern
    sizes = [(distance(failed.arguments, calls[at].arguments) or 0, at) for at in works]
    by = calls[min(sizes)[1]] if helped and sizes else after
    # A call that works unchanged later needed another call first, or time.
    if failed.is_cut or by.is_cut or (helped and min(sizes, default=(0,))[0] == 0):
        return None
    # Other changes than a value's need a clear session: another tool's call may have helped, and a failed attempt may
    # have had another reason.
    of_value_alone = not helped or any(calls[at].tool != failed.tool for at in between)
    # Comparing two texts is the slowest step.
    if of_value_alone and not is_of_one_value(failed.arguments, by.arguments):
        return None
    known = known_of(failed) | _options(failed, by)
    offered = known if _OFFERS.search(failed.answer) else frozenset[str]()
    change = masked_difference(failed.arguments, by.arguments, known, _named_by(failed), offered)
    if change is None or (helped and (_is_less(failed, by, change) or _is_authors(failed, change))):
        return None
    if of_value_alone and change.value is None:
        return None
    tried = _Tried(failed, by, change, past=int(helped), again=int(not helped))
    return _Way(failed.pattern or "", error_text(failed), change.text), tried


def _options(failed: Step, by: Step) -> frozenset[str]:
    """The tool's own literal that replaced an option which the error rejects by name: `ME` for `M`."""
    if not _OF_OPTION.search(failed.answer):
        return frozenset()
    was, now = (set(_OPTION.findall(step.arguments)) for step in (failed, by))
    rejected = [each for each in was - now if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", failed.answer)]
    brought = [each.lower() for each in now - was]
    return frozenset(brought if len(rejected) == len(brought) == 1 else ())


def _tries_the_same(call: Step, other: Step) -> bool:
    return not (call.failed and call.transient) and distance(other.arguments, call.arguments) is not None


def _is_less(failed: Step, worked: Step, change: Difference) -> bool:
    """Asking for less solves another task, unless the error rejects the part by name."""
    if LESS.search(worked.arguments) and not LESS.search(failed.arguments):
        return True
    removed, added = _words(*change.was), _words(*change.now)
    dropped = set(removed - added)
    if not dropped or added - removed or _are_within(change.now, change.was):  # `np.float` → `float`
        return False
    # The value of an option or argument goes with it.
    values = {word for part in change.was if (found := _WITH_VALUE.fullmatch(part)) for word in _words(found[1])}
    return not _REJECTS.search(failed.answer) or not dropped - values <= set(_words(*known_of(failed)))


def _is_authors(failed: Step, change: Difference) -> bool:
    """Whether only its author needs the change. An imported name (`import math`) helps others."""
    if (failed.error_type or failed.answer).startswith(_FAILED_CHECK) and _CHECK.search(failed.arguments):
        return True
    if change.value is not None:
        return False
    if not _words(*change.was, *change.now):
        return True
    if not _UNDEFINED.search(failed.answer):
        return False
    if change.was:
        return not _are_within(change.was, change.now)
    words = {word for word in _words(*change.now) if any(map(str.isalpha, word)) and word != "number"}
    return words <= _named_by(failed)


def _are_within(names: Sequence[str], longer: Sequence[str]) -> bool:
    return len(names) == len(longer) and all(map(str.endswith, longer, [f".{name}" for name in names]))


def _words(*parts: str) -> Counter[str]:
    found = Counter[str]()
    for part in parts:
        found.update(WORD.findall(part.casefold()))
    return found


def _named(text: str) -> frozenset[str]:
    return frozenset([part.casefold() for part in PART.findall(text) if len(part) >= _MIN_NAME])


def _is_named(value: Any, names: frozenset[str]) -> bool:
    return isinstance(value, str | int | float) and not _named(str(value)).isdisjoint(names)


def _candidate(judgment: Judgment, way: _Way, tried: _Tried) -> Candidate:
    trajectory, tool = judgment.trajectory, tried.failed.tool
    made, id = origin(trajectory), item_id(VERSION, "recovery", tool, *way)
    if tried.past <= tried.again:
        return Candidate(**made, item_id=id, kind="recovery", side="failure", version=VERSION)
    change = tried.change
    error = tried.failed.answer
    is_rejected = (
        change.value is None
        or _is_named(change.value[1], _named(error))
        or (is_route(change.value[1]) and _GONE.search(f"{tried.failed.error_type}: {error}") is not None)
    )
    return Candidate(
        **made,
        item_id=id,
        kind="recovery",
        side="success",
        delayed=tried.delayed,
        # A value that the error does not reject by name may be wrong for one task only.
        least_goals=1 if is_rejected else SEVERAL_GOALS,
        title=line(f"{tool}: {line(way.error, 90)} — {line(way.done, 90)}", 200),
        description=f"{tool} got past this error by {way.done}.",
        content=f"{ERROR}{way.error}\nChange: {way.done}",
        when=f"{tool} fails with: {way.error}",
        tool=tool,
        pattern=tried.failed.pattern,
        was=change.was,
        now=change.now,
        danger=is_harmful(tried.by.tool, tried.by.arguments),
        version=VERSION,
    )
