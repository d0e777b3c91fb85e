"""Find pairs of calls from one state, of which one failed and the other worked: what a preference is learned from.

recovery    a call failed, and the next that worked was another attempt at the same, with no result in between but the
            errors: it could have been made at once
contrast    two sessions with one goal made the same calls with the same results up to here; in the one that succeeded
            the next call worked, in the one that failed it failed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.cases import is_shown_to_work, tells, worked_after
from models.distil.call_diff import distance
from models.distil.recovery import LESS
from models.export.conversation import result_of
from models.export.usable import is_usable


class _Pair(NamedTuple):
    """A call that is preferred to another.

    Attributes:
        session: whose chat is the prompt: up to its call number `at`.
        other: session of the rejected call.
    """

    kind: Literal["recovery", "contrast"]
    session: Trajectory
    at: int
    chosen: Step
    rejected: Step
    other: Trajectory


def pairs_of(judgments: Sequence[Judgment]) -> list[_Pair]:
    """All pairs, each once, in an order that is a function of the set of sessions."""
    found = [pair for judgment in judgments for pair in _recoveries(judgment)]
    found += _contrasts(judgments)
    once: dict[tuple[str, ...], _Pair] = {}
    for pair in sorted(found, key=lambda each: (each.kind != "recovery", each.session.id, each.at, each.other.id)):
        goal, chosen, rejected = pair.session.goal, pair.chosen, pair.rejected
        once.setdefault((goal, chosen.tool, chosen.arguments, rejected.tool, rejected.arguments), pair)
    return list(once.values())


def _recoveries(judgment: Judgment) -> Iterator[_Pair]:
    session = judgment.trajectory
    if judgment.verdict.label != "success":  # what got past an error may still have been of no use
        return
    calls = session.calls
    for at, failed in enumerate(calls):
        later = next(worked_after(calls, at), None)
        if later is None:
            return
        repair = calls[later]
        usable = is_usable(failed) and is_usable(repair)
        if tells(failed) and usable and _repairs(failed, repair) and is_shown_to_work(judgment, repair):
            yield _Pair("recovery", session, at, repair, failed, session)


def _repairs(failed: Step, later: Step) -> bool:
    """Whether a call tries the same thing, and not less of it."""
    if later.tool != failed.tool or (LESS.search(later.arguments) and not LESS.search(failed.arguments)):
        return False
    return bool(distance(failed.arguments, later.arguments))


def _contrasts(judgments: Iterable[Judgment]) -> Iterator[_Pair]:
    # By state: the first call that worked in a session that succeeded, and those that failed in others.
    better: dict[bytes, tuple[Trajectory, int, Step]] = {}
    worse: defaultdict[bytes, list[tuple[Trajectory, Step]]] = defaultdict(list)
    for judgment in judgments:
        session, succeeded = judgment.trajectory, judgment.verdict.label == "success"
        if not session.task or not session.goal:
            continue
        for at, (state, call) in enumerate(_states(session)):
            if succeeded and is_usable(call) and is_shown_to_work(judgment, call):
                better.setdefault(state, (session, at, call))
            elif not succeeded and tells(call) and is_usable(call):
                worse[state].append((session, call))
    for state, (session, at, chosen) in better.items():
        for other, rejected in worse.get(state, ()):
            yield _Pair("contrast", session, at, chosen, rejected, other)


def _states(session: Trajectory) -> Iterator[tuple[bytes, Step]]:
    """Each call, and a hash of what its agent had seen before it: goal, user's words, calls and their results."""
    seen = blake2b(f"{session.task}\x1f{session.goal}\x1f{session.place}".encode(), digest_size=16)
    for step in session.steps:
        if step.role == "tool":
            yield seen.digest(), step
        if step.role in ("tool", "user", "system"):  # what the model itself said is no part of the world's state
            seen.update(f"\x1e{step.tool}\x1f{step.arguments}\x1f{result_of(step)}".encode())
