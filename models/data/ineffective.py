"""Which calls were in vain, as the rest of the session shows: no label of an environment and no reward is needed.

A call that failed was in vain. One that worked has a say only between two calls of a tool that had failed before: where the tool meets
the same error again, what was done since did not help; where it gets past it, the call that stood between did (if it was a single one:
of several nobody knows which), and so did the call that got past. All others, most of all what was prepared before anything
failed, stay without a label: whether it was needed cannot be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.wire.trajectory import Step

HELPED, INEFFECTIVE, UNKNOWN = 0, 1, -1

REACH = 8
"""Steps between an error and the next call of its tool, at most: what an agent did longer ago may have been about something else."""


def ineffective_labels(calls: Sequence[Step]) -> list[int]:
    """Of each call of a finished session `HELPED`, `INEFFECTIVE` or `UNKNOWN`. Passing faults say nothing, about themselves or others."""
    labels = [UNKNOWN] * len(calls)
    pending: dict[str, int] = {}  # tool → its last failure
    for place, call in enumerate(calls):
        if call.failed and call.transient:
            continue
        begun = pending.pop(call.tool, None)
        if begun is not None and place - begun <= REACH + 1:
            between = [at for at in range(begun + 1, place) if not calls[at].failed and calls[at].tool != call.tool]
            if call.failed and call.pattern == calls[begun].pattern:
                for at in between:
                    labels[at] = INEFFECTIVE if labels[at] == UNKNOWN else labels[at]
            elif len({calls[at].call for at in between}) == 1:
                labels[between[0]] = HELPED
                for at in between[1:]:
                    labels[at] = INEFFECTIVE
        if call.failed:
            labels[place] = INEFFECTIVE
            pending[call.tool] = place
        elif begun is not None:
            labels[place] = HELPED
    return labels
