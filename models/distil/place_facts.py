"""Distil facts of a place: names (tables, columns, options, files) that results show there, or that errors reject.

Only of sessions that state their place. The names are those that the call model counts (`models.data.place_names`);
here each is a row of its own, with its evidence by agents. A session that meets the contrary contradicts the fact: more
agents count, and what two agents met since outweighs all before (`models.memory.item_state`).
"""

from __future__ import annotations

from fleetlore.calls.context import KEYWORDS, RESULT_CHARACTERS, words_of
from fleetlore.wire.trajectory import Judgment, Step
from models.data.place_names import names_of_place
from models.distil.formatting import VERSION, Calls, call_text, error_text, item_id
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin

# Of one session: what an error rejected first, then what was used, then what was only shown.
MAX_FACTS = 32


def place_facts(judgment: Judgment, calls: Calls) -> list[Candidate]:
    """At most `MAX_FACTS` candidates of a session that states its place, one a name."""
    said = dict(names_of_place(calls))  # of each name the last call that tells it
    shown_by: dict[str, Step] = {}
    for call in calls:
        if not call.failed:
            for word in words_of(call.result, RESULT_CHARACTERS) - KEYWORDS:
                shown_by.setdefault(word, call)
    rejected = [(name, step) for name, step in said.items() if step.failed]
    # An alias that a query made up is no name of the place.
    shown = [(name, step) for name, step in said.items() if not step.failed and name in shown_by]
    shown.sort(key=lambda each: shown_by[each[0]] is each[1])
    return [_candidate(judgment, name, step, shown_by.get(name)) for name, step in (*rejected, *shown)[:MAX_FACTS]]


def _candidate(judgment: Judgment, name: str, step: Step, shown_by: Step | None) -> Candidate:
    trajectory, place = judgment.trajectory, judgment.trajectory.place
    if step.failed:
        content = f"Rejected: {error_text(step)}"
    else:
        content = f"Works in calls of {step.tool}"
        if shown_by is not None:
            content += f"; shown by {call_text(shown_by, known=frozenset([place.casefold()]))}"
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "place", place, name),
        kind="place",
        side="failure" if step.failed else "success",
        rank=(len(content),),
        least_goals=SEVERAL_GOALS,
        title=name,
        description=f"{'Rejected' if step.failed else 'Known'} at {place}.",
        content=content,
        when=f"at {place}",
        tool=step.tool,
        place=place,
        version=VERSION,
    )
