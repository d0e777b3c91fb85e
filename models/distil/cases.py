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

from fleetlore.calls.call import EndedCall
from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.fingerprint.normal_form import head_line, template
from fleetlore.watch.safety import is_harmful
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from fleetlore.words import PART, PLAIN_WORD, WORD, words
from models.distil.call_diff import Difference, distance, is_route, masked_difference
from models.memory.candidate import ERROR, SEVERAL_GOALS, SUCCESS_ABOVE, Candidate, item_id, origin

__all__ = ["LESS", "JudgedCall", "judged_calls", "telling", "tells", "worked_after"]

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


@lru_cache(maxsize=1024)  # at most 8 MB: errors repeat
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
    return error_type if error_type and _CLASS.fullmatch(error_type) else ""


def tells(call: Step) -> bool:
    return call.failed and not is_verdict(call.tool, call.error_message or "", call.error_type)


class JudgedCall(EndedCall):
    """A call of a judged session. `is_open`: no result, later step or success of the session shows that it worked."""

    is_open = False

    @property
    def is_shown_to_work(self) -> bool:
        return not self.step.failed and not self.is_open

    @property
    def is_harmful(self) -> bool:
        return is_harmful(self.tool, self.json)

    @property
    def known(self) -> frozenset[str]:
        """The words that any agent with the same error knows."""
        return names(template(self.step.answer))

    @property
    def named(self) -> frozenset[str]:
        quoted = [match[2] for match in _QUOTED.finditer(template(self.step.answer))]
        return frozenset(part for name in quoted for part in (name, *name.split(".")) if part)

    @property
    def error(self) -> str:
        """The class of its error, if a program named it, and the line that says what is wrong."""
        class_ = _named_class(self.step.error_type)
        text = masked_text(line(head_line(self.step.answer), _MAX_ERROR), self.known)
        return text if class_ in text else f"{class_}: {text}"

    def recovery(self, trajectory: Trajectory) -> dict[str, Any]:
        made = dict(kind="recovery", side="success", tool=self.tool, pattern=self.step.pattern)
        return origin(trajectory) | made | {"when": f"{self.tool} fails with: {self.error}"}


def judged_calls(judgment: Judgment) -> list[JudgedCall]:
    calls = [JudgedCall(step) for step in judgment.trajectory.calls]
    # The log may end before the answer, so a last step without a result is no evidence.
    if calls and calls[-1].step is judgment.trajectory.steps[-1] and not calls[-1].step.result:
        calls[-1].is_open = judgment.verdict.probability <= SUCCESS_ABOVE
    return calls


def telling(calls: Sequence[JudgedCall]) -> list[int]:
    known: dict[str, bool] = {}
    found = []
    for place, call in enumerate(calls):
        pattern = call.step.pattern
        if pattern is not None and not call.step.transient:
            if pattern not in known:  # a stuck agent repeats one error
                known[pattern] = tells(call.step)
            if known[pattern]:
                found.append(place)
    return found[-_MAX_COMPARED:]


def worked_after(calls: Sequence[JudgedCall], place: int) -> Iterator[JudgedCall]:
    """Yield later calls of the same tool."""
    tool, later = calls[place].tool, islice(calls, place + 1, None)
    return islice((call for call in later if not call.step.failed and call.tool == tool), _MAX_COMPARED)


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

    failed: JudgedCall
    by: JudgedCall
    change: Difference
    delayed: bool
    past: int = 0
    again: int = 0


def recoveries(trajectory: Trajectory, calls: Sequence[JudgedCall], telling: list[int]) -> list[Candidate]:
    tried = _tried(calls, telling)
    found = sorted(tried.items(), key=lambda each: each[1].past <= each[1].again)
    return [_candidate(trajectory, way, each) for way, each in found[:_MAX_RECOVERIES] if each.past or each.again]


def _tried(calls: Sequence[JudgedCall], telling: list[int]) -> dict[_Way, _Tried]:
    found: dict[_Way, _Tried] = {}
    last_worked = max((place for place, call in enumerate(calls) if not call.step.failed), default=-1)
    for place in telling:
        if place > last_worked:
            break
        failed = calls[place]
        if failed.step.is_cut:
            continue
        of_tool = (at for at in range(place + 1, len(calls)) if calls[at].tool == failed.tool)
        later = (at for at in islice(of_tool, _MAX_COMPARED) if not calls[at].step.transient)
        sizes = {at: size for at in later if (size := distance(failed.json, calls[at].json)) is not None}
        if not sizes:
            continue
        attempt = min(sizes)
        works = [(size, at) for at, size in sizes.items() if calls[at].is_shown_to_work]
        helped = calls[attempt].step.pattern != failed.step.pattern
        size, at = min(works, default=(0, attempt)) if helped else (sizes[attempt], attempt)
        # A call that works unchanged later needed another call first, or time.
        if 0 in (size, sizes[attempt]) or calls[at].step.is_cut:
            continue
        # Other changes than a value's need a clear session: another tool's call may have helped, and a failed attempt
        # may have had another reason.
        others = (call for call in calls[place + 1 : attempt] if call.tool != failed.tool)
        is_clear = helped and all(call.step.failed for call in others)
        if (change := _change(failed, calls[at], helped, is_clear)) is not None:
            way = _Way(failed.step.pattern or "", failed.error, change.text)
            if way not in found:
                first = next(at for at, call in enumerate(calls) if call.step.pattern == failed.step.pattern)
                delayed = not works or works[0][1] > first + 1
                found[way] = _Tried(failed, calls[at], change, delayed)
            found[way].past += helped
            found[way].again += not helped
    return found


