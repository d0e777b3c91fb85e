"""A local server that speaks as the providers do, OpenAI's two APIs and Anthropic's, for a model that is given."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

# What a model chooses to search in, by the messages that it was sent; None where it is done.
Choose = Callable[..., str | None]


class Provider:
    """Serves `/v1/chat/completions`, `/v1/responses` and `/v1/messages` (that also where Azure and Google have it),
    streamed or not.

    Args:
        tool: name of the tool that the model calls. `namespace`: of it, by the responses API.

    Attributes:
        headers: of the requests; bodies: of them, as they came.
    """

    def __init__(self, choose: Choose, tool: str = "search", namespace: str = "") -> None:
        self._tool = tool
        self._space = {"namespace": namespace} if namespace else {}
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self._choose = choose
        self._numbers = count(1)
        # By id of the response: what was said up to it.
        self._stored: dict[str, list[Any]] = {}
        paths = {"chat/completions": self._chat, "responses": self._responses, "messages": self._messages}
        routes = [Route(f"/v1/{path}", self._serve(answer), methods=["POST"]) for path, answer in paths.items()]
        for path in ("v1/anthropic/v1/messages", "{path:path}:rawPredict", "{path:path}:streamRawPredict"):
            routes.append(Route(f"/{path}", self._serve(self._messages), methods=["POST"]))
        self.app = Starlette(routes=[*routes, Route("/v1/{path:path}", self._echo, methods=["GET", "POST"])])

    async def _echo(self, request: Request) -> Response:
        await self._note(request)
        return Response(self.bodies[-1], 418, {"x-path": f"{request.url.path}?{request.url.query}"})

    async def _note(self, request: Request) -> None:
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.body())

    def _serve(self, answer: Any) -> Any:
        async def serve(request: Request) -> Response:
            await self._note(request)
            try:
                body = json.loads(self.bodies[-1])
                whole, events = answer(body)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                return JSONResponse({"error": {"message": repr(error), "type": "invalid_request_error"}}, 400)
            if not body.get("stream"):
                return JSONResponse(whole)
            return Response(b"".join(events), media_type="text/event-stream")

        return serve

    def _chat(self, body: Any) -> tuple[Any, Iterator[bytes]]:
        index, number = self._choose(*body["messages"]), next(self._numbers)
        made = {"name": self._tool, "arguments": json.dumps({"index": index})}
        call = {"id": f"call_{number}", "type": "function", "function": made}
        said = {"content": "done"} if index is None else {"tool_calls": [call], "content": None}
        reason = "stop" if index is None else "tool_calls"
        about = {"id": f"chat_{number}", "created": 1, "model": "m"}
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": reason}

        def events() -> Iterator[bytes]:
            deltas: list[Any] = [{"role": "assistant", "content": "done" if index is None else None}]
            if index is not None:
                begun = call | {"index": 0, "function": made | {"arguments": ""}}
                deltas.append({"tool_calls": [begun]})
                for each in made["arguments"]:
                    deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": each}}]})
            for delta in deltas:
                one = {"index": 0, "delta": delta, "finish_reason": None}
                yield _data(about | {"object": "chat.completion.chunk", "choices": [one]})
            end = {"index": 0, "delta": {}, "finish_reason": reason}
            yield _data(about | {"object": "chat.completion.chunk", "choices": [end]})
            yield b"data: [DONE]\n\n"

        return about | {"object": "chat.completion", "choices": [choice]}, events()

    def _responses(self, body: Any) -> tuple[Any, Iterator[bytes]]:
        given = body["input"]
        given = [given] if isinstance(given, str) else given
        items = [*self._stored.get(body.get("previous_response_id"), []), *given]
        index, number = self._choose(body.get("instructions", ""), *items), next(self._numbers)
        if index is None:
            part = {"type": "output_text", "text": "done", "annotations": []}
            item: Any = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed"}
            item["content"] = [part]
        else:
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": self._tool}
            item |= {"arguments": json.dumps({"index": index}), "status": "completed", **self._space}
        whole = {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m", "status": "completed",
            "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": body.get("tools", []),
        }  # fmt: skip
        self._stored[f"resp_{number}"] = [*items, item]

        def events() -> Iterator[bytes]:
            empty = whole | {"output": [], "status": "in_progress"}
            steps: list[Any] = [{"type": "response.created", "response": empty}]
            steps.append({"type": "response.output_item.added", "output_index": 0, "item": item})
            steps.append({"type": "response.output_item.done", "output_index": 0, "item": item})
            steps.append({"type": "response.completed", "response": whole})
            for sequence, step in enumerate(steps):
                yield _data(step | {"sequence_number": sequence}, step["type"])

        return whole, events()

    def _messages(self, body: Any) -> tuple[Any, Iterator[bytes]]:
        system = body.get("system") or []
        parts = [system] if isinstance(system, str) else system
        index, number = self._choose(*parts, *body["messages"]), next(self._numbers)
        text = {"type": "text", "text": "done"}
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": self._tool, "input": {"index": index}}
        usage = {"input_tokens": 1, "output_tokens": 1}
        about = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        reason = "end_turn" if index is None else "tool_use"
        block = text if index is None else call

        def events() -> Iterator[bytes]:
            begun: Any = text | {"text": ""} if index is None else call | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
            delta = {"type": "text_delta", "text": "done"} if index is None else delta
            steps: list[Any] = [
                {"type": "message_start", "message": about | {"content": [], "stop_reason": None}},
                {"type": "content_block_start", "index": 0, "content_block": begun},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
                {"type": "message_stop"},
            ]
            for step in steps:
                yield _data(step, step["type"])

        return about | {"content": [block], "stop_reason": reason}, events()


def _data(value: Any, kind: str = "") -> bytes:
    return (f"event: {kind}\n" if kind else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"
