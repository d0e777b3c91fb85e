"""Mine what sessions that ended well did and others did not, at calls that worked.

For each tool that changes something, the sessions that called it are parted by one thing at a time:

first     a look-up, or another change, that came before it
with      an option of one of its arguments
unheard   a number that nothing said before: no person, no result
several   more than one object that it was called for
changed   a call that was confirmed with other arguments than its preview had

A rule is kept where the rates at which both parts ended well differ more (Fisher's exact test) than the greatest
difference of any candidate in all but 5 % of `SHUFFLES` draws in which the rewards were shuffled (Westfall and Young's
max-T): the more candidates, the more is asked. It is told before a call of the tool, where the session stands on the
side that ended worse.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import comb
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.silent.cases import CONFIRM, Case, Made, is_option, looks
from benchmarks.silent.decisive import Line
from fleetlore.stats.intervals import wilson

SHUFFLES, LEVEL = 200, 0.05
# Sessions on each side of a candidate, and agents.
LEAST_SESSIONS, LEAST_AGENTS = 4, 2
_MOST_LINES = 2
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")

Sort = Literal["first", "with", "unheard", "several", "changed"]


class Trait(NamedTuple):
    """One thing that parts the sessions of a tool. `of`: the look-up, `argument=option`, or the argument."""

    tool: str
    sort: Sort
    of: str = ""

    def text(self) -> str:
        match self.sort:
            case "first":
                return f"sessions that first called `{self.of}`"
            case "with":
                return f"sessions that called it with `{self.of}`"
            case "unheard":
                return f"sessions whose `{self.of}` was a number that neither the user nor a result had said"
            case "several":
                return "sessions that called it for more than one object"
            case "changed":
                return "sessions that confirmed it with other arguments than its preview had"


class Rule(NamedTuple):
    """A trait with how many of the sessions that have it, and of the others, ended well."""

    trait: Trait
    well: int
    of: int
    well_else: int
    of_else: int
    chance: float

    @property
    def helps(self) -> bool:
        return self.well * self.of_else > self.well_else * self.of

    def text(self) -> str:
        (low, high), (low_else, high_else) = wilson(self.well, self.of), wilson(self.well_else, self.of_else)
        return (
            f"Before `{self.trait.tool}`: {self.trait.text()} ended well {self.well} of {self.of} "
            f"({low:.2f}–{high:.2f}), the others {self.well_else} of {self.of_else} ({low_else:.2f}–{high_else:.2f})."
        )


class Watch:
    """Follows a session call by call: which traits it has of a tool that it is about to call."""

    def __init__(self, goal: str) -> None:
        self._numbers = set(_NUMBER.findall(goal))
        self._made: list[str] = []
        self._previews: dict[str, list[Mapping[str, object]]] = defaultdict(list)
        self._objects: dict[str, set[str]] = defaultdict(set)

    def traits(self, call: Made) -> set[Trait]:
        """The traits of a call that is about to be made."""
        tool, found = call.tool, set[Trait]()
        self._numbers.update(_NUMBER.findall(call.before))
        found |= {Trait(tool, "first", made) for made in self._made if made.partition("(")[0] != tool}
        for name, value in call.arguments.items():
            if is_option(value) and name != CONFIRM:
                found.add(Trait(tool, "with", f"{name}={str(value).lower()}"))
            elif isinstance(value, int | float) and value and f"{value:g}" not in self._numbers:
                found.add(Trait(tool, "unheard", name))
        if len(self._objects[tool] | _objects(call)) > 1:
            found.add(Trait(tool, "several"))
        previews = self._previews[tool]
        if call.arguments.get(CONFIRM) is True and previews and _bare(call) not in previews:
            found.add(Trait(tool, "changed"))
        return found

    def made(self, call: Made) -> None:
        """Take in the call with its result."""
        self._numbers.update(_NUMBER.findall(call.said))
        if call.worked:
            self._made += [call.tool, *_with_option(call)] if call.looks else [call.tool]
        self._objects[call.tool] |= _objects(call)
        if call.arguments.get(CONFIRM) is False:
            self._previews[call.tool].append(_bare(call))


class Contrasts:
    """The arm that tells contrasts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @classmethod
    def learned(cls, past: Sequence[Case], random: Random) -> Contrasts:
        """The rules that hold against shuffled rewards; of those of one look-up or one argument the surest."""
        parts = _parts(past)
        well = [case.well for case in past]
        bar = sorted(_least(parts, well, random))[int(LEVEL * SHUFFLES)]
        found = [rule for trait, part in parts.items() if (rule := _rule(trait, part, well)).chance < bar]
        # What the call itself has is nearer to what is decided by it than what came before it.
        found.sort(key=lambda rule: (rule.trait.sort == "first", rule.chance, rule.trait))
        one_each: dict[tuple[str, str, str], Rule] = {}
        for rule in filter(_is_of_use, found):
            one_each.setdefault((rule.trait.tool, rule.trait.sort, re.split("[(=]", rule.trait.of)[0]), rule)
        return cls(list(one_each.values()))

    def lines(self, case: Case) -> Iterator[Line]:
        """What is told in a session: before a call at most one rule that was not told before."""
        watch, told = Watch(case.logged.goal), set[Rule]()
        for place, call in enumerate(case.calls):
            has = watch.traits(call) if not call.looks else set()
            for rule in self.rules:
                if rule.trait.tool == call.tool and rule not in told and (rule.trait in has) is not rule.helps:
                    told.add(rule)
                    make = rule.trait.of if rule.helps and rule.trait.sort == "first" else ""
                    yield Line(place, rule.text(), 1 - rule.chance, make)
                    break
            watch.made(call)
            if len(told) == _MOST_LINES:
                return


