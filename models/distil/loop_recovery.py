"""Distil the call that led out of a loop (`fleetlore.fingerprint.loops`), as a recovery from no error.

The session must have succeeded for sure: nothing else shows that leaving the loop helped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlore.fingerprint.fingerprint import argument_shape, parsed
from fleetlore.fingerprint.literals import is_code
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import VERSION, Calls, call_text, item_id, line
from models.distil.recovery import worked
from models.memory.candidate import SUCCESS_ABOVE, Candidate, origin

# What a command begins with.
_COMMAND = re.compile(r"[A-Za-z_][\w.-]*(?=\s)")


def loop_recoveries(judgment: Judgment, calls: Calls, recoveries: Sequence[Candidate]) -> list[Candidate]:
    """At most one candidate a loop: the call after the session's last step in it.

    Args:
        recoveries: of the session; an error that one of them got past needs no other.
    """
    if judgment.verdict.probability <= SUCCESS_ABOVE:
        return []
    last = {call.loop: place for place, call in enumerate(calls) if call.loop is not None}
    past = {each.pattern for each in recoveries if each.side == "success"}
    found = []
    for loop, place in last.items():
        before = {(call.tool, call.arguments) for call in calls[: place + 1]}
        # What ended the session led nowhere else, and a repeated call may be only another round of the loop.
        after = calls[place + 1] if place + 2 < len(calls) else None
        if after is None or (after.tool, after.arguments) in before or not worked(judgment, after):
            continue
        # Another call of the same kind led out by its values, and those answer its own task.
        if calls[place].pattern not in past and _kind_of_step(after) != _kind_of_step(calls[place]):
            found.append(_candidate(judgment, loop, calls[place], after))
    return found


def _candidate(judgment: Judgment, loop: str, stuck: Step, after: Step) -> Candidate:
    trajectory, step = judgment.trajectory, _kind_of_step(after)
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", loop, after.tool, argument_shape(after.arguments)),
        kind="recovery",
        side="success",
        rank=(len(after.arguments),),
        delayed=True,
        title=line(f"{stuck.tool} in circles — {step}", 200),
        description=f"Sessions that went round here got out of it with another step: {step}.",
        content=f"In circles: {call_text(stuck)}\nLed out of it: {step}",
        when=line(f"{stuck.tool} gives the same again and again: {call_text(stuck)}", 300),
        tool=stuck.tool,
        pattern=loop,
        remedy={"tool": after.tool},
        version=VERSION,
    )


def _kind_of_step(call: Step) -> str:
    """The call without its values: they answer its own task."""
    values = parsed(call.arguments)
    if isinstance(values, dict):
        return f"{call.tool}({', '.join(values)})"
    command = is_code("", call.arguments) and _COMMAND.match(call.arguments)
    return f"{call.tool}({command[0]} …)" if command else call.tool
