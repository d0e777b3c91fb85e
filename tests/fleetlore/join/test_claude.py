"""Hooks are called with what the SDK's types say that the process of Claude Code sends."""

from collections.abc import Sequence
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk.types import BaseHookInput, StopHookInput, UserPromptSubmitHookInput

from fleetlore import Fleet, Session
from fleetlore.join.claude import fleet_hooks
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import GOAL

BASE = BaseHookInput(session_id="c1", transcript_path="/t", cwd="/")


class Process:
    """Sends what Claude Code sends, to the hooks of the options."""

    def __init__(self, session: Session, tools: Sequence[str] = ()) -> None:
        self._options = ClaudeAgentOptions(hooks=fleet_hooks(session, tools))
        self.denied = False

    async def send(self, given: Any) -> str:
        hooks: Any = self._options.hooks
        said = ""
        for matcher in hooks[given["hook_event_name"]]:
            for hook in matcher.hooks:
                output = (await hook(given, given.get("tool_use_id"), {"signal": None})).get("hookSpecificOutput", {})
                assert not output or output["hookEventName"] == given["hook_event_name"]
                self.denied |= output.get("permissionDecision") == "deny"
                said += output.get("additionalContext", "") + output.get("permissionDecisionReason", "")
        return said

    async def _call(self, event: str, id: str, command: str, **given: Any) -> str:
        about = {**BASE, "agent_id": "", "agent_type": "", "hook_event_name": event, "tool_name": "Bash"}
        return await self.send({**about, "tool_input": {"command": command}, "tool_use_id": id, **given})

    async def before(self, id: str, command: str) -> str:
        return await self._call("PreToolUse", id, command)

    async def after(self, id: str, command: str, response: Any) -> str:
        return await self._call("PostToolUse", id, command, tool_response=response, duration_ms=1500)

    async def failed(self, id: str, command: str, error: str, *, interrupted: bool = False) -> str:
        return await self._call("PostToolUseFailure", id, command, error=error, is_interrupt=interrupted)


async def test_a_client_that_is_resumed_is_a_further_part_of_its_thread(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g", session_id="c1", resume=True) as session:
        ended = Process(session)
        await ended.before("1", "make")
    assert await ended.before("2", "ls") == "" and not recorder.outcomes  # the session has ended, the client has not
    async with fleet.session("g", session_id="c1", resume=True) as session:
        await Process(session).after("1", "make", {"stdout": "done"})
    assert [(each[events.ARGUMENTS], each[events.DURATION]) for each in recorder.outcomes] == [
        ({"command": "make"}, 1.5)
    ]
    assert len({event.session for event in recorder.events}) == 2


async def test_an_interrupt_is_no_failure_and_an_error_in_a_response_is_one(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session:
        process = Process(session)
        await process.before("1", "sleep 60")
        await process.failed("1", "sleep 60", "interrupted", interrupted=True)
        await process.before("3", "sleep 60")
        await process.after("3", "sleep 60", {"stdout": "", "stderr": "", "interrupted": True})
        await process.after("2", "x", {"isError": True, "content": "no such table: cars"})  # begun before the hooks
    [outcome] = recorder.outcomes
    assert recorder.error(outcome) == ("_OTHER", "no such table: cars")


async def test_it_speaks_at_the_prompt_and_records_what_is_said(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session(GOAL, task="look") as session:
        process = Process(session)
        prompt = UserPromptSubmitHookInput(**BASE, hook_event_name="UserPromptSubmit", prompt="Look around.")
        told = await process.send(prompt)
        assert told.startswith(session.introduction) and "Look into /srv first" in told
        assert await process.send(prompt) == ""  # it was said
        assert await process.before("1", "ls") == ""
        stop = StopHookInput(
            **BASE, hook_event_name="Stop", stop_hook_active=False, last_assistant_message="As it says."
        )
        assert await process.send(stop) == ""
    said = [event.data[events.CONTENT] for event in recorder.events if event.kind == "message"]
    assert said == ["Look around.", "Look around.", "As it says."]
