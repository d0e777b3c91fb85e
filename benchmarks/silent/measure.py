"""Hold out tasks and domains, let each arm speak in them, and count.

tasks    a fifth of the tasks of each domain at a time; the fleet learns from all the others
domains  a domain at a time; the fleet learns from the others

Recall is the share of the sessions that ended badly in which a line names, before the deciding call, what failed.
Beside is the number of lines in a session that ended well that were none of its business. Who talks much names much, so
a rival is held to an allowance twice, to the bar of `BESIDE` lines and to what the contrasts themselves say beside the
point: of its lines those of the greatest weight are left, as many as that allows, chosen afterwards and so in the
rival's favour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from benchmarks.evaluate.statistics import interval, paired_difference
from benchmarks.silent.cases import Case
from benchmarks.silent.contrasts import Contrasts
from benchmarks.silent.decisive import LEVELS, Deciders, Line
from benchmarks.silent.rivals import Arm, Every, Nearest, Usual, today
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import wilson

FOLDS: Final = 5
TASKS: Final = "tasks"
PARTS: Final = (TASKS, "domains")
#: Bars: the least recall, the most lines beside the point a session that ended well, the most of shuffled rewards.
RECALL, BESIDE, SHUFFLED = 0.35, 0.5, 0.05
OURS: Final = "contrasts"

Speak = Callable[[Sequence[Case], Sequence[Case], Random], Mapping[str, Arm]]


@dataclass(frozen=True, slots=True)
class Spoken:
    """What an arm said in a session that it had not learned from. `part`: which sessions were held out."""

    part: str
    case: Case
    lines: tuple[Line, ...]


def parts_of(cases: Sequence[Case], seed: int) -> Iterator[tuple[str, list[Case], list[Case]]]:
    """What is held out, the sessions to learn from, and those held out."""
    domains = sorted({case.domain for case in cases})
    fold: dict[tuple[str, str], int] = {}
    for domain in domains:
        tasks = {case.logged.task for case in cases if case.domain == domain}
        order = sorted(tasks, key=lambda task: (stable_hash(f"{seed}/{domain}/{task}"), task))
        fold.update({(domain, task): place % FOLDS for place, task in enumerate(order)})
    for number in range(FOLDS):
        out = [fold[case.domain, case.logged.task] == number for case in cases]
        yield TASKS, _where(cases, out, False), _where(cases, out, True)
    for domain in domains if len(domains) > 1 else ():
        out = [case.domain == domain for case in cases]
        yield "domains", _where(cases, out, False), _where(cases, out, True)


def speak(cases: Sequence[Case], seed: int, arms: Speak, parts: Collection[str] = PARTS) -> dict[str, list[Spoken]]:
    """What each arm says in each held-out session."""
    said: dict[str, list[Spoken]] = {}
    held_out = (each for each in parts_of(cases, seed) if each[0] in parts)
    for number, (part, past, held) in enumerate(held_out):
        for name, arm in arms(past, held, Random(f"{seed}/{number}")).items():
            said.setdefault(name, []).extend(Spoken(part, case, tuple(arm.lines(case))) for case in held)
    return said


def arms(past: Sequence[Case], held: Sequence[Case], random: Random) -> dict[str, Arm]:
    """The contrasts and their rivals."""
    return {
        OURS: Contrasts.learned(past, random),
        "nearest": Nearest(past),
        "usual": Usual(past),
        "today": today(past, held, random.randrange(2**16)),
        "any": Every(),
    }


def shuffled(past: Sequence[Case], held: Sequence[Case], random: Random) -> dict[str, Arm]:
    """What is said of rewards dealt out anew within each domain: what is named as well then owes nothing to rewards."""
    dealt: list[Case] = []
    for domain in sorted({case.domain for case in past}):
        own = [case for case in past if case.domain == domain]
        outcomes = random.sample([case.logged.outcome for case in own], len(own))
        dealt += [
            replace(case, logged=replace(case.logged, outcome=outcome))
            for case, outcome in zip(own, outcomes, strict=True)
        ]
    return {OURS: Contrasts.learned(dealt, random), "usual": Usual(dealt)}


class Counted:
    """What is counted of what one arm said in held-out sessions of one slice."""

    def __init__(self, spoken: Sequence[Spoken], deciders: Deciders) -> None:
        self.levels = [deciders.of(each.case).level(each.lines) for each in spoken if not each.case.well]
        self.beside = [
            sum(deciders.is_beside(line, each.case) for line in each.lines) for each in spoken if each.case.well
        ]

    @property
    def hits(self) -> dict[int, list[float]]:
        """By session that ended badly whether what failed was named."""
        return {number: [float(bool(level))] for number, level in enumerate(self.levels)}

    @property
    def beside_each(self) -> float:
        return sum(self.beside) / len(self.beside) if self.beside else 0.0

    def recall(self) -> dict[str, Any]:
        named = sum(map(bool, self.levels))
        low, high = wilson(named, len(self.levels))
        by = Counter(self.levels)
        return {
            "share": _round(named / len(self.levels)) if self.levels else None,
            "low": _round(low),
            "high": _round(high),
            "named": named,
            "failed": len(self.levels),
            "by": {level: by[level] for level in LEVELS},
        }

    def beside_lines(self) -> dict[str, Any]:
        if not self.beside:
            return {"lines": None, "low": None, "high": None, "sessions": 0}
        found = interval({number: [float(each)] for number, each in enumerate(self.beside)})
        return {
            "lines": _round(found.mean),
            "low": _round(found.low),
            "high": _round(found.high),
            "sessions": len(self.beside),
        }


def slices(spoken: Sequence[Spoken]) -> dict[str, list[Spoken]]:
    """By what was held out, and of held-out tasks by domain."""
    found: dict[str, list[Spoken]] = {}
    for each in spoken:
        found.setdefault(each.part, []).append(each)
        found.setdefault(f"{each.part}/{each.case.domain}", []).append(each)
    return found


def within(spoken: Sequence[Spoken], deciders: Deciders, most: float) -> Counted:
    """The arm with as many of its surest lines as leave at most so many beside the point a session."""
    bars = sorted({line.weight for each in spoken for line in each.lines}, reverse=True)
    best = Counted([replace(each, lines=()) for each in spoken], deciders)
    low, high = 0, len(bars)
    while low < high:  # the more lines, the more of them are beside the point
        middle = (low + high) // 2
        kept = [
            replace(each, lines=tuple(line for line in each.lines if line.weight >= bars[middle])) for each in spoken
        ]
        counted = Counted(kept, deciders)
        if counted.beside_each <= most:
            best, low = counted, middle + 1
        else:
            high = middle
    return best


def figures(cases: Sequence[Case], said: Mapping[str, Sequence[Spoken]]) -> dict[str, Any]:
    """Recall and what is beside the point by slice, of the contrasts and of each rival."""
    deciders = Deciders(cases)
    ours = {name: Counted(own, deciders) for name, own in slices(said[OURS]).items()}
    return {
        "recall": {name: counted.recall() for name, counted in ours.items()},
        "beside": {name: counted.beside_lines() for name, counted in ours.items()},
        "rivals": {
            arm: {name: _rival(own, deciders, ours[name]) for name, own in slices(spoken).items()}
            for arm, spoken in said.items()
            if arm != OURS
        },
    }


def placebo(cases: Sequence[Case], seed: int, draws: int) -> dict[str, Any]:
    """Recall of held-out tasks by arms that learned from shuffled rewards, over so many draws."""
    deciders = Deciders(cases)
    counted: dict[str, list[Counted]] = {}
    for draw in range(draws):
        for arm, spoken in speak(cases, seed + 1 + draw, shuffled, [TASKS]).items():
            counted.setdefault(arm, []).append(Counted(spoken, deciders))
    found: dict[str, Any] = {"draws": draws}
    for arm, each in counted.items():
        shares = [sum(map(bool, one.levels)) / len(one.levels) for one in each]
        beside = sum(one.beside_each for one in each) / draws
        found[arm] = {"share": _round(sum(shares) / draws), "most": _round(max(shares)), "beside": _round(beside)}
    return found


def _rival(spoken: Sequence[Spoken], deciders: Deciders, ours: Counted) -> dict[str, Any]:
    whole = Counted(spoken, deciders)
    return {
        "recall": whole.recall(),
        "beside": whole.beside_lines(),
        "within_bar": _held_to(within(spoken, deciders, BESIDE), ours),
        "as_quiet": _held_to(within(spoken, deciders, ours.beside_each), ours),
    }


def _held_to(rival: Counted, ours: Counted) -> dict[str, Any]:
    """A rival of fewer lines, and how far the contrasts are ahead of it, by pairs of a session."""
    found = {"recall": rival.recall(), "beside": rival.beside_lines()}
    if ours.hits:
        ahead = paired_difference(ours.hits, rival.hits)
        found["ahead"] = {"share": _round(ahead.mean), "low": _round(ahead.low), "high": _round(ahead.high)}
    return found


def _where(cases: Sequence[Case], out: Sequence[bool], held: bool) -> list[Case]:
    return [case for case, each in zip(cases, out, strict=True) if each is held]


def _round(value: float) -> float:
    return round(value, 4)
