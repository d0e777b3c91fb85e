"""Distil a judged session into its contributions to memory items. Extractive: it shows what happened.

recovery    a call failed, and worked once it was changed, or once another call had been made (`recovery`); a name that
            was looked up after an error had rejected another (`looked_up`)
strategy    the calls that solved a task (`strategy`), an item once several agents solved it by the very same
            (`models.memory.way`)

Whole calls are compared, and none that was cut. What others read of them has no literals
(`fleetlore.fingerprint.literals`). Transient errors teach nothing, nor do errors that say only that the call failed
(`models.cases.telling`), nor a success whose last call failed. Pure and deterministic: an item's id is made
of what was learned, so contributions of many sessions meet in one item in any order (`models.memory.item_state`).
"""

from __future__ import annotations

from msgspec.structs import replace

from fleetlore.wire.trajectory import Judgment
from models.cases import telling
from models.distil.looked_up import looked_up
from models.distil.recovery import recoveries
from models.distil.strategy import strategies
from models.memory.candidate import Candidate


def distil(judgment: Judgment) -> list[Candidate]:
    """The session's contributions: at most one candidate an item, sorted by item id.

    A session that was shown an item does not back it, or the item would be its own evidence.
    """
    calls = judgment.trajectory.calls
    found = strategies(judgment, calls)
    if failed := telling(calls):
        past = recoveries(judgment, calls, failed)
        news = looked_up(judgment, calls, failed)
        said = {each.pattern for each in news}
        # One thing is news once.
        past = [replace(each, delayed=False) if each.pattern in said else each for each in past]
        found += past + news
    best: dict[str, Candidate] = {}
    for each in sorted(found, key=lambda each: (each.item_id, each.side != "success", each.content)):
        best.setdefault(each.item_id, each)
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return [each for each in best.values() if each.item_id not in shown or each.side != "success"]
