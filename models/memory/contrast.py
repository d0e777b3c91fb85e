"""Contrast the sessions that solved a task with those that failed at it.

One session is no evidence: what is said of a side is what two agents of it did. Where one agent alone is known, its
sessions of different goals stand for agents.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby

from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.wire.lore import ERROR_MET, NOT_DONE, ONLY_FAILED
from models.memory.candidate import Candidate
from models.memory.quality import SAME_CALLS

MAX_LINES = 8
# Of each side.
MAX_DIFFERENCES = 3
# Share of one side's sessions that made a call, less that of the other's.
LEAST_MORE = 0.3
LEAST_VOICES = 2
# After a call that was repeated.
REPEATED = re.compile(r" \(×\d+\)$")
# What stands for an id whose kind is known.
_ID = re.compile(r"<[^<>]* id>")

Voice = Callable[[Candidate], object]


def voices(examples: Iterable[Candidate]) -> Voice:
    """By what sessions are told apart: by agent, or by goal where there is one agent."""
    return (lambda each: each.agent) if len({each.agent for each in examples}) > 1 else (lambda each: each.goal)


def agreed(examples: Sequence[Candidate], texts: Callable[[Candidate], Iterable[str]], voice: Voice) -> list[str]:
    """Texts that two voices hold, those of the most voices first, ties by text."""
    held: dict[str, set[object]] = defaultdict(set)
    for each in examples:
        for text in texts(each):
            held[text].add(voice(each))
    found = [text for text, holders in held.items() if len(holders) >= LEAST_VOICES]
    return sorted(found, key=lambda text: (-len(held[text]), text))


def masked_alike(examples: Sequence[Candidate], voice: Voice) -> Callable[[str], str]:
    """Masks the literals of a text that fewer than two voices hold: they are not the task's, but somebody's."""
    known = frozenset(agreed(examples, lambda each: names("\n".join(each.calls)), voice))
    return lambda text: masked_text(text, known)


def contrast(way: Sequence[str], successes: Sequence[Candidate], failures: Sequence[Candidate], voice: Voice) -> str:
    """The way that worked, then what tells the sessions that succeeded from those that failed.

    Args:
        way: the calls that are shown.
        successes, failures: all that are kept.
    """
    numbered = _numbered(way)
    number_of = {REPEATED.sub("", step).partition(". ")[2]: step.partition(".")[0] for step in numbered}
    not_done = [call for call in _more_often(successes, failures, voice) if call in number_of]
    # A call that the way makes is no mark of failure.
    made = {_form(call) for call in way}
    only_failed = [call for call in _more_often(failures, successes, voice) if _form(call) not in made]
    lines = ["What worked:", *numbered]
    if not_done:
        steps = ", ".join(number_of[call] for call in not_done[:MAX_DIFFERENCES])
        lines.append(f"{NOT_DONE} {steps} (several of {len(successes)} did)")
    if only_failed:
        lines.append(f"{ONLY_FAILED} (several of {len(failures)} did):")
        lines += [f"- {call}" for call in only_failed[:MAX_DIFFERENCES]]
    if not (not_done or only_failed) and all(made == set(map(_form, each.calls)) for each in failures):
        lines.append(SAME_CALLS)
    met = agreed(failures, lambda each: each.content.splitlines(), voice)
    return "\n".join([*lines, *[line for line in met if line.startswith(ERROR_MET)]])


def _more_often(some: Sequence[Candidate], others: Sequence[Candidate], voice: Voice) -> list[str]:
    """Calls of two voices that the others surely made more seldom: those with the greatest difference first, and of
    those the nearest to the end.
    """
    elsewhere = Counter(chain.from_iterable(set(each.calls) for each in others))
    counts, to_end = Counter[str](), Counter[str]()
    for each in some:
        for distance, call in enumerate(dict.fromkeys(reversed(each.calls))):
            counts[call] += 1
            to_end[call] += distance
    several = agreed(some, lambda each: each.calls, voice)
    more = {call: counts[call] / len(some) - elsewhere[call] / len(others) for call in several}
    found = [call for call in several if more[call] >= LEAST_MORE]
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
