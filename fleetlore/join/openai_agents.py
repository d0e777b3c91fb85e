"""Join agents of the OpenAI Agents SDK.

    @function_tool
    def search(query: str) -> str: ...

    async with fleet.session(goal) as session:
        await Runner.run(agent, goal, run_config=RunConfig(call_model_input_filter=tell))

The SDK's hooks do not see that a call failed, so it is recorded where the text of its exception is made.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import agents
from agents.run import CallModelData, ModelInputData
from agents.tool import invoke_function_tool
from agents.tool_context import ToolContext

from fleetlore.agent.action import OPEN_ACTION, current_session
from fleetlore.agent.doors import after_call, joined, prompt_prefix
from fleetlore.transcripts.calls import json_or_text

__all__ = ["function_tool", "tell"]


def function_tool(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`agents.function_tool`, with the same options, that records calls in the current session."""
    if function is None:
        return lambda given: function_tool(given, **options)
    explain = options.pop("failure_error_function", agents.default_tool_error_function)
    timed_out = options.pop("timeout_error_function", None) or (lambda _, error: str(error))
    made = agents.function_tool(
        function,
        failure_error_function=explain and _noting(explain),
        timeout_error_function=_noting(timed_out),
        **options,
    )

    async def recorded(context: ToolContext[Any], arguments: str) -> Any:
        session = current_session()
        if session is None:
            return await invoke_function_tool(function_tool=made, context=context, arguments=arguments)
        given, id = json_or_text(arguments or "{}"), context.tool_call_id
        if (held := session.hold(made.name, given)) is not None:
            return held.text
        with session.action(made.name, given, call_id=id) as action:
            result = await invoke_function_tool(function_tool=made, context=context, arguments=arguments)
            action.returned(result)
        if not isinstance(result, str):
            return result
        return joined(result, after_call(session, failed=action.error is not None))

    # The SDK's own timeout would cancel the recording.
    return replace(made, on_invoke_tool=recorded, timeout_seconds=None)


def _noting(explain: Callable[[Any, Exception], Any]) -> Callable[[Any, Exception], Any]:
    def failed(context: Any, error: Exception) -> Any:
        if (action := OPEN_ACTION.get()) is not None:
            action.raised = error
        return explain(context, error)

    return failed


def tell(data: CallModelData[Any]) -> ModelInputData:
    """Advise the model in each turn."""
    session = current_session()
    if session is None:
        return data.model_data
    prefix = prompt_prefix(session, [each.name for each in data.agent.tools])
    return ModelInputData(data.model_data.input, joined(data.model_data.instructions, prefix))
