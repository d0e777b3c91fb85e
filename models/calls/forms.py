"""Learn in which forms the arguments of a tool are written in calls that work (`fleetlore.fingerprint.value_form`).

A form is a tool's where several agents wrote an argument so, at several values. What stands in the same place of all
these values (the `W` of `#W9502127`) belongs to it; all else is somebody's and is not kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from zlib import crc32

from fleetlore.calls.document import ArgumentForms
from fleetlore.fingerprint.value_form import DIGIT, LETTERS, parts_of, value_form, values_of
from fleetlore.wire.trajectory import Trajectory

# Of one agent, and what it takes: sessions, agents, and values of a form.
AGENT_SESSIONS = 5
LEAST_SESSIONS = 10
LEAST_AGENTS = 2
LEAST_VALUES = 5
# A form in which fewer of these sessions wrote it is a slip that a tool let pass.
LEAST_SHARE = 0.01
# An argument of more forms is written freely; more are not told apart.
MAX_FORMS = 8
KEPT_FORMS = 64
_FREE = ""
KEPT = 2_048
MOST = 256


@dataclass(slots=True)
class _Written:
    """One form of an argument.

    Attributes:
        agents: sessions by agent.
        values: hashes of the first different ones.
        parts: of the values, as far as they all have them.
    """

    agents: Counter[str] = field(default_factory=Counter)
    values: set[int] = field(default_factory=set)
    parts: list[str] | None = None

    @property
    def sessions(self) -> int:
        return sum(min(sessions, AGENT_SESSIONS) for sessions in self.agents.values())

    def add(self, value: object) -> None:
        text = str(value)
        if len(self.values) < LEAST_VALUES:
            self.values.add(crc32(text.encode("utf-8", "replace")))
        parts = parts_of(value) if isinstance(value, str) else None
        if parts is not None and self.parts is None:
            self.parts = parts
        elif parts is not None and self.parts is not None:
            both = zip(self.parts, parts, strict=True)
            self.parts = [mine if mine == other else _general(mine) for mine, other in both]

    def shown(self, form: str) -> str:
        """The form with what all values share, where there are enough of them."""
        if self.parts is None or len(self.values) < LEAST_VALUES:
            return form
        return "".join(DIGIT * len(part) if part[0].isdecimal() else part for part in self.parts)


class FormRecords:
    """By tool and argument the forms in calls that worked; those met the longest ago are forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], dict[str, _Written]] = OrderedDict()

    def learn(self, session: Trajectory) -> None:
        """Take in the calls of a session that worked: each form of an argument once."""
        met: set[tuple[str, str, str]] = set()
        for step in session.calls:
            if step.failed:
                continue
            for name, value in values_of(step.arguments).items():
                known = self._known.setdefault((step.tool, name), {})
                self._known.move_to_end((step.tool, name))
                form = value_form(value) or _FREE
                if form not in known and len(known) >= KEPT_FORMS:
                    form = _FREE
                written = known.setdefault(form, _Written())
                if form != _FREE:
                    written.add(value)
                if (step.tool, name, form) not in met:
                    met.add((step.tool, name, form))
                    written.agents[session.agent] += 1
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    def said(self) -> tuple[ArgumentForms, ...]:
        """Those that a version holds, the best backed first."""
        found = [each for key, known in self._known.items() if (each := _said(*key, known)) is not None]
        found.sort(key=lambda each: (-each.sessions, each.tool, each.argument))
        return tuple(found[:MOST])


def _said(tool: str, argument: str, known: dict[str, _Written]) -> ArgumentForms | None:
    sessions = sum(written.sessions for written in known.values())
    often = {form: written for form, written in known.items() if written.sessions >= LEAST_SHARE * sessions}
    agents = {agent for written in often.values() for agent in written.agents}
    if (
        _FREE in often
        or any(map(_is_text, often))
        or len(often) > MAX_FORMS
        or sessions < LEAST_SESSIONS
        or len(agents) < LEAST_AGENTS
    ):
        return None
    forms = sorted(often, key=lambda form: (-often[form].sessions, form))
    shown = tuple(often[form].shown(form) for form in forms)
    return ArgumentForms(tool, argument, tuple(forms), shown, sessions, len(agents))


def _is_text(form: str) -> bool:
    """Whether what is written so is words or an address: a city, a street, an e-mail. Those have no form."""
    return form == LETTERS or " " in form or "@" in form


def _general(part: str) -> str:
    return LETTERS if part[0].isalpha() else part
