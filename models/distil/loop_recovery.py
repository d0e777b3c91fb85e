"""Way out: a session went round in circles (`fleetlore.fingerprint.loops`), did something else and succeeded. A recovery from no error.

That it succeeded has to be sure: nothing in the environment says that a loop was left for the better.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.fingerprint.fingerprint import argument_shape
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import MAX_RESULT, MAX_STEP, VERSION, Calls, call_text, item_id, line, parsed
from models.distil.recovery import worked
from models.memory.candidate import SUCCESS_ABOVE, Candidate, origin


def ways_out(judgment: Judgment, calls: Calls, recoveries: Sequence[Candidate]) -> list[Candidate]:
    """At most one a loop: the call after the session was in it for the last time.

    Args:
        recoveries: of the session; an error that one of them got past needs no other way out.
    """
    if judgment.verdict.probability <= SUCCESS_ABOVE:
        return []
    last = {call.loop: place for place, call in enumerate(calls) if call.loop is not None}
    past = {each.pattern for each in recoveries}
    found = []
    for loop, place in last.items():
        before = {(call.tool, call.arguments) for call in calls[: place + 1]}
        after = calls[place + 1] if place + 1 < len(calls) else None
        # One of the calls that it had made before may only be another round.
        if after is None or (after.tool, after.arguments) in before or not worked(judgment, after):
            continue
        if calls[place].pattern not in past:
            found.append(_way_out(judgment, loop, calls[place], after))
    return found


def _way_out(judgment: Judgment, loop: str, stuck: Step, after: Step) -> Candidate:
    trajectory = judgment.trajectory
    content = [f"In circles: {call_text(stuck)}"]
    content += [f"It gave: {line(stuck.result, MAX_RESULT)}"] if stuck.result else []
    content += [f"Led out of it: {call_text(after)}"]
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "recovery", loop, after.tool, argument_shape(after.arguments)),
        kind="recovery",
        side="success",
        rank=(len(after.arguments),),
        title=line(f"{stuck.tool} in circles — {call_text(after, 120)}", 200),
        description=f"Sessions that went round here got out of it with {call_text(after, MAX_STEP)}.",
        content="\n".join(content),
        when=line(f"{stuck.tool} gives the same again and again: {call_text(stuck, MAX_STEP)}", 300),
        tool=stuck.tool,
        pattern=loop,
        remedy={"tool": after.tool, "arguments": parsed(after.arguments)},
        version=VERSION,
    )
