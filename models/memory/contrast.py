"""What a session that solved a task did, and what one that failed at it did otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from models.memory.candidate import Candidate
from models.memory.quality import SAME_CALLS

MAX_LINES = 8
MAX_DIFFERENCES = 4


def contrast(success: Candidate, failure: Candidate) -> str:
    """The way that worked, then only the difference: calls of the failed session that the other did not need, and the reverse."""
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
