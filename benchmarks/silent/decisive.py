"""Tell which call decided a failure, and whether a line said before it names what failed.

The deciding call is the first that changed the record of a failed assertion and touched its field: the field is one of
its arguments or stands in its result. If no call did so, what failed was left undone: the session's end decides, and
the tools are those that change such records in other sessions.

A line names
    object    the record,
    argument  a tool that decides, with an argument that the failed field is of: one of that name or a part of it
              (`reason` of `return_reason`), or an option by which the field differs between two calls of the log that
              differ in that option alone (`change_reason` of `change_fee`),
    tool      a tool that decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from benchmarks.silent.cases import CONFIRM, Case, Failed, Made, is_option
from fleetlore.fingerprint.fingerprint import parsed

LEVELS: Final = ("object", "argument", "tool")
_LEAST_ID = 4
_WORD = re.compile(r"[\w-]+")


class Line(NamedTuple):
    """One thing said.

    Attributes:
        place: of the call that it is said before; 0 with the first of them at the start.
        weight: how sure its arm is of it; the greater the surer.
        make: of it the call that it says to make; empty where it speaks against one.
    """

    place: int
    text: str
    weight: float
    make: str = ""


class Deciding(NamedTuple):
    """What decided a failure.

    Attributes:
        place: of the deciding call; the number of calls where it was left undone.
        tools: those that decide, each with the arguments that the failed fields are of.
        records: ids of the records that are wrong.
    """

    place: int
    tools: Mapping[str, frozenset[str]]
    records: frozenset[str]

    def level(self, lines: Iterable[Line]) -> str:
        """The first of `LEVELS` at which a line said in time names it; empty if none does."""
        words = [frozenset(_WORD.findall(line.text)) for line in lines if line.place <= self.place]
        if any(self.records & said for said in words):
            return "object"
        named = [(arguments, said) for said in words for tool, arguments in self.tools.items() if tool in said]
        return "argument" if any(arguments & said for arguments, said in named) else "tool" if named else ""


class Deciders:
    """What is known of tools from all sessions: the judge of a line may know more than who says it."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._arguments: dict[str, set[str]] = defaultdict(set)
        self._decides: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._changes: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._vocabulary: dict[str, set[str]] = defaultdict(set)
        for case in cases:
            for call in case.calls:
                self._vocabulary[case.domain] |= _said(call)
                if not call.looks:
                    self._arguments[call.tool] |= call.arguments.keys()
                if call.writes:
                    for kind in _kinds(call):
                        self._changes[case.domain, kind].add(call.tool)
            self._compare([call for call in case.calls if not call.looks and call.worked])

    def of(self, case: Case) -> Deciding:
        """What decided a session that ended badly."""
        wrong = case.wrong
        found = {each: place for each in wrong if (place := _first(case.calls, each)) is not None}
        writes = [place for place, call in enumerate(case.calls) if call.writes]
        if not wrong and writes:  # a requirement that no assertion of the state says
            found = {Failed("", ""): writes[-1]}
        place = min(found.values(), default=len(case.calls))
        tools: dict[str, frozenset[str]] = defaultdict(frozenset)
        for each, at in found.items():
            tool = case.calls[at].tool
            tools[tool] |= self._of_field(tool, each.field)
        if not found:
            for each in wrong:
                for tool in self._changes.get((case.domain, _kind(each.record)), ()):
                    tools[tool] |= self._of_field(tool, each.field)
        return Deciding(place, dict(tools), frozenset(each.record for each in wrong if each.record))

    def is_beside(self, line: Line, case: Case) -> bool:
        """Whether a line said in a session that ended well was none of its business: it spoke against a call that was
        right, or told one that the session did not make afterwards."""
        told = frozenset(_WORD.findall(line.make))
        wanted = told & self._vocabulary[case.domain]
        return not any(call.tool in told and wanted <= _said(call) for call in case.calls[line.place :])

    def _compare(self, calls: Sequence[Made]) -> None:
        """Note by which option a field of the result differs, of calls of a tool that differ in that option alone."""
        by_tool: dict[str, list[Made]] = defaultdict(list)
        for call in calls:
            by_tool[call.tool].append(call)
        for tool, own in by_tool.items():
            for one, other in pairwise(own):
                differ = [name for name in one.arguments if one.arguments[name] != other.arguments.get(name)]
                differ = [name for name in differ if name != CONFIRM]
                if len(differ) == 1 and is_option(one.arguments[differ[0]]):
                    self._decides[tool, differ[0]] |= _changed(parsed(one.said), parsed(other.said))

    def _of_field(self, tool: str, field: str) -> frozenset[str]:
        names = {name for name in self._arguments[tool] if field and _is_part(name, field)}
        return frozenset(names | {name for name in self._arguments[tool] if field in self._decides[tool, name]})


def _said(call: Made) -> frozenset[str]:
    """The words of a call that are not of this session alone: tool, arguments, options."""
    options = (str(value) for value in call.arguments.values() if is_option(value))
    return frozenset((call.tool, *call.arguments, *options))


def _first(calls: Sequence[Made], failed: Failed) -> int | None:
    for place, call in enumerate(calls):
        if not call.writes or (failed.record and not _touches(call, failed.record)):
            continue
        if any(_is_part(name, failed.field) for name in call.arguments) or f'"{failed.field}"' in call.said:
            return place
    return None


def _touches(call: Made, record: str) -> bool:
    return record in call.said or any(record == id or (id in record and len(id) >= _LEAST_ID) for id in _ids(call))


def _ids(call: Made) -> Iterator[str]:
    for value in call.arguments.values():
        yield from (str(each) for each in (value if isinstance(value, list) else (value,)) if isinstance(each, str))


def _kinds(call: Made) -> set[str]:
    return {_kind(word) for word in (*_ids(call), *_WORD.findall(call.said)) if any(map(str.isdigit, word))} - {""}


def _kind(id: str) -> str:
    """What an id is of, by the letters that it begins with."""
    return "".join(re.findall(r"^[A-Za-z]{2,}", id)).upper()


def _is_part(argument: str, field: str) -> bool:
    """Whether an argument's words are among a field's, or the field's among the argument's."""
    one, other = set(argument.split("_")), set(field.split("_"))
    return bool(field) and bool(argument) and (one <= other or other <= one)


def _changed(one: Any, other: Any) -> set[str]:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set()
    return {name for name in one if name in other and one[name] != other[name]}
