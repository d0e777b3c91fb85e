"""Learn which programs and forms of them time out, do not exist or are refused, and what worked in their place.

Sessions count, by form (`fleetlore.calls.programs`). Instead of a form that fails stands another form of the same
program that surely fails less often, or else what sessions of several agents did next that worked.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence

from fleetlore.calls.document import Program
from fleetlore.calls.programs import Ending, ending_of, forms, missing_program
from fleetlore.stats.intervals import wilson
from fleetlore.wire.trajectory import Trajectory
from models.calls.evidence import Evidence, Facts, Fleet, Who
from models.cases import worked_after

# Lower bound of the share of sessions in which calls of a form ended so.
_LEAST_RATE = 0.3
_LEAST_HELD = 3
KEPT = 8_192
_MOST = 256

_Form = tuple[str, str]
_Failure = tuple[str, str, Ending]


class ProgramRecords:
    """Sessions by tool and form; those met the longest ago are forgotten first."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._held = Facts[_Form](fleet, KEPT)
        # Of a form, the more general ones.
        self._general: dict[_Form, tuple[str, ...]] = {}
        self._failed = Facts[_Failure](fleet, KEPT)
        self._next: OrderedDict[_Failure, dict[str, Evidence]] = OrderedDict()

    def learn(self, session: Trajectory) -> None:
        """Take in a session: each form and ending once, with the first call of the tool that worked after it."""
        who, calls = Who.of(session), session.calls
        made = [forms(step.tool, step.arguments) for step in calls]
        held: dict[_Form, None] = {}
        failed: dict[_Failure, str] = {}
        for number, (step, (own, beside)) in enumerate(zip(calls, made, strict=True)):
            for place, each in enumerate(own):
                self._general[step.tool, each] = tuple(own[place + 1 :])
            error = step.error_message or step.error_type or ""
            ending = ending_of(error) if step.failed else None
            missing = [missing_program(error)] if ending == "not found" else []
            held.update(dict.fromkeys((step.tool, each) for each in (*own, *beside, *missing)))
            if ending is not None:
                later = (made[place].own for place in worked_after(calls, number, step.tool))
                instead = next((own[0] for own in later if own), "")
                for form in missing or own:
                    failed.setdefault((step.tool, form, ending), instead)
        for made_form in held:
            self._held.count(made_form, who)
        for key, instead in failed.items():
            self._failed.count(key, who)
            if instead:
                known = self._next.setdefault(key, {})
                self._next.move_to_end(key)
                known.setdefault(instead, Evidence(self._fleet)).add(who)
        while len(self._next) > KEPT:
            self._next.popitem(last=False)

    def said(self) -> tuple[Program, ...]:
        """Those that a version holds, the best backed first."""
        whole: defaultdict[_Form, list[str]] = defaultdict(list)
        for tool, form in self._held:
            for general in self._general.get((tool, form), ())[:2]:
                whole[tool, general].append(form)
        found = (self._of(*key, failed, whole) for key, failed in self._failed.items())
        said = [each for each in found if each is not None]
        said.sort(key=lambda each: (-each.agents, -each.failed, each.tool, each.form, each.ending))
        return tuple(said[:_MOST])

    def _of(
        self, tool: str, form: str, ending: Ending, failed: Evidence, whole: Mapping[_Form, Sequence[str]]
    ) -> Program | None:
        held = self._held.get((tool, form))
        if held is None or not failed.is_enough or held.sessions < _LEAST_HELD:
            return None
        least = wilson(min(failed.sessions, held.sessions), held.sessions)[0]
        if least < _LEAST_RATE:
            return None
        general = self._general.get((tool, form), ())
        others = whole.get((tool, general[0] if general else form), ()) if ending != "not found" else ()
        works = [
            (-self._held[tool, each].sessions, each)
            for each in others
            if each != form and self._fails_less(tool, each, ending, least)
        ]
        after = self._next.get((tool, form, ending), {})
        followed = [(-met.sessions, each) for each, met in after.items() if met.is_enough and each != form]
        sessions, instead = min(works or followed, default=(0, ""))
        return Program(tool, form, ending, failed.sessions, held.sessions, failed.agents, instead, -sessions)

    def _fails_less(self, tool: str, form: str, ending: Ending, least: float) -> bool:
        held, failed = self._held[tool, form], self._failed.get((tool, form, ending))
        count = min(failed.sessions, held.sessions) if failed is not None else 0
        return held.is_enough and wilson(count, held.sessions)[1] < least
