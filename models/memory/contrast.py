"""Contrast sessions that solved a task with sessions that failed at it: one pair, or all that are kept.

Of what is no contrast, keep what sessions of several goals share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, groupby

from msgspec.structs import replace

from fleetlore.fingerprint.literals import masked_text, names
from models.memory.candidate import SEVERAL_GOALS, Candidate
from models.memory.quality import SAME_CALLS, TRIED

MAX_LINES = 8
MAX_DIFFERENCES = 4
# A pair differs in everything; of three attempts at least two share a side.
FEWEST_ATTEMPTS = 3
MAX_SHARED = 4
# Before the names of an item, and behind its title.
INSTEAD = "Worked instead: "


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
    """The contribution to a strategy with the literals of its session masked."""
    return replace(
        candidate,
        title=masked_text(candidate.title, known),
        content=masked_text(candidate.content, known),
        calls=tuple([masked_text(call, known) for call in candidate.calls]),
    )


def shared(examples: Sequence[Candidate]) -> list[tuple[str, int]]:
    """What sessions of several goals hold in `calls`, with how many of the sessions do; the most common first."""
    goals: dict[str, set[int]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for each in examples:
        for fact in dict.fromkeys(each.calls):
            goals[fact].add(each.goal)
            counts[fact] += 1
    found = [(fact, counts[fact]) for fact, held in goals.items() if len(held) >= SEVERAL_GOALS]
    return sorted(found, key=lambda each: (-each[1], each[0]))[:MAX_SHARED]


def shared_by(examples: Sequence[Candidate]) -> Candidate | None:
    """The best example with what several share; None where they share nothing."""
    found = shared(examples)
    if not found:
        return None
    best = examples[0]
    if best.aspect == "names":
        if 2 * found[0][1] <= len(examples):
            return None  # another one helped each of them: the error is not about one thing
        names = ", ".join(f"`{name}`" for name, times in found if 2 * times > len(examples))
        counted = ", ".join(f"`{name}` ({times} of {len(examples)} sessions)" for name, times in found)
        return replace(best, title=f"{best.title} — instead: {names}", content=f"{best.content}\n{INSTEAD}{counted}")
    return replace(best, content="\n".join([best.content, *(f"{TRIED}{call}" for call, _ in found)]))


def contrast(success: Candidate, failure: Candidate) -> str:
    """The way that worked, then the difference: calls that only the failed session made, or else those it lacked."""
    wrong = [call for call in dict.fromkeys(failure.calls) if call not in success.calls]
    missing = [call for call in dict.fromkeys(success.calls) if call not in failure.calls]
    lines = [success.content, "What worked:", *_numbered(success.calls)]
    if wrong:
        lines += ["Only in a session that failed:", *_some(wrong)]
    elif missing:
        lines += ["A session that failed did not do:", *_some(missing)]
    else:
        lines += [SAME_CALLS]
    return "\n".join((*lines, *([failure.content] if failure.content else [])))


def self_contrast(successes: Sequence[Candidate], failures: Sequence[Candidate]) -> str | None:
    """What most attempts of one side share and none of the other; None if nothing, or too few attempts to tell."""
    if len(successes) + len(failures) < FEWEST_ATTEMPTS:
        return None
    good, bad = _only_in(successes, failures), _only_in(failures, successes)
    if not good and not bad:
        return None
    lines = [f"Of {len(successes)} attempts that succeeded and {len(failures)} that failed:"]
    lines += ["Only where it succeeded:", *good] if good else []
    lines += ["Only where it failed:", *bad] if bad else []
    return "\n".join(lines)


def _only_in(some: Sequence[Candidate], others: Sequence[Candidate]) -> list[str]:
    counts = Counter(chain.from_iterable(each.calls for each in some))
    elsewhere = set(chain.from_iterable(each.calls for each in others))
    found = [fact for fact, times in counts.items() if 2 * times > len(some) and fact not in elsewhere]
    found.sort(key=lambda fact: (-counts[fact], fact))
    return [f"- {fact} ({counts[fact]} of {len(some)})" for fact in found[:MAX_SHARED]]


def _numbered(calls: Sequence[str]) -> list[str]:
    """One numbered line a call, repetitions folded, the middle of a long list left out."""
    runs = [(call, len(list(same))) for call, same in groupby(calls)]
    lines = [f"{number}. {call}{f' (×{times})' if times > 1 else ''}" for number, (call, times) in enumerate(runs, 1)]
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], f"… {len(lines) - MAX_LINES} more …", *lines[-half:]]


def _some(calls: Sequence[str]) -> list[str]:
    """The last few: what decided is nearer to the end."""
    return [f"- {call}" for call in calls[-MAX_DIFFERENCES:]]