def _change(failed: JudgedCall, by: JudgedCall, helped: bool, is_clear: bool) -> Difference | None:
    known = failed.known | _options(failed, by)
    offered = known if _OFFERS.search(failed.step.answer) else frozenset[str]()
    change = masked_difference(failed.json, by.json, known, failed.named, offered, one_value=not is_clear)
    is_useless = change is not None and helped and (_is_less(failed, by, change) or _is_authors(failed, change))
    return None if is_useless else change


def _options(failed: JudgedCall, by: JudgedCall) -> frozenset[str]:
    """The tool's own literal that replaced an option which the error rejects by name: `ME` for `M`."""
    error = failed.step.answer
    if not _OF_OPTION.search(error):
        return frozenset()
    was, now = (set(_OPTION.findall(call.json)) for call in (failed, by))
    rejected = [each for each in was - now if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", error)]
    brought = [each.lower() for each in now - was]
    return frozenset(brought if len(rejected) == len(brought) == 1 else ())


def _is_less(failed: JudgedCall, worked: JudgedCall, change: Difference) -> bool:
    """Asking for less solves another task, unless the error rejects the part by name."""
    if LESS.search(worked.json) and not LESS.search(failed.json):
        return True
    removed, added = _words(*change.was), _words(*change.now)
    dropped = set(removed - added)
    if not dropped or added - removed or _are_within(change.now, change.was):  # `np.float` → `float`
        return False
    # The value of an option or argument goes with it.
    values = {word for part in change.was if (found := _WITH_VALUE.fullmatch(part)) for word in _words(found[1])}
    return not _REJECTS.search(failed.step.answer) or not dropped - values <= set(_words(*failed.known))


def _is_authors(failed: JudgedCall, change: Difference) -> bool:
    """Whether only its author needs the change. An imported name (`import math`) helps others."""
    error = failed.step.answer
    if (failed.step.error_type or error).startswith(_FAILED_CHECK) and _CHECK.search(failed.json):
        return True
    if change.value is not None:
        return False
    if not _words(*change.was, *change.now):
        return True
    if not _UNDEFINED.search(error):
        return False
    if change.was:
        return not _are_within(change.was, change.now)
    words = {word for word in _words(*change.now) if any(map(str.isalpha, word)) and word != "number"}
    return words <= failed.named


def _are_within(names: Sequence[str], longer: Sequence[str]) -> bool:
    return len(names) == len(longer) and all(map(str.endswith, longer, [f".{name}" for name in names]))


def _words(*parts: str) -> Counter[str]:
    return Counter([word for part in parts for word in WORD.findall(part.casefold())])


def _is_named(value: str, error: str) -> bool:
    own, named = ({part.casefold() for part in PART.findall(text) if len(part) >= _MIN_NAME} for text in (value, error))
    return not own.isdisjoint(named)


def _candidate(trajectory: Trajectory, way: _Way, tried: _Tried) -> Candidate:
    tool, failed, change = tried.failed.tool, tried.failed.step, tried.change
    id = item_id(VERSION, "recovery", tool, *way)
    if tried.past <= tried.again:
        return Candidate(**origin(trajectory), item_id=id, kind="recovery", side="failure", version=VERSION)
    is_rejected = (
        change.value is None
        or _is_named(str(change.value[1]), failed.answer)
        or (is_route(change.value[1]) and _GONE.search(f"{failed.error_type}: {failed.answer}") is not None)
    )
    return Candidate(
        **tried.failed.recovery(trajectory),
        item_id=id,
        delayed=tried.delayed,
        # A value that the error does not reject by name may be wrong for one task only.
        least_goals=1 if is_rejected else SEVERAL_GOALS,
        title=line(f"{tool}: {line(way.error, 90)} — {line(way.done, 90)}", 200),
        description=f"{tool} got past this error by {way.done}.",
        content=f"{ERROR}{way.error}\nChange: {way.done}",
        was=change.was,
        now=change.now,
        danger=tried.by.is_harmful,
        version=VERSION,
    )
