"""Hold ways out, and the start of a session, against chance, against literals of others, and what solved the task.

A way out (`models.backtest.report`) that is dealt out to other sessions shows how much of its worth is chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from benchmarks.backtest.advice.literals import literals
from fleetlore.words import names_of
from models.backtest.heard import CallLog, Heard, Told, plain_text
from models.backtest.report import WayOut, mean

DEALS: Final = 20
# A shorter call ("7") is found in any text.
LEAST_SOLUTION: Final = 12
# What is quoted may be cut.
MOST_SOLUTION: Final = 120

# By source and task: (session, last call) of the sessions that solved it.
Solved = Mapping[tuple[str, str], set[tuple[str, str]]]


class SaidOf(NamedTuple):
    """What was said of a failure.

    Attributes:
        now: something, right before or after it.
        earlier: something, of an earlier failure of the same class in the session: nothing is told twice.
        again: the very same call had failed in the session before.
    """

    now: bool
    earlier: bool
    again: bool


def said_of_failures(heard: Heard) -> Iterator[SaidOf]:
    """Of each failure of a session what was said of it."""
    told: set[str] = set()
    made: set[tuple[str, str]] = set()
    for turn in heard.log.turns():
        failure = turn.call.failure
        if failure is not None and not turn.call.passes:
            now = bool(heard.before[turn.place].text or heard.after[turn.place].text)
            call = turn.call.tool, plain_text(turn.call.text)
            yield SaidOf(now, failure.class_ in told, call in made)
            made.add(call)
            if now:
                told.add(failure.class_)


def shuffled_hit_rate(cases: Sequence[WayOut], seed: int) -> float | None:
    """`hit_rate` of the same texts dealt out anew, mean of some deals."""
    spoken = [each for each in cases if each.told]
    rng, hits = Random(seed), list[bool]()
    for _ in range(DEALS):
        texts = [each.told for each in spoken]
        rng.shuffle(texts)
        hits += [case.held_by(text) for case, text in zip(spoken, texts, strict=True)]
    return mean(hits)


class Foreign(NamedTuple):
    """Whether what a session was told holds a literal of somebody else.

    That is one which neither the session had so far nor two other agents' sessions hold.

    Attributes:
        ways_out: of each way out told.
        ever: of anything told.
    """

    ways_out: list[bool]
    ever: bool


def foreign_literals(heard: Sequence[Heard], train: Iterable[CallLog]) -> list[Foreign]:
    """Literals of others in what each session was told."""
    told = [list(_unknown_literals(each)) for each in heard]
    asked = {literal for session in told for _, found in session for literal in found}
    holders = _holders(asked, train)
    result = []
    for each, session in zip(heard, told, strict=True):
        foreign = [
            (way_out, any(len(holders[one] - {each.log.agent}) < 2 for one in found)) for way_out, found in session
        ]
        result.append(Foreign([bad for way_out, bad in foreign if way_out], any(bad for _, bad in foreign)))
    return result


def _unknown_literals(heard: Heard) -> Iterator[tuple[bool, set[str]]]:
    """Of each text told, whether it is a way out, and its literals that the session had not seen."""
    seen = heard.log.goal.lower()

    def unknown(text: str) -> set[str]:
        return {literal for literal in literals(text) if literal not in seen}

    def each(said: Told) -> Iterator[tuple[bool, set[str]]]:
        yield False, unknown(said.text)
        if said.way_out:
            yield True, unknown(said.way_out)

    yield from each(heard.start)
    for place, call in enumerate(heard.log.calls):
        seen += f"\n{call.before}\n{call.text}".lower()
        yield from each(heard.before[place])
        seen += f"\n{call.said}".lower()
        if place in heard.after:
            yield from each(heard.after[place])


def _holders(asked: set[str], train: Iterable[CallLog]) -> Mapping[str, set[str]]:
    """By literal: agents whose sessions hold it; three are enough, one of which may be the one that asks."""
    holders: dict[str, set[str]] = defaultdict(set)
    for log in train:
        for text in (log.goal, *(part for call in log.calls for part in (call.before, call.text, call.said))):
            for literal in (literals(text) | names_of(text)) & asked:
                if len(holders[literal]) < 3:
                    holders[literal].add(log.agent)
    return holders


def solutions(logs: Iterable[CallLog]) -> Solved:
    """The last calls of the sessions that solved their task."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for log in logs:
        calls = [turn.call for turn in log.turns()]
        if log.failed is False and calls and len(text := plain_text(calls[-1].text)) >= LEAST_SOLUTION:
            found[log.source, log.task].add((log.session, text[:MOST_SOLUTION]))
    return found


def names_solution(heard: Heard, solved: Solved) -> bool:
    """Whether the start of a session names a call that solved its task, in another session."""
    start = plain_text(heard.start.text)
    of_task = solved.get((heard.log.source, heard.log.task), ())
    return any(call in start for session, call in of_task if session != heard.log.session)
