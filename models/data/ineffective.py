"""Label the calls that were ineffective, by the rest of the session: without an environment's label or a reward.

A call that failed was ineffective. A call that worked gets a label only between two calls of a tool that had failed. If
that tool meets the same error again, the calls in between were ineffective. If it gets past the error, it helped, and
so did the call in between if there was exactly one. All other calls stay unlabelled: whether a preparation before the
first failure was needed cannot be seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.wire.trajectory import Step

HELPED, INEFFECTIVE, UNKNOWN = 0, 1, -1

# Most steps between an error and the next call of its tool: older calls may have been about something else.
REACH = 8


def ineffective_labels(calls: Sequence[Step]) -> list[int]:
    """`HELPED`, `INEFFECTIVE` or `UNKNOWN` for each call of a finished session; transient failures are skipped."""
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
