"""Join agents that call their models through LiteLLM.

    litellm.callbacks.append(FleetCallback())
    with fleet.session(goal):
        litellm.completion(…)

A callback can change an asynchronous request. A blocking one shows it the body in the provider's form, which is read if
it is OpenAI's or Anthropic's.
"""

from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from fleetlore.join.conversations import SessionCalls
from fleetlore.join.dialects import ANTHROPIC_MESSAGES, CHAT_COMPLETIONS, RESPONSES

__all__ = ["FleetCallback"]

_READ = {"acompletion": CHAT_COMPLETIONS, "aresponses": RESPONSES, "anthropic_messages": ANTHROPIC_MESSAGES}
_BODY = ("messages", "system", "tools", "input", "instructions", "prompt", "previous_response_id", "conversation")
_BLOCKING = {"completion": CHAT_COMPLETIONS, "responses": RESPONSES}
_ANTHROPIC = "anthropic"


class FleetCallback(CustomLogger):
    def __init__(self) -> None:
        super().__init__()
        self._calls = SessionCalls()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        dialect = _READ.get(getattr(call_type, "value", ""))
        if dialect is None:
            return None
        body = {name: _plain(kwargs[name]) for name in _BODY if kwargs.get(name) is not None}
        told, conversation = self._calls.told(dialect, body)
        return None if conversation is None else {**kwargs, **told}

    def log_pre_api_call(self, model: str, messages: Any, kwargs: dict[str, Any]) -> None:
        dialect = _BLOCKING.get(kwargs.get("call_type", ""))
        body = kwargs.get("additional_args", {}).get("complete_input_dict")
        if dialect is None or not isinstance(body, dict) or not {"messages", "input"} & body.keys():
            return
        # Claude at Azure and Google also has Anthropic's form.
        tools = body.get("tools") or ()
        if (
            kwargs.get("custom_llm_provider") == _ANTHROPIC
            or "anthropic_version" in body
            or any("input_schema" in each for each in tools)
        ):
            dialect = ANTHROPIC_MESSAGES
        body.update(self._calls.told(dialect, body)[0])


def _plain(value: Any) -> Any:
    """Agents put LiteLLM's answers among the messages."""
    if not isinstance(value, list):
        return value
    return [each.model_dump(exclude_none=True) if hasattr(each, "model_dump") else each for each in value]
