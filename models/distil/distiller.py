"""From one judged session to its contributions to the fleet's memory. Extractive: it quotes what happened and invents nothing.

recovery    a call failed and a later call of the same tool worked (`models.distil.recovery`); the same counted over names, with what
            did not help (`models.distil.remedies`)
lesson      a session that failed, on a tool that never worked again after that error (`models.distil.lesson`)
way out     a session went in circles, and a call led out of it (`models.distil.loop_recovery`)
strategy    a task that some sessions solved and others did not (`models.distil.strategy`); attempts that were started together are
            contrasted all with all besides (`models.memory.contrast`)

Transient errors (503, time-outs, rate limits) teach nothing, nor do those that say only that the call failed
(`models.memory.quality.is_verdict`), nor a success whose last call failed, for one of the two is wrong. Pure and deterministic: items are
keyed by what was learned and not by how it was worded, so that contributions of many sessions meet in one item whatever the
order of their arrival (`models.memory.item_state`).
"""

from __future__ import annotations

from fleetlore.wire.lore import ItemKind
from fleetlore.wire.trajectory import Judgment
from models.distil.attempt_facts import attempt_facts
from models.distil.formatting import Calls, said
from models.distil.lesson import contradicted, lessons
from models.distil.loop_recovery import ways_out
from models.distil.recovery import recoveries
from models.distil.remedies import remedies_of
from models.distil.strategy import strategies
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, Side
from models.memory.quality import is_verdict

# The side that says that an item is right.
_BACKING: dict[ItemKind, Side] = {"recovery": "success", "lesson": "failure", "strategy": "success"}


def distil(judgment: Judgment) -> list[Candidate]:
    """What the session contributes: at most one candidate an item, sorted by item id.

    A session that was shown an item does not back it, or an item would be its own evidence; how the session ended is what it
    has to say (`models.memory.utility`).
    """
    calls = judgment.trajectory.calls
    failed = [place for place, call in enumerate(calls) if call.pattern is not None and not call.transient]
    telling = _telling(calls, failed)
    found = strategies(judgment, calls, telling) + attempt_facts(judgment, calls, telling)
    past: list[Candidate] = []
    if failed:
        past = recoveries(judgment, calls, failed, telling)
        found += past
        found += remedies_of(judgment, calls, failed, telling)
        if judgment.verdict.probability > SUCCESS_ABOVE:
            found += contradicted(judgment.trajectory, calls, telling, past)
        elif judgment.verdict.probability < FAILURE_BELOW:
            found += lessons(judgment.trajectory, calls, telling)
    found += ways_out(judgment, calls, past)
    best: dict[str, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.item_id, each.rank, each.content)):
        best.setdefault(each.item_id, each)
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return [each for each in best.values() if each.item_id not in shown or each.side != _BACKING[each.kind]]


def _telling(calls: Calls, failed: list[int]) -> list[int]:
    """Those of the failed calls whose error says what is wrong (`models.memory.quality.is_verdict`)."""
    telling: dict[str | None, bool] = {}
    places = []
    for place in failed:
        call = calls[place]
        tells = telling.get(call.pattern)
        if tells is None:  # an agent that is stuck meets one error again and again
            tells = telling[call.pattern] = not is_verdict(call.tool, call.arguments, said(call))
        if tells:
            places.append(place)
    return places
