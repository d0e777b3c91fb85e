"""Distil a judged session into its contributions to memory items. Extractive: it shows what happened.

recovery    a call failed and a later call of the same tool worked once it was changed (`recovery`); what a call or an
            argument's value did, counted over names, with what did not help (`remedies`, `resets`); names that were
            looked up after an error had rejected others (`looked_up`); the kind of step that led out of a loop
            (`recovery`)
lesson      a failed session's error, after which the tool never worked again (`lesson`)
strategy    a task that some sessions solved and others did not (`strategy`): which step those lacked, or made wrongly,
            shows where no error does (`models.memory.contrast`)
place       names that results show at a stated place, and names that errors reject there (`place_facts`)

Whole calls are compared, and none that was cut. What others read of them has no literals
(`fleetlore.fingerprint.literals`). Transient errors teach nothing, nor do errors that say only that the call failed
(`models.memory.quality.is_verdict`), nor a success whose last call failed. Pure and deterministic: an item's id is made
of what was learned, so contributions of many sessions meet in one item in any order (`models.memory.item_state`).
"""

from __future__ import annotations

from msgspec.structs import replace

from fleetlore.wire.lore import ItemKind
from fleetlore.wire.trajectory import Judgment
from models.distil.formatting import Calls
from models.distil.lesson import contradicted, lessons
from models.distil.looked_up import looked_up
from models.distil.next_working import next_working
from models.distil.place_facts import place_facts
from models.distil.recovery import loop_recoveries, recoveries
from models.distil.remedies import remedies_of
from models.distil.strategy import strategies
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, Side
from models.memory.quality import is_verdict

# The side that backs an item.
_BACKING: dict[ItemKind, Side] = {"recovery": "success", "lesson": "failure", "strategy": "success", "place": "success"}


def distil(judgment: Judgment) -> list[Candidate]:
    """The session's contributions: at most one candidate an item, sorted by item id.

    A session that was shown an item does not back it, or the item would be its own evidence; it counts by how it ended
    (`models.memory.utility`).
    """
    calls = judgment.trajectory.calls
    failed = [place for place, call in enumerate(calls) if call.pattern is not None and not call.transient]
    telling = _telling(calls, failed)
    found = strategies(judgment, calls, telling)
    if judgment.trajectory.place:
        found += place_facts(judgment, calls)
    past: list[Candidate] = []
    if telling:
        past = recoveries(judgment, calls, telling) + remedies_of(judgment, calls, telling)
        news = looked_up(judgment, calls, telling)
        said = {each.pattern for each in news}
        # One thing is news once.
        past = [replace(each, delayed=False) if each.pattern in said else each for each in past]
        found += past + news + next_working(judgment, calls, telling, past)
        if judgment.verdict.probability > SUCCESS_ABOVE:
            found += contradicted(judgment.trajectory, calls, telling, past)
        elif judgment.verdict.probability < FAILURE_BELOW:
            found += lessons(judgment.trajectory, calls, telling)
    found += loop_recoveries(judgment, calls, past)
    best: dict[str, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.item_id, each.rank, each.content)):
        best.setdefault(each.item_id, each)
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return [each for each in best.values() if each.item_id not in shown or each.side != _BACKING[each.kind]]


def _telling(calls: Calls, failed: list[int]) -> list[int]:
    """The failed calls whose error says what is wrong (`models.memory.quality.is_verdict`)."""
    telling: dict[str | None, bool] = {}
    places = []
    for place in failed:
        call = calls[place]
        tells = telling.get(call.pattern)
        if tells is None:  # cached: a stuck agent repeats one error
            tells = telling[call.pattern] = not is_verdict(call.tool, call.error_message or "", call.error_type)
        if tells:
            places.append(place)
    return places
