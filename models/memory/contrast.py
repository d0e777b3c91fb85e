"""Contrast sessions that solved a task with sessions that failed at it: one pair, or all that are kept.

Of what is no contrast, keep what sessions of several goals share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import chain, groupby

from msgspec.structs import replace

from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.wire.lore import ERROR_MET, INSTEAD_OF, NOT_DONE, ONLY_FAILED
from models.memory.candidate import SEVERAL_GOALS, Candidate
from models.memory.quality import SAME_CALLS, TRIED

MAX_LINES = 8
# Of each side.
MAX_DIFFERENCES = 3
# Share of one side's sessions that made a call, less that of the other's.
LEAST_MORE = 0.3
MAX_SHARED = 4
INSTEAD = "Worked instead: "
# After a call that was repeated.
REPEATED = re.compile(r" \(×\d+\)$")
# What stands for an id whose kind is known.
_ID = re.compile(r"<[^<>]* id>")
# Before a name that stood beside the rejected one, in `Candidate.calls`.
BESIDE = "beside "


def shared_names(examples: Sequence[Candidate]) -> frozenset[str] | None:
    """What the calls of two agents name (of two sessions, where all are one agent's).

    None if all examples have one goal, whose values belong to the task.
    """
    if len({each.goal for each in examples}) <= 1:
        return None
    one_agent = len({each.agent for each in examples}) == 1
    held: dict[str, set[str]] = defaultdict(set)
    for each in examples:
        for name in names("\n".join(each.calls)):
            held[name].add(each.session if one_agent else each.agent)
    return frozenset([name for name, holders in held.items() if len(holders) > 1])


def without_literals(candidate: Candidate, known: frozenset[str]) -> Candidate:
    """The contribution to a strategy with the literals of its session masked, without errors that were about them."""
    lines = [(each, masked_text(each, known)) for each in candidate.content.splitlines()]
    return replace(
        candidate,
        title=masked_text(candidate.title, known),
        content="\n".join(masked for each, masked in lines if each == masked or not each.startswith(ERROR_MET)),
        calls=tuple([masked_text(call, known) for call in candidate.calls]),
    )


def shared(examples: Sequence[Candidate]) -> list[tuple[str, int]]:
    """What sessions of several goals hold in `calls`, with how many of the sessions do; the most common first, of
    equally common ones that which the sessions put first.
    """
    goals: dict[str, set[int]] = defaultdict(set)
    counts, before = Counter[str](), Counter[str]()
    for each in examples:
        for place, fact in enumerate(dict.fromkeys(each.calls)):
            goals[fact].add(each.goal)
            counts[fact] += 1
            before[fact] += place
    found = [(fact, counts[fact]) for fact, held in goals.items() if len(held) >= SEVERAL_GOALS]
    return sorted(found, key=lambda each: (-each[1], before[each[0]], each[0]))


def shared_by(examples: Sequence[Candidate]) -> Candidate | None:
    """The best example with what several share; None where they share nothing."""
    found, best = shared(examples), examples[0]
    if best.aspect == "names":
        return _with_names(best, examples, found)
    tried = [f"{TRIED}{call}" for call, _ in found[:MAX_SHARED]]
    return replace(best, content="\n".join([best.content, *tried])) if tried else None


def _with_names(best: Candidate, examples: Sequence[Candidate], found: list[tuple[str, int]]) -> Candidate | None:
    """None where another name helped each of them, or they have nothing in common beside an error that says nothing of
    where it was met.
    """
    # What fewer sessions used is about their tasks.
    often = [(name, times) for name, times in found if 2 * times > len(examples) and not name.startswith(BESIDE)]
    names = often[:MAX_SHARED]
    beside = [
        f"`{name.removeprefix(BESIDE)}`" for name, times in found if name.startswith(BESIDE) and times == len(examples)
    ]
    is_bound = any(name.startswith(BESIDE) for each in examples for name in each.calls)
    if not names or (is_bound and not beside):
        return None
    where = f" beside {', '.join(beside[:2])}" if beside else ""
    counted = ", ".join(f"`{name}` ({times} of {len(examples)} sessions)" for name, times in names)
    return replace(
        best,
        title=f"{best.title}{INSTEAD_OF}{where}: {', '.join(f'`{name}`' for name, _ in names)}",
        content=f"{best.content}\n{INSTEAD.rstrip(': ')}{where}: {counted}",
    )


def contrast(
    success: Candidate, failure: Candidate, successes: Sequence[Candidate], failures: Sequence[Candidate]
) -> str:
    """The way that worked, then what tells the sessions that succeeded from those that failed.

    Args:
        success, failure: the way, and the failed session whose errors are shown.
        successes, failures: all that are kept. What several of one side did and none of the other decides; a pair, or
            a side that shares nothing, is told apart by `success` and `failure` alone.
    """
    way = _numbered(success.calls)
    apart = [
        *_apart(NOT_DONE, successes, failures, success, failure, way),
        *_apart(ONLY_FAILED, failures, successes, failure, success, made={_form(call) for call in success.calls}),
    ]
    lines = [success.content, "What worked:", *way, *(apart or [SAME_CALLS])]
    return "\n".join((*lines, *([failure.content] if failure.content else [])))


def _apart(
    said: str,
    some: Sequence[Candidate],
    others: Sequence[Candidate],
    one: Candidate,
    other: Candidate,
    way: Sequence[str] = (),
    made: Collection[str] = (),
) -> list[str]:
    """What several of one side did, or else what `one` did and `other` did not, the nearest to the end first: steps of
    the `way` by their numbers, other calls in lines of their own. Empty where there is nothing.

    Args:
        made: forms of calls that are no difference, since the way that worked makes them.
    """
    if calls := [call for call in _more_often(some, others) if _form(call) not in made]:
        often = f" (several of {len(some)} did)"
    else:
        alone = [call for call in dict.fromkeys(reversed(one.calls)) if call not in other.calls]
        often, calls = "", [call for call in alone if _form(call) not in made]
    numbers = {REPEATED.sub("", step).partition(". ")[2]: step.partition(".")[0] for step in way}
    steps = [f" {numbers[call]}" for call in calls[:MAX_DIFFERENCES] if call in numbers]
    rest = [f"- {call}" for call in calls[:MAX_DIFFERENCES] if call not in numbers]
    return [f"{said}{','.join(steps)}{often}{':' if rest else ''}", *rest] if calls else []


def _more_often(some: Sequence[Candidate], others: Sequence[Candidate]) -> list[str]:
    """Calls of several of these sessions, of two agents where there are two, that the others surely made more seldom:
    those with the greatest difference first, and of those the nearest to the end.
    """
    elsewhere = Counter(chain.from_iterable(set(each.calls) for each in others))
    agents: dict[str, set[str]] = defaultdict(set)
    counts, to_end = Counter[str](), Counter[str]()
    for each in some:
        for distance, call in enumerate(dict.fromkeys(reversed(each.calls))):
            counts[call] += 1
            to_end[call] += distance
            agents[call].add(each.agent)
    least = min(2, len({each.agent for each in some}))
    more = {call: times / len(some) - elsewhere[call] / len(others) for call, times in counts.items()}
    found = [call for call in counts if counts[call] > 1 and len(agents[call]) >= least and more[call] >= LEAST_MORE]
    return sorted(found, key=lambda call: (-more[call], to_end[call] / counts[call], call))


def _form(call: str) -> str:
    """A call without what kind of id it takes: of one session that may be known, and of the other not."""
    return _ID.sub("<id>", call)


def _numbered(calls: Sequence[str]) -> list[str]:
    """One numbered line a call, repetitions folded, the middle of a long list left out."""
    runs = [(call, len(list(same))) for call, same in groupby(calls)]
    lines = [f"{number}. {call}{f' (×{times})' if times > 1 else ''}" for number, (call, times) in enumerate(runs, 1)]
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], f"… {len(lines) - MAX_LINES} more …", *lines[-half:]]
