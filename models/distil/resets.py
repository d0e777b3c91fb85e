"""Failures after which nothing holds that was prepared before: a host that restarts, a session with a service that ends.

A session had made a preparation that helped, it met a failure, and went on to call the tool again without preparing anew: the tool
works (the preparation was kept), or meets the error that the preparation is against (it was gone). A session says of a kind of failure that it
takes what was prepared where at least two different preparations were gone after it and fewer were kept, and speaks against it where
as many were kept. What stood between by chance, the counts of many sessions tell apart. Pure and deterministic.
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

MAX_KINDS = 8
"""Of one session, those first that it says most of."""
LEAST_GONE = 2


class ActivePreparation(NamedTuple):
    """A preparation that was in effect: `served` is the place of the first call that it helped.

    Attributes:
        tool, again: whose error it is against, and the places where that error was met.
        by: the tool that prepares.
    """

    tool: str
    again: frozenset[int]
    by: str
    served: int


def resets_of(judgment: Judgment, calls: Sequence[Step], held: Sequence[ActivePreparation]) -> list[Candidate]:
    """At most `MAX_KINDS` candidates.

    Args:
        held: preparations that helped, each once.
    """
    first: dict[str, int] = {}
    gone: dict[str, int] = defaultdict(int)
    kept: dict[str, int] = defaultdict(int)
    # Passing faults among them: a connection that is reset takes the login with it.
    kinds = {
        place: _kind(call.tool, call.error_type, call.error_message)
        for place, call in enumerate(calls)
        if held and call.pattern is not None
    }
    for each in held:
        for kind, (place, was_gone) in _what_became_of(each, calls, kinds).items():
            first[kind] = min(place, first.get(kind, place))
            (gone if was_gone else kept)[kind] += 1
    said = [kind for kind in first if kept[kind] >= gone[kind] or gone[kind] >= LEAST_GONE]
    said.sort(key=lambda kind: (-gone[kind] - kept[kind], first[kind]))
    return [_candidate(judgment, calls[first[kind]], kind, gone[kind], kept[kind]) for kind in said[:MAX_KINDS]]


def _what_became_of(
    held: ActivePreparation, calls: Sequence[Step], kinds: Mapping[int, str]
) -> dict[str, tuple[int, bool]]:
    """By kind of failure met while the preparation was in effect: where, and whether it was gone at the next attempt."""
    found: dict[str, tuple[int, bool]] = {}
    met: dict[str, int] = {}
    for place in range(held.served + 1, len(calls)):
        call = calls[place]
        if place in held.again:
            found.update({kind: (at, True) for kind, at in met.items()})
            break
        if place in kinds:
            met[kinds[place]] = place
        elif not call.failed and call.tool in (held.tool, held.by):
            if call.tool == held.tool:
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
        content=f"After this error {gone} of {gone + kept} preparations that had helped were gone, and calls failed as before them.",
        when=error,
        pattern=kind,
        remedy={"again": True},
        version=VERSION,
    )


@lru_cache(maxsize=8192)
def _kind(tool: str, error_type: str | None, message: str | None) -> str:
    return kind_of(failure_of(tool, "", error_type, message))