# Sessions with a trait, and without it.
Part = tuple[tuple[int, ...], tuple[int, ...]]


def _parts(past: Sequence[Case]) -> dict[Trait, Part]:
    """The candidates: traits with enough sessions and agents on both sides; of those that part alike one."""
    callers: dict[str, set[int]] = defaultdict(set)
    having: dict[Trait, set[int]] = defaultdict(set)
    for number, case in enumerate(past):
        watch, first = Watch(case.logged.goal), set[str]()
        for call in case.calls:
            if not call.looks:
                callers[call.tool].add(number)
                for trait in watch.traits(call):
                    # What came before it is told by its first call.
                    if trait.sort != "first" or call.tool not in first:
                        having[trait].add(number)
                first.add(call.tool)
            watch.made(call)
    parts: dict[Part, Trait] = {}
    for trait in sorted(having):
        has = having[trait]
        part = tuple(sorted(has)), tuple(sorted(callers[trait.tool] - has))
        if all(_is_enough(side, past) for side in part) and (part[1], part[0]) not in parts:
            parts.setdefault(part, trait)
    return {trait: part for part, trait in parts.items()}


def _is_of_use(rule: Rule) -> bool:
    """Whether one can act on it: nobody should look less, or leave an object out because others failed with two."""
    return rule.helps or not (rule.trait.sort == "several" or (rule.trait.sort == "first" and looks(rule.trait.of)))


def _is_enough(side: Sequence[int], past: Sequence[Case]) -> bool:
    return len(side) >= LEAST_SESSIONS and len({past[number].logged.agent for number in side}) >= LEAST_AGENTS


def _rule(trait: Trait, part: Part, well: Sequence[bool]) -> Rule:
    (has, others) = ([well[number] for number in side] for side in part)
    return Rule(
        trait, sum(has), len(has), sum(others), len(others), _fisher(sum(has), len(has), sum(others), len(others))
    )


def _least(parts: Mapping[Trait, Part], well: Sequence[bool], random: Random) -> list[float]:
    """The least p-value of all candidates in each draw of shuffled rewards."""
    dealt = np.array([random.sample(well, len(well)) for _ in range(SHUFFLES)], dtype=np.int64)
    least = [1.0] * SHUFFLES
    for has, others in parts.values():
        hits, hits_else = dealt[:, has].sum(axis=1).tolist(), dealt[:, others].sum(axis=1).tolist()
        for draw, (one, other) in enumerate(zip(hits, hits_else, strict=True)):
            least[draw] = min(least[draw], _fisher(one, len(has), other, len(others)))
    return least


@cache
def _fisher(one: int, of: int, other: int, of_other: int) -> float:
    """Two-sided p-value of Fisher's exact test that two rates, `one` of `of` and `other` of `of_other`, are equal."""
    hits, every = one + other, of + of_other
    ways = [comb(of, k) * comb(of_other, hits - k) for k in range(max(0, hits - of_other), min(of, hits) + 1)]
    seen = comb(of, one) * comb(of_other, other)
    return sum(each for each in ways if each <= seen) / comb(every, hits)


def _with_option(call: Made) -> list[str]:
    return [
        f"{call.tool}({name}={value})"
        for name, value in call.arguments.items()
        if is_option(value) and not isinstance(value, bool)
    ]


def _bare(call: Made) -> dict[str, object]:
    return {name: value for name, value in call.arguments.items() if name != CONFIRM}


def _objects(call: Made) -> set[str]:
    """Ids that it is called for: of the first argument that has one."""
    for name, value in call.arguments.items():
        if name.endswith("_id") and isinstance(value, str) and value:
            return {value}
    return set()
