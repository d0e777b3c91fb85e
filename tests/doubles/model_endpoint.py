"""A server that speaks the OpenAI protocol, as far as a judge needs it: chat completions with structured output, token
counts, and the ways in which such endpoints fail. The test sets the answers. Requests are checked like
OpenAI checks them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

TOKEN_CHARACTERS = 4


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a text, from a status of 400 on the message of an error, or `raw` bytes. `counted`: it has a usage."""

    content: str = ""
    status: int = 200
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    counted: bool = True


Model = Callable[[dict[str, Any]], Reply | str | dict[str, Any]]


class ModelEndpoint:
    """Runs in a thread while it is entered, on a port of 127.0.0.1.

    `model` gives the answer to a request: a `Reply`, a text, or an object that is sent as JSON. Without a `key` any is
    taken. `requests` are the bodies of all, and `most_at_once` counts those that were answered at the same time.
    """

    def __init__(self, model: Model, *, key: str = "") -> None:
        self.model = model
        self.key = key
        self.forms: tuple[str, ...] = ("text", "json_object", "json_schema")  # of an answer, which it knows
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._left = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint.serve(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base URL, as a client wants it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._left.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = orjson.loads(handler.rfile.read(int(handler.headers.get("content-length", 0))))
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            reply = self._reply(handler, request)
            self._left.wait(reply.seconds)
        finally:
            with self._lock:
                self._at_once -= 1
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has stopped waiting
            self._send(handler, request, reply)

    def _reply(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> Reply:
        if handler.path != "/v1/chat/completions":
            return Reply(f"no such path: {handler.path}", 404)
        if self.key and handler.headers.get("authorization") != f"Bearer {self.key}":
            return Reply("Incorrect API key provided", 401)
        fault = _fault(request, self.forms)
        if fault:
            return Reply(fault, 400)
        answer = self.model(request)
        if isinstance(answer, Reply):
            return answer
        return Reply(answer if isinstance(answer, str) else orjson.dumps(answer).decode())

    def _send(self, handler: BaseHTTPRequestHandler, request: dict[str, Any], reply: Reply) -> None:
        body = reply.raw if reply.raw is not None else orjson.dumps(_body(request, reply))
        handler.send_response(reply.status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


def _body(request: dict[str, Any], reply: Reply) -> dict[str, Any]:
    if reply.status >= 400:
        return {"error": {"message": reply.content, "type": "invalid_request_error", "param": None, "code": None}}
    asked = sum(len(message["content"]) for message in request["messages"]) // TOKEN_CHARACTERS
    said = len(reply.content) // TOKEN_CHARACTERS + 1
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply.content}}],
    }
    if reply.counted:
        body["usage"] = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
    return body


def _fault(request: dict[str, Any], forms: tuple[str, ...]) -> str:
    """Return the error message for a request, in the words of such endpoints, or "" if it is valid."""
    if not isinstance(request.get("model"), str) or not request.get("messages"):
        return "you must provide a model and messages"
    if any(message["role"] not in ("system", "user", "assistant") for message in request["messages"]):
        return "messages: unknown role"
    wanted = request.get("response_format", {"type": "text"})
    if wanted["type"] not in forms:
        return f"response_format.type {wanted['type']!r} is not supported"
    if wanted["type"] == "json_object" and "json" not in str(request["messages"]).lower():
        return "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'"
    if wanted["type"] == "json_schema":
        named = wanted["json_schema"]
        if not named.get("name", "").replace("-", "").replace("_", "").isalnum():
            return "response_format.json_schema.name: letters, digits, '_' and '-' only"
        if named.get("strict"):
            return _loose(named["schema"])
    return ""


def _loose(schema: dict[str, Any]) -> str:
    """Strict output wants every object closed and every property required."""
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            return (
                "Invalid schema for response_format: 'additionalProperties' is required to be supplied and to be false"
            )
        if set(schema.get("required", ())) != set(schema["properties"]):
            return "Invalid schema for response_format: 'required' must include every key in properties"
        return next(filter(None, map(_loose, schema["properties"].values())), "")
    return _loose(schema["items"]) if schema.get("type") == "array" else ""
