"""Give a scripted agent one of two memories: a private journal, or the fleet's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.demo.agents import RETRIED, Tip
from benchmarks.demo.world import Call, Environment, Reply
from fleetlore.transcripts.calls import json_or_text

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Session
    from fleetlore.wire.lore import MemoryItem


class Journal:
    """An agent's own memory: how often each tool failed, and what the agent changed between an error and its end."""

    # Remedies remembered per tool, the newest first.
    KEPT = 8

    def __init__(self) -> None:
        self._calls: dict[str, int] = defaultdict(int)
        self._errors: dict[str, int] = defaultdict(int)
        self._remedies: dict[str, list[Call]] = defaultdict(list)
        self._session: Environment | None = None
        self._pending: dict[str, tuple[str, Call | None]] = {}

    def advise(self, call: Call) -> Tip:
        calls = self._calls[call.tool]
        return Tip(self._errors[call.tool] / calls if calls else 0.0, tuple(self._remedies[call.tool]))

    def predict(self, calls: Sequence[Call]) -> Sequence[float | None]:
        return [None] * len(calls)

    async def perform(self, call: Call, environment: Environment) -> Reply:
        if environment is not self._session:
            self._session, self._pending = environment, {}
        reply = environment.perform(call)
        if reply.error_type not in RETRIED:
            self._write(call, reply)
        return reply

    def _write(self, call: Call, reply: Reply) -> None:
        self._calls[call.tool] += 1
        self._errors[call.tool] += reply.failed
        error, change = self._pending.pop(call.tool, (None, None))
        if error is not None and error != reply.error_type:
            # The error is gone: by the call made in between, else by the other arguments.
            remedy = change or call
            known = [other for other in self._remedies[call.tool] if other != remedy]
            self._remedies[call.tool] = [remedy, *known][: self.KEPT]
        if reply.error_type is not None:
            self._pending[call.tool] = (reply.error_type, None)
        else:
            for tool, (error_type, _) in self._pending.items():
                self._pending[tool] = (error_type, call)


class FleetAdviser:
    """The fleet's memory: a session of a :class:`fleetlore.agent.fleet.Fleet`, which records and advises every call.

    The session tells nothing twice, so what it told is kept, as a model keeps its context.

    Attributes:
        hints: the lines that name another value to use. Advice that is the same for every fleet is left out.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.hints: set[str] = set()
        self._remedies: dict[str, list[Call]] = defaultdict(list)

    def advise(self, call: Call) -> Tip:
        advice = self._session.advise(call.tool, call.arguments)
        self.hints |= {line for line in advice.text.splitlines() if line.startswith("- Use `")}
        told = self._remedies[call.tool]
        told += [helped for item in advice.items if (helped := _changed(item, call)) is not None]
        return Tip(advice.risk or 0.0, tuple(told))

    def predict(self, calls: Sequence[Call]) -> Sequence[float | None]:
        seen = self._session.outlook([(call.tool, call.arguments) for call in calls])
        return [None if each is None else each.fails for each in seen]

    async def perform(self, call: Call, environment: Environment) -> Reply:
        async with self._session.action(call.tool, call.arguments) as action:
            reply = environment.perform(call)
            if reply.error_type is not None:
                action.fail(reply.error_type, reply.error_message or "")
            else:
                action.result = reply.result
        return reply


def _changed(item: MemoryItem, call: Call) -> Call | None:
    """Return the call with an item's value of one argument, or None if the item changes anything else."""
    if len(item.was) != 1 or len(item.now) != 1 or "=" not in item.now[0]:
        return None
    name, _, value = item.now[0].partition("=")
    return Call(call.tool, {**call.arguments, name: json_or_text(value)})
