"""Tell the way that solved a task.

A way is told on the word of a quorum: `QUORUM_AGENTS` agents made all of its calls. Of sessions with other goals only
what two agents' calls share is quoted; the rest is not the task's, but somebody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from msgspec.structs import replace

from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.wire.lore import HOW_TO
from models.memory.candidate import Candidate

_MAX_LINES = 8
_MAX_TITLE = 160
_LEAST_VOICES = 2


def way(shown: Sequence[Candidate], successes: Sequence[Candidate], *, is_masked: bool) -> Candidate:
    """A strategy as it is told.

    Args:
        shown: the examples of the way, best first.
        successes: all examples of the task.
        is_masked: whether what fewer than two agents' calls hold is left out.
    """
    calls = [each.calls for each in shown]
    if is_masked:
        known = frozenset(_agreed(successes, lambda each: names("\n".join(each.calls))))
        calls = [tuple([masked_text(call, known) for call in each]) for each in calls]
    told = min(calls, key=lambda each: (-calls.count(each), each))
    goals = _agreed(shown, lambda each: [each.title])
    number = len(told)
    return replace(
        shown[0],
        title=f"{HOW_TO}{goals[0] if goals else shown[0].task}"[:_MAX_TITLE],
        description=f"Solved in {number} call{'' if number == 1 else 's'}.",
        content="\n".join(["What worked:", *_numbered(told)]),
    )


def _agreed(examples: Iterable[Candidate], texts: Callable[[Candidate], Iterable[str]]) -> list[str]:
    """Texts that examples of two agents hold, those of the most agents first, ties by text."""
    held: dict[str, set[str]] = defaultdict(set)
    for each in examples:
        for text in texts(each):
            held[text].add(each.agent)
    found = [text for text, holders in held.items() if len(holders) >= _LEAST_VOICES]
    return sorted(found, key=lambda text: (-len(held[text]), text))


def _numbered(calls: Sequence[str]) -> list[str]:
    """One numbered line a call, repetitions folded, the middle of a long list left out."""
    runs = [(call, len(list(same))) for call, same in groupby(calls)]
    lines = [f"{number}. {call}{f' (×{times})' if times > 1 else ''}" for number, (call, times) in enumerate(runs, 1)]
    if len(lines) <= _MAX_LINES:
        return lines
    half = _MAX_LINES // 2
    return [*lines[:half], f"… {len(lines) - _MAX_LINES} more …", *lines[-half:]]
