"""Find the earlier action that made a failure, from the episodic buffer by the flow of values, without a model.

A value is a number, a name or an id. What an agent does rests on values; those that it took from its goal or from what
a tool or a person said are grounded, the others it brought in itself, right or wrong. In this order:

1. The session's last call failed: the latest action that brought in a value which that call used and its error names (a
   backward slice, Weiser 1981, cut where a value enters); the call itself where it brought it in.
2. A call changed something (its name is not that of a look-up): the first such call, because what was done before is
   what all the rest had to live with.
3. Else the action that brought in most values which later actions then used.

Ties go to the earlier one. It is a guess, right about three times as often as a random one; nothing is blocked or
unlearned by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlore.watch.episode import MAX_TEXT, RecentStep

__all__ = ["blame"]

_WORD = re.compile(r"[A-Za-z0-9_#$@.'’-]+")
_BEHIND = "_#$@.'’-"  # a word ends with none of these
_LOOK_UP = re.compile(
    r"(?:\A|[_.\s-])(?:get|find|list|search|read|look|lookup|calculate|calc|think|fetch|query|select|show|check|view|"
    r"count|describe|sql|python|bash)",
    re.IGNORECASE,
)


def blame(goal: str, moments: Sequence[RecentStep]) -> RecentStep | None:
    """The moment of the agent's own doing that most likely decided a failure; None where the agent did nothing.

    Args:
        moments: of one session, oldest first, its end among them.
    """
    acts = [moment for moment in moments if moment.did or moment.tool]
    if not acts:
        return None
    words = {moment.number: _words(moment.did) | _words(moment.came) for moment in moments}
    brought: dict[int, set[str]] = {}  # by each moment: the values that nobody had mentioned before
    seen = _words(goal[:MAX_TEXT])
    for moment in moments:
        brought[moment.number] = values(moment.did) - seen
        seen |= words[moment.number]
    last = acts[-1]
    if last.error is not None:
        named = values(last.did) & values(last.came)
        guilty = [moment for moment in acts if brought[moment.number] & named]
        return guilty[-1] if guilty else last
    changing = [moment for moment in acts if moment.tool and not _LOOK_UP.search(moment.tool)]
    if changing:
        return changing[0]
    # What opens a session states the task, whoever wrote it down.
    considered = [moment for moment in acts if moment.number > 1] or acts
    later: set[str] = set()
    used: dict[int, int] = {}
    for moment in reversed(moments):
        used[moment.number] = len(brought[moment.number] & later)
        later |= words[moment.number]
    return max(considered, key=lambda moment: (used[moment.number], -moment.number))


def values(text: str) -> set[str]:
    """The numbers, names and ids in a text, folded."""
    return {
        word.strip(".'’").lower()
        for word in _found(text)
        if any(each.isdigit() for each in word) or (word[0].isupper() and len(word) > 3) or "_" in word
    }


def _words(text: str) -> set[str]:
    return {word.strip(".'’").lower() for word in _found(text)}


def _found(text: str) -> list[str]:
    return [word for each in _WORD.findall(text) if (word := each.rstrip(_BEHIND))]
