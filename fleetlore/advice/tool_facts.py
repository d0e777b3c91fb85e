"""List a call model's facts about tools, for operators."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlore.advice.before_call import look_up_quote, need_tip
from fleetlore.advice.gate import all_of
from fleetlore.calls.model import CallModel

__all__ = ["ToolFact", "facts_of_tools"]


@dataclass(frozen=True, slots=True)
class ToolFact:
    """A fact about a tool, shown to agents before a call or after it failed.

    Attributes:
        about: `need` for a cause of failures, `look-up` for a call that finds missing names.
        sessions: a few of each agent.
    """

    tool: str
    about: str
    says: str
    agents: int
    sessions: int


def facts_of_tools(model: CallModel) -> list[ToolFact]:
    """Return the facts about tools: needs, then look-ups, each with the best backed first."""
    needs = [ToolFact(of.tool, "need", all_of(need_tip(of).parts), of.agents, of.failed) for of in model.needs.values()]
    look_ups = [
        ToolFact(of.tool, "look-up", f"after {of.kind}: {all_of(look_up)}", of.agents, of.used)
        for of in model.look_ups.values()
        for look_up in [("Look up what there is: ", look_up_quote(of), ".")]
    ]
    return [
        each
        for some in (needs, look_ups)
        for each in sorted(some, key=lambda each: (-each.agents, -each.sessions, each.tool, each.says))
    ]
