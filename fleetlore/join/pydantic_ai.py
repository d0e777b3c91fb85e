"""Join pydantic-ai agents.

agent = Agent(model, capabilities=[FleetLore()])
async with fleet.session(goal) as session:
    await agent.run(goal)
"""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from pydantic_ai import ToolReturn, exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, SkipToolExecution, ToolRetryError

from fleetlore.agent.action import current_session
from fleetlore.agent.doors import after_call, joined, prompt_prefix
from fleetlore.agent.session import Session
from fleetlore.calls.call import mcp_name
from fleetlore.transcripts.calls import json_or_text

__all__ = ["FleetLore"]

# Absent from 1.x.
_FAILED = getattr(exceptions, "ToolFailed", None)
_FAILED_ERROR = getattr(exceptions, "ToolFailedError", ())
_REFUSED = ("unknown_tool", "unavailable_tool")
_REFUSALS = (ValidationError, ModelRetry, *filter(None, [_FAILED]))


class FleetLore(AbstractCapability[Any]):
    def get_instructions(self) -> Callable[[Any], str | None]:
        return _prefix

    async def wrap_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """A call whose arguments are refused is never executed."""
        try:
            return await handler(args)
        except _REFUSALS as error:
            session = current_session()
            if session is not None and tool_def.kind != "output":
                _refused(session, _name(tool_def), args, call, error)
            raise

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Record calls of unknown tools: nobody validates them, and the next request tells the model."""
        session, messages = current_session(), request_context.messages
        if session is None or not messages:
            return request_context
        parts = [part for each in messages[-2:] for part in each.parts]
        made = {part.tool_call_id: part for part in parts if part.part_kind == "tool-call"}
        for part in messages[-1].parts:
            if part.part_kind in ("tool-return", "retry-prompt") and (call := made.get(part.tool_call_id)) is not None:
                # 1.x has no `retry`.
                is_unknown = str(part.content).startswith(f"Unknown tool name: {call.tool_name!r}")
                if is_unknown or getattr(getattr(part, "retry", None), "cause", "") in _REFUSED:
                    _refused(session, call.tool_name, call.args, call, part.content)
        return request_context

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        session = current_session()
        if session is None:
            return await handler(args)
        session.know_as({_name(tool_def): tool_def.name})
        if (held := session.hold(_name(tool_def), args)) is not None:
            if _FAILED is None:
                return held.text
            raise _FAILED(held.text)  # a `ModelRetry` would use up a retry
        with session.action(_name(tool_def), args, call_id=call.tool_call_id) as action:
            try:
                result = await handler(args)
                action.returned(result.return_value if isinstance(result, ToolReturn) else result)
            except (ApprovalRequired, CallDeferred, SkipToolExecution):
                action.abandon()  # deferred
                raise
            except ToolRetryError as error:  # from a `ModelRetry` of the tool
                action.end(error_text=str(error.tool_retry.content))
                _advise(session, error.tool_retry)
                raise
            except _FAILED_ERROR as error:
                action.end(error_text=str(error))
                _advise(session, error.tool_failed)
                raise
            except exceptions.UnexpectedModelBehavior as error:  # after the last retry
                if isinstance(error.__cause__, ModelRetry) and repr(tool_def.name) in str(error):
                    action.end(error_text=str(error.__cause__))
                raise
        if not isinstance(result, str):
            return result
        return joined(result, after_call(session, failed=action.error is not None))


def _refused(session: Session, tool: str, arguments: Any, call: Any, why: object) -> None:
    given, id = json_or_text(arguments), call.tool_call_id
    session.record(tool, given, error_text=str(why), duration_seconds=0.0, call_id=id)


def _prefix(ctx: Any) -> str | None:
    session = current_session()
    if session is None:
        return None
    # A run that is resumed in another process, as in Temporal, does not know its tools.
    tools = [] if ctx.tool_manager is None else ctx.tool_manager.tool_defs
    names = {_name(each): each.name for each in tools if each.kind != "output"}
    session.know_as(names)
    return prompt_prefix(session, list(names))


def _name(tool_def: Any) -> str:
    """Only toolsets of MCP servers describe their tools by these two. 1.x does not say which server it is."""
    is_mcp = {"meta", "annotations"} <= (tool_def.metadata or {}).keys()
    return mcp_name(getattr(tool_def, "toolset_id", "") or "", tool_def.name) if is_mcp else str(tool_def.name)


def _advise(session: Session, answer: Any) -> None:
    if isinstance(answer.content, str):
        answer.content = joined(answer.content, after_call(session, failed=True))
