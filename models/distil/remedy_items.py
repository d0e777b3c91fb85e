"""Contributions of a session to what is known of remedies, for it and against it (`models.distil.remedies`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetlore.wire.trajectory import Judgment
from models.distil.formatting import MAX_STEP, VERSION, Calls, call_text, error_text, item_id, line, parsed
from models.distil.remedies import Example, Remedy, cause, remedies
from models.distil.resets import ActivePreparation, losses_of
from models.memory.candidate import Candidate, origin
from models.memory.quality import ERROR, TRIED

MAX_REMEDIES = 48
"""Of one session: an agent that is stuck tries everything. What helped comes first."""


def remedies_of(judgment: Judgment, calls: Calls, failed: Sequence[int], telling: Collection[int]) -> list[Candidate]:
    """At most `MAX_REMEDIES` candidates, those that helped first, and what took them (`models.distil.resets`).

    Args:
        failed, telling: as in `models.distil.remedies`.
    """
    tried = [
        (met, remedy) for (met, *_), remedy in remedies(calls, failed, telling).items() if remedy.helped or remedy.again
    ]
    tried.sort(key=lambda each: not each[1].helped)
    found = [_candidate(judgment, calls, met, remedy) for met, remedy in tried[:MAX_REMEDIES]]
    return found + losses_of(judgment, calls, [_held(calls, failed, *each) for each in tried if _helps(each[1])])


def _helps(remedy: Remedy) -> bool:
    return remedy.helped and remedy.change is None


def _held(calls: Calls, failed: Sequence[int], met: str, remedy: Remedy) -> ActivePreparation:
    example = remedy.examples[0]
    again = frozenset([place for place in failed if place > example.later and cause(calls[place]) == met])
    return ActivePreparation(calls[example.failed].tool, again, calls[example.prepared or 0].tool, example.later)


def _candidate(judgment: Judgment, calls: Calls, met: str, remedy: Remedy) -> Candidate:
    trajectory, helped = judgment.trajectory, remedy.helped
    rank, example = min((_rank(calls, each), each) for each in (remedy.examples if helped else remedy.vain))
    before, later = calls[example.failed], calls[example.later]
    tool, error = before.tool, error_text(before)
    content = [f"Failed: {call_text(before)}", f"{ERROR}{error}"]
    if example.prepared is None:
        name, old, new = remedy.change or ("", None, None)
        said = f"`{name}={old}` → `{name}={new}`"
        helps = {"tool": tool, "arguments": parsed(later.arguments), "change": [name, old, new]}
    else:
        prepared = calls[example.prepared]
        said = call_text(prepared, MAX_STEP)
        helps = {"tool": prepared.tool, "arguments": parsed(prepared.arguments), "open": list(remedy.open)}
        content.append(f"Then: {said}" if helped else f"{TRIED}{said}")
    if helped:
        content.append(f"Worked: {call_text(later)}")
    named = f" (`{'`, `'.join(remedy.open)}`: as in the error or the call)" if remedy.open else ""
    verb = "got past this error" if helped else "met this error again"
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", "cause", met, *remedy.key),
        kind="recovery",
        side="success" if helped else "failure",
        rank=rank,
        title=line(f"{tool}: {line(error, 90)} — {'' if helped else 'not '}{line(said, 90)}", 200),
        description=f"{tool} {verb} after {said}{named}.",
        content="\n".join(content),
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=before.pattern,
        cause=met,
        remedy=helps,
        version=VERSION,
    )


def _rank(calls: Calls, example: Example) -> tuple[int, int]:
    """The best example is the plainest: the later call is the one that had failed, and it took few steps."""
    same = calls[example.failed].arguments == calls[example.later].arguments
    return int(not same), example.later - example.failed
