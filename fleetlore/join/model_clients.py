"""Join agents that call a model through the SDK of OpenAI or Anthropic.

    client = wrap_openai(OpenAI())
    with fleet.session(goal):
        client.chat.completions.create(…)

Requests are read where the SDKs let subclasses change them: streams, parsed and raw answers, and copies of the client
(`with_options`) are joined, too.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from fleetlore.join.conversations import Conversation, SessionCalls
from fleetlore.join.dialects import ANTHROPIC_MESSAGES, CHAT_COMPLETIONS, RESPONSES

__all__ = ["wrap_anthropic", "wrap_openai"]

Client = TypeVar("Client")

_READ = {"/chat/completions": CHAT_COMPLETIONS, "/responses": RESPONSES, "/v1/messages": ANTHROPIC_MESSAGES}
# The SDK copies a request's options and returns them with the answer.
_CONVERSATION = "_fleetlore_conversation"


def wrap_openai(client: Client) -> Client:
    """Join an `OpenAI` or `AsyncOpenAI` (Azure's too), and return it, for `chat.completions` and `responses`."""
    return _joined(client)


def wrap_anthropic(client: Client) -> Client:
    """Join an `Anthropic` or `AsyncAnthropic`, for requests of `messages` and `beta.messages`."""
    return _joined(client)


def _joined(client: Client) -> Client:
    kind: Any = type(client)
    if not hasattr(kind, "_fleetlore"):
        joined = _subclass(kind)
        joined._fleetlore = SessionCalls()
        # Some of the SDK's methods tell clients apart by it.
        joined.__name__ = joined.__qualname__ = kind.__name__
        client.__class__ = joined
    return client


def _subclass(kind: Any) -> Any:
    is_async = iscoroutinefunction(kind._prepare_options)
    name, heard = "aiter_bytes" if is_async else "iter_bytes", cast(Any, _aheard if is_async else _heard)

    class Joined(kind):  # type: ignore[misc]
        """Of an asynchronous client, these methods return the coroutines of their bases."""

        def _prepare_options(self, options: Any) -> Any:
            return super()._prepare_options(_told(self._fleetlore, options))

        def _process_response(self, *, options: Any, response: Any, **more: Any) -> Any:
            if (hear := _hearing(self._fleetlore, options, response)) is not None:
                setattr(response, name, heard(getattr(response, name), hear))
            return super()._process_response(options=options, response=response, **more)

    return Joined


def _told(calls: SessionCalls, options: Any) -> Any:
    dialect = _READ.get(options.url.partition("?")[0])
    if dialect is None or options.method.lower() != "post" or not isinstance(options.json_data, dict):
        return options
    options.json_data, conversation = calls.told(dialect, options.json_data)
    object.__setattr__(options, _CONVERSATION, conversation)
    return options


def _hearing(calls: SessionCalls, options: Any, response: Any) -> Callable[[list[bytes]], None] | None:
    conversation: Conversation | None = getattr(options, _CONVERSATION, None)
    if conversation is None:
        return None

    def hear(parts: list[bytes]) -> None:
        calls.heard(conversation, b"".join(parts))

    if not response.is_closed:
        return hear
    hear([response.content])
    return None


def _heard(parts: Callable[..., Iterator[bytes]], hear: Callable[[list[bytes]], None]) -> Any:
    def passed(*args: Any) -> Iterator[bytes]:
        kept: list[bytes] = []
        try:
            for part in parts(*args):
                kept.append(part)
                yield part
        finally:  # a client may stop reading
            hear(kept)

    return passed


def _aheard(parts: Callable[..., AsyncIterator[bytes]], hear: Callable[[list[bytes]], None]) -> Any:
    async def passed(*args: Any) -> AsyncIterator[bytes]:
        kept: list[bytes] = []
        try:
            async for part in parts(*args):
                kept.append(part)
                yield part
        finally:
            hear(kept)

    return passed
