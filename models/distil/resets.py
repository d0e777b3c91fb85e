"""Find failures that reset what was prepared before: a host restarts, a session with a service ends.

A session made a preparation that helped, met a failure, and called the tool again without preparing anew. If the tool
works, the preparation was kept; if it meets the original error, it was reset. A session backs "this kind of failure
resets" if at least two preparations were reset after it and fewer kept, and contradicts it if as many were kept. The
counts of many sessions tell chance apart. Pure and deterministic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from fleetlore.fingerprint.fingerprint import failure_of, kind_of
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import VERSION, error_text, item_id, line
from models.memory.candidate import Candidate, origin

# Candidates of one session, the best supported first.
MAX_KINDS = 8
LEAST_RESETS = 2


class ActivePreparation(NamedTuple):
    """A preparation in effect; `served` is the place of the first call that it helped.

    Attributes:
        tool, again: the tool whose error it prevents, and the places of that error.
        by: the tool that prepares.
    """

    tool: str
    again: frozenset[int]
    by: str
    served: int


def resets_of(judgment: Judgment, calls: Sequence[Step], active: Sequence[ActivePreparation]) -> list[Candidate]:
    """At most `MAX_KINDS` candidates.

    Args:
        active: preparations that helped, each once; at least one.
    """
    first: dict[str, int] = {}
    gone: dict[str, int] = defaultdict(int)
    kept: dict[str, int] = defaultdict(int)
    # Transient errors count too: a lost connection resets the login.
    kinds = {
        place: _kind(call.tool, call.error_type, call.error_message)
        for place, call in enumerate(calls)
        if call.pattern is not None
    }
    for each in active:
        for kind, (place, was_reset) in _fates(each, calls, kinds).items():
            first[kind] = min(place, first.get(kind, place))
            (gone if was_reset else kept)[kind] += 1
    said = [kind for kind in first if kept[kind] >= gone[kind] or gone[kind] >= LEAST_RESETS]
    said.sort(key=lambda kind: (-gone[kind] - kept[kind], first[kind]))
    return [_candidate(judgment, calls[first[kind]], kind, gone[kind], kept[kind]) for kind in said[:MAX_KINDS]]


def _fates(active: ActivePreparation, calls: Sequence[Step], kinds: Mapping[int, str]) -> dict[str, tuple[int, bool]]:
    """For each kind of failure met while the preparation was active: where, and whether it was reset afterwards."""
    found: dict[str, tuple[int, bool]] = {}
    met: dict[str, int] = {}
    for place in range(active.served + 1, len(calls)):
        call = calls[place]
        if place in active.again:
            found.update({kind: (at, True) for kind, at in met.items()})
            break
        if place in kinds:
            met[kinds[place]] = place
        elif not call.failed and call.tool in (active.tool, active.by):
            if call.tool == active.tool:
                for kind, at in met.items():
                    found.setdefault(kind, (at, False))
            met.clear()
    return found


def _candidate(judgment: Judgment, failed: Step, kind: str, gone: int, kept: int) -> Candidate:
    trajectory, error = judgment.trajectory, error_text(failed)
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "loss", kind),
        kind="recovery",
        side="success" if gone > kept else "failure",
        rank=(-gone, kept),
        title=line(f"After {line(error, 90)}: prepare again", 200),
        description="What was prepared before this error is gone after it, whichever tool met it.",
        content=f"After this error {gone} of {gone + kept} preparations that had helped were gone, "
        "and calls failed as before them.",
        when=error,
        pattern=kind,
        remedy={"again": True},
        version=VERSION,
    )


@lru_cache(maxsize=8192)
def _kind(tool: str, error_type: str | None, message: str | None) -> str:
    return kind_of(failure_of(tool, "", error_type, message))
