"""Replay logged sessions through a real agent's session: what it would be told."""

from collections.abc import Sequence
from typing import Any

from fleetlore.calls.model import CallModel
from fleetlore.fingerprint.fingerprint import arguments_text, failure_of
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from models.backtest import Call, CallLog, Heard, Told, told
from streams.offline.memory_pipeline import EventClock, MemoryPipeline, OfflineRun

_FAILED: dict[ev.Outcome, bool | None] = {"failure": True, "success": False, "unknown": None}


def call_log(logged: LoggedSession) -> CallLog:
    calls: list[Call] = []
    messages: list[str] = []
    for kind, data in logged.events:
        if kind == "message":
            messages.append(data[ev.CONTENT])
        else:
            calls.append(_call(data, "\n".join(messages)))
            messages = []
    return CallLog(
        logged.session, logged.source, logged.agent, logged.task, logged.goal, _FAILED[logged.outcome], tuple(calls)
    )


async def hear(learned: OfflineRun, sessions: Sequence[LoggedSession]) -> list[Heard]:
    memory = MemoryPipeline(EventClock(learned.ended), learn=False)
    memory.call_model = CallModel.from_bytes(learned.calls) if learned.calls else None
    for pattern in learned.patterns:
        memory.index.put_pattern(pattern)
    for item in learned.items:
        memory.index.put_item(item)
    return [await _hear(memory, logged) for logged in sessions]


async def _hear(memory: MemoryPipeline, logged: LoggedSession) -> Heard:
    before: list[Told] = []
    after: dict[int, Told] = {}
    asking = memory.session(logged.agent, logged.goal, logged.task, logged.session, [], place=logged.place)
    async with asking as session:
        start = told(session.advise())
        for kind, data in logged.events:
            if kind == "message":
                session.message(data[ev.ROLE], data[ev.CONTENT])
                continue
            tool, arguments = data[ev.TOOL], data[ev.ARGUMENTS]
            before.append(told(session.advise(tool, arguments)))
            async with session.action(tool, arguments) as action:
                if ev.ERROR_MESSAGE in data:
                    action.fail("", data[ev.ERROR_MESSAGE])
                else:
                    action.result = data[ev.RESULT]
            if ev.ERROR_MESSAGE in data:
                after[len(before) - 1] = told(session.advise())
    return Heard(call_log(logged), start, tuple(before), after)


def _call(data: dict[str, Any], before: str) -> Call:
    tool, arguments, error = data[ev.TOOL], data[ev.ARGUMENTS], data.get(ev.ERROR_MESSAGE)
    failure = None if error is None else failure_of(tool, arguments, "", error)
    said = arguments_text(data[ev.RESULT]) if error is None else error
    return Call(tool, arguments_text(arguments), said, failure, before)
