"""Forward model requests to their provider, record their tool calls, and add the fleet's advice.

Requests that cannot be parsed, or cause an error here, pass unchanged.
"""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextvars import copy_context
from functools import cached_property
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import quote, unquote

import httpx2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.errors import ConfigError
from fleetlore.join.conversations import Conversation, Conversations
from fleetlore.join.dialects import ANTHROPIC_MESSAGES, CHAT_COMPLETIONS, RESPONSES, Body, Dialect
from fleetlore.join.mcp.http_proxy import send_on, upstream_client
from fleetlore.limits import refused
from fleetlore.relay.api import body_of
from fleetlore.relay.callers import OWN_HEADERS, Caller, Member, in_utf8
from fleetlore.wire.decode import encoding_of, read_json, rewritten, unpacked

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

_PROVIDERS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_READ: dict[tuple[str, str], Dialect] = {
    ("openai", "chat/completions"): CHAT_COMPLETIONS,
    ("openai", "responses"): RESPONSES,
    ("anthropic", "v1/messages"): ANTHROPIC_MESSAGES,
}
# Requests may hold images.
_MAX_BODY = 64 * 1024 * 1024
# Searched for its id and calls.
_MAX_ANSWER = 4 * 1024 * 1024
_CONNECT_SECONDS = 10.0
_MAX_GOAL = 2_000
_IN_PATHS = "/:@!$&'()*+,;=~"
_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"}
_HOP |= {"upgrade", "host", "date", "server"}


class About(NamedTuple):
    name: str = ""
    goal: str = ""
    task: str = ""
    place: str = ""


def tell(
    conversations: Conversations, fleet: Fleet, agent: str, dialect: Dialect, body: Body, about: About
) -> Conversation | None:
    def begin(said: str) -> Session:
        session = Member(fleet, agent).session(
            (about.goal or said)[:_MAX_GOAL], about.task, about.name or None, place=about.place, resume=bool(about.name)
        )
        return copy_context().run(session.__enter__)  # not the current session here

    owner, now = (fleet.tenant, agent), fleet.clock.monotonic()
    return conversations.tell(owner, dialect, body, begin, now, name=about.name)


class Gateway:
    def __init__(self, conversations: Conversations, providers: Mapping[str, str] | None = None) -> None:
        self._conversations = conversations
        self._providers = {name: url.rstrip("/") for name, url in {**_PROVIDERS, **(providers or {})}.items()}

    @cached_property
    def _client(self) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        return upstream_client(limits=limits, timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS))

    async def close(self) -> None:
        if "_client" in vars(self):
            await self._client.aclose()

    async def forward(self, provider: str, fleet: Fleet, caller: Caller, request: Request) -> Response:
        path, body = request.path_params["path"], await body_of(request, _MAX_BODY)
        if _leaves_folder(path):
            raise HTTPException(
                400, "this path cannot be forwarded: it holds `.` or `..` as a segment, or is not UTF-8"
            )
        dialect = _READ.get((provider, path)) if request.method == "POST" else None
        conversation: Conversation | None = None
        dropped = _HOP | {name for name in request.headers if name.startswith(OWN_HEADERS)}
        if dialect is not None:
            body, conversation = self._told(fleet, caller, dialect, body, request)
            dropped |= set() if conversation is None else {"content-encoding"}  # a changed body goes on unpacked
        url = f"{self._providers[provider]}/{quote(path, safe=_IN_PATHS)}"
        if request.url.query:
            url += f"?{request.url.query}"
        try:
            answer = await send_on(self._client, request, url, body, dropped)
        except httpx2.InvalidURL as error:
            raise HTTPException(400, f"this path cannot be forwarded: {error}") from None
        except (httpx2.HTTPError, ConfigError) as error:
            said = f"{self._providers[provider]} cannot be reached: {error}"
            return JSONResponse({"error": {"message": said, "type": "provider_away"}}, 502)
        passed = _Passed(self._passed(answer, dialect, conversation), answer.status_code)
        passed.raw_headers = [
            (name.lower(), value) for name, value in answer.headers.raw if name.lower().decode("latin-1") not in _HOP
        ]
        return passed

    def _told(
        self, fleet: Fleet, caller: Caller, dialect: Dialect, body: bytes, request: Request
    ) -> tuple[bytes, Conversation | None]:
        names = ("session", "goal", "task", "place")
        try:
            about = About(*(in_utf8(request.headers, f"{OWN_HEADERS}{name}") for name in names))
            plain = unpacked(body, encoding_of(request.headers), _MAX_BODY)
            asked = read_json(plain)
            conversation = tell(self._conversations, fleet, caller.agent, dialect, asked, about)
            return (body, None) if conversation is None else (rewritten(plain, asked), conversation)
        except Exception as error:
            refused("unread_request", f"a request of agent {caller.agent!r} passes unread: {error!r}")
            return body, None

    async def _passed(
        self, answer: httpx2.Response, dialect: Dialect | None, conversation: Conversation | None
    ) -> AsyncIterator[bytes]:
        kept, size = [], 0
        try:
            async for part in answer.aiter_raw():
                yield part
                if dialect is RESPONSES and size < _MAX_ANSWER:
                    kept.append(part)
                    size += len(part)
            if conversation is not None and answer.is_success:
                try:
                    self._conversations.heard(conversation, b"".join(kept))
                except Exception as error:
                    agent = conversation.session.fleet.agent
                    refused("unread_answer", f"an answer to agent {agent!r} passes unread: {error!r}")
        finally:
            await answer.aclose()


def _leaves_folder(path: str) -> bool:
    """Servers decode paths differently, so every reading must stay below the address."""
    while True:
        plain = "".join(filter(str.isprintable, normalize("NFKC", path))).replace(" ", "")
        segments = re.split(r"[/\\?#]", plain)
        if "\ufffd" in plain or any(segment.partition(";")[0] in (".", "..") for segment in segments):
            return True
        decoded = unquote(re.sub("%u00", "%", path, flags=re.IGNORECASE))
        if decoded == path:
            return False
        path = decoded


class _Passed(StreamingResponse):
    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except httpx2.HTTPError as error:
            log.warning("a provider's answer was cut off: %s", error)
