"""Run the relay, one sender and copy of the lore for many agents; and describe its API."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetlore.agent.doors import NamedSessions
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.errors import FleetloreError, InvalidEvent, WordsChanged
from fleetlore.http_server import HttpLimits
from fleetlore.join.hooks import CODING_AGENTS, HookCalls, begins, in_claudes_words
from fleetlore.join.otlp import MAX_SPANS, OTLP_PATHS, Traces, closing_silent, take_export
from fleetlore.kafka.by_relay import MSGPACK, STREAM
from fleetlore.limits import Shares, refusals
from fleetlore.relay import schemas
from fleetlore.relay.api import OPERATIONS, PROBLEM, Api, Operation, answer, body_of, problem
from fleetlore.relay.callers import Caller, Member, Tokens, caller_of, token_of
from fleetlore.relay.gateway import Gateway
from fleetlore.transcripts.codex import logged_run
from fleetlore.wire.decode import read_json
from fleetlore.wire.events import MAX_ID_LENGTH

__all__ = ["openapi", "relay_app"]

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_AGENT = "/agents/{agent}"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_NOT_YOURS = ("foreign_agent", "foreign_tenant")
_MAX_GOAL = 2_000
_MAX_TOOLS = 256
_MOST_AGENTS = 1024
# Lines of a rollout beside a hook of Codex.
_MOST_LINES = 8
# One has at most such a part of the connections.
_CALLERS = 8
_LATER = {"retry-after": "1"}


def relay_app(
    fleets: Mapping[str, Fleet], tokens: Tokens | None = None, providers: Mapping[str, str] | None = None
) -> Starlette:
    """Make the ASGI application. Enter the fleets, one a tenant, before it runs.

    `tokens`: on loopback None, and callers name themselves.
    """
    api, document = Api(fleets), msgspec.json.encode(openapi())

    def known(serve: Callable[[Fleet, Caller, Request], Awaitable[Response]], *, bearer: bool = True) -> Endpoint:
        async def handle(request: Request) -> Response:
            caller = caller_of(request, tokens, bearer=bearer)
            return await serve(api.fleet(caller), caller, request)

        return handle

    async def describe(request: Request) -> Response:
        return Response(document, media_type="application/json")

    hooks = Hooks()

    async def hook(fleet: Fleet, caller: Caller, request: Request) -> Response:
        return JSONResponse(hooks.answer(fleet, caller, request.path_params["client"], await body_of(request)))

    received: dict[tuple[str, str], Traces] = {}

    async def export(fleet: Fleet, caller: Caller, request: Request) -> Response:
        # A token's spans are its agent's.
        key = caller.tenant, caller.agent if caller.sure else ""
        if key not in received:
            limit = max(1, MAX_SPANS // (len(tokens) if tokens else len(fleets)))
            # The relay writes `feedback` under its own login, so a caller's evaluations must not go there.
            received[key] = Traces(fleet, key[1], max_spans=limit, reviewer=partial(Member, fleet))
        return await take_export(received[key], request)

    async def alive(request: Request) -> Response:
        return Response("alive\n")

    async def ready(request: Request) -> Response:
        loaded = all(fleet.replica.loaded for fleet in fleets.values())
        return Response("ready\n" if loaded else "the lore is not here yet\n", 200 if loaded else 503)

    async def metrics(request: Request) -> Response:
        return Response(_exposition(fleets.values(), len(api.sessions)), media_type=_EXPOSITION)

    async def follow(fleet: Fleet, caller: Caller, request: Request) -> Response:
        try:
            found = await api.native.follow(fleet, await body_of(request))
        except asyncio.CancelledError:
            raise HTTPException(503, "this relay ends") from None
        if isinstance(found, bytes):
            return Response(found, media_type=MSGPACK)
        return StreamingResponse(found, headers={"x-accel-buffering": "no"}, media_type=STREAM)

    async def record(fleet: Fleet, caller: Caller, request: Request) -> Response:
        about = request.path_params
        await api.native.record(fleet, caller, about["topic"], about["key"], await body_of(request))
        return Response(status_code=204)

    gateway = Gateway(api.conversations, providers)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with closing_silent(lambda: list(received.values())):
            yield
        api.conversations.leave_all()
        hooks.sessions.leave_all()
        await api.native.close()
        await gateway.close()

    ends = [(each.path, known(partial(answer, api, each)), [each.method]) for each in OPERATIONS]
    for where, provider in (("openai/v1", "openai"), ("anthropic", "anthropic")):
        ends.append((f"/{where}/{{path:path}}", known(partial(gateway.forward, provider), bearer=False), _METHODS))
    # Some clients cannot send our headers.
    named = [Route(before + path, end, methods=methods) for before in ("", _AGENT) for path, end, methods in ends]
    own = {"/v1/hooks/{client}": hook, "/v1/native/follow": follow, "/v1/native/records/{topic}/{key:path}": record}
    own |= dict.fromkeys(OTLP_PATHS, export)
    posts = [Route(path, known(end), methods=["POST"]) for path, end in own.items()]
    # Without tokens, so they name no tenant and no agent.
    probes = {"/livez": alive, "/readyz": ready, "/metrics": metrics, "/v1/openapi.json": describe}
    routes = [*named, *(Route(path, end) for path, end in probes.items()), *posts]
    refused = HTTPException, Exception, FleetloreError, msgspec.DecodeError, ClientDisconnect
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(_FairCallers)] if tokens is not None else (),
        exception_handlers=dict.fromkeys(refused, _refuse),
    )


class _FairCallers:
    """Streams last, and a relay's connections are for all callers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._under_way = app, Counter[str]()
        self._most = HttpLimits().within_open_files().connections // _CALLERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = token_of(Headers(scope=scope)) if scope["type"] == "http" else ""
        if token and self._under_way[token] >= self._most:
            why = problem(429, f"{self._most} requests of this token are under way: end one first", _LATER)
            return await why(scope, receive, send)
        self._under_way[token] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way[token] -= 1
            if not self._under_way[token]:
                del self._under_way[token]


async def _refuse(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException():
            more = {"accepted": accepted} if (accepted := getattr(error, "accepted", 0)) else {}
            return problem(error.status_code, error.detail, error.headers, **more)
        case InvalidEvent():
            return problem(403 if error.reason in _NOT_YOURS else 400, error.detail, reason=error.reason)
        case FleetloreError() | msgspec.DecodeError():
            return problem(409 if isinstance(error, WordsChanged) else 400, str(error))
        case ClientDisconnect():
            return problem(400, "the client went away before its request was whole")
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "this is a bug of the relay; its log has the trace")


class Hooks:
    """Sessions of coding agents. After a silence the next call starts a new part."""

    def __init__(self) -> None:
        self.sessions = NamedSessions(lambda session: self._calls.pop(session).close())
        self._calls: dict[Session, HookCalls] = {}
        # By tenant, agent and client. MCP tools are known after their first call.
        self._tools = Shares[tuple[str, str, str], dict[str, None]](_MOST_AGENTS, "tool_lists")

    def answer(self, fleet: Fleet, caller: Caller, client: str, body: bytes) -> dict[str, Any]:
        if client not in CODING_AGENTS:
            raise HTTPException(404, f"{client!r} is none of {', '.join(CODING_AGENTS)}")
        body, *lines = body.split(b"\n", _MOST_LINES) if client == "codex" else [body]
        try:
            given = in_claudes_words(client, msgspec.convert(read_json(body), dict[str, Any]))
            given = {**given, "runs": [run for line in lines if (run := logged_run(line)) is not None]}
            return self._answer(fleet, caller, client, given)
        except (KeyError, TypeError) as error:
            raise HTTPException(400, f"no hook of {client}: {error!r}") from None

    def _answer(self, fleet: Fleet, caller: Caller, client: str, given: Any) -> dict[str, Any]:
        event, id = given["hook_event_name"], given["session_id"]
        name = "\x1f".join((caller.tenant, caller.agent, client, id))
        if event == "SessionEnd":
            self.sessions.leave(name)
            return {}
        if event == "SessionStart" and name not in self.sessions and not begins(given):
            return {}  # the first prompt is the goal
        goal = str(given.get("prompt", ""))[:_MAX_GOAL]
        begin = partial(Member(fleet, caller.agent).session, goal, "", id, resume=True)
        session = self.sessions.enter(name, begin, caller.share)
        key = caller.tenant, caller.agent, client
        if (tools := self._tools.get(key)) is None:
            tools = dict.fromkeys(CODING_AGENTS[client])
            self._tools.put(caller.share, key, tools)
        tool = str(given.get("tool_name") or "")
        if 0 < len(tool) <= MAX_ID_LENGTH and len(tools) < _MAX_TOOLS:
            tools[tool] = None
        calls = self._calls.setdefault(session, HookCalls(session, tools.keys(), client))
        answer = calls.take(given)
        self.sessions.resize(name, session.size + calls.size)
        return answer


_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def _exposition(fleets: Collection[Fleet], sessions: int) -> str:
    refused = {f'{{reason="{reason}"}}': count for reason, count in sorted(refusals().items())}
    figures = [
        ("sent_events_total", "counter", "Events that the broker has.", {"": sum(each.sent for each in fleets)}),
        ("dropped_events_total", "counter", "Events that were given up.", {"": sum(each.dropped for each in fleets)}),
        ("waiting_events", "gauge", "Events in the buffer.", {"": sum(each.emitter.waiting for each in fleets)}),
        ("open_sessions", "gauge", "Sessions whose state is held.", {"": sessions}),
        ("loaded_tenants", "gauge", "Tenants whose lore is here.", {"": sum(each.replica.loaded for each in fleets)}),
        ("refused_total", "counter", "Requests refused and states forgotten, by reason.", refused),
    ]
    lines = []
    for name, kind, help, samples in figures:
        lines += [f"# HELP fleetlore_relay_{name} {help}", f"# TYPE fleetlore_relay_{name} {kind}"]
        lines += [f"fleetlore_relay_{name}{labels} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


_REF = "#/components/schemas/{name}"
_ABOUT = (
    "Agents in any language record what they do and are told what the fleet knows. Off loopback each request bears "
    "the agent's token. What an agent sends again under the same sequence counts once."
)
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_CLOUDEVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
_HEADERS = "Fleetlore-Agent", "Fleetlore-Tenant"
_NAMED = "On loopback, where no token says it."
_FAILURES = {
    400: "The request is malformed.",
    401: "No known token.",
    403: "Another agent's or tenant's.",
    404: "This relay serves no such tenant.",
    409: "A session that this relay has not seen begin, and no `sequence`. Or words that changed since they were read.",
    413: "The body is too large.",
    429: "The buffer is full: send the request again after Retry-After seconds.",
}
_OF_EVENTS = (409, 429)


def openapi() -> dict[str, Any]:
    used = [each for operation in OPERATIONS for each in (operation.takes, operation.gives)]
    named = {each for each in used if each is not None and _is_struct(each)}
    queries = list(dict.fromkeys(each.query for each in OPERATIONS if each.query is not None))
    kinds = sorted({*named, schemas.Problem}, key=lambda each: each.__name__)
    (event, *_), parts = schemas.components([schemas.CloudEvent, *kinds, *queries], _REF)
    parts["CloudEvent"] = event
    parameters = {each.__name__: parts.pop(each.__name__) for each in queries}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, parameters)
    tokens = {"type": "apiKey", "in": "header", "name": "Fleetlore-Token"}
    told = {PROBLEM: _schema(schemas.Problem)}
    headers = {
        name: {"name": name, "in": "header", "schema": {"type": "string"}, "description": _NAMED} for name in _HEADERS
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "fleetlore relay", "version": "1", "description": _ABOUT, "license": _LICENSE},
        "servers": [{"url": "http://127.0.0.1:7411"}],
        "security": [{}, {"token": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": parts,
            "parameters": headers,
            "responses": {f"Problem{each}": {"description": said, "content": told} for each, said in _FAILURES.items()},
            "securitySchemes": {"token": tokens, "bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, parameters: dict[str, Any]) -> dict[str, Any]:
    gives = operation.gives
    content = {"application/json": _schema(gives)} if _is_struct(gives) else {"text/event-stream": {}}
    others = _OF_EVENTS[1:] if operation.takes is schemas.JudgeRequest else _OF_EVENTS
    statuses = [each for each in _FAILURES if operation.status == 202 or each not in others]
    refused = {str(each): {"$ref": f"#/components/responses/Problem{each}"} for each in statuses}
    made: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "parameters": list(_parameters(operation, parameters)),
        "responses": {str(operation.status): {"description": "Done.", "content": content}} | refused,
    }
    if operation.takes is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": _schema(operation.takes)}}
    elif operation.method == "POST":
        one = {"$ref": _REF.format(name="CloudEvent")}
        contents = {_CLOUDEVENTS[0]: {"schema": one}, _CLOUDEVENTS[1]: {"schema": {"type": "array", "items": one}}}
        said = "In binary mode the attributes are headers `ce-…` and the body is `data`."
        made["requestBody"] = {"required": True, "content": contents, "description": said}
    return made


def _parameters(operation: Operation, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.query is not None:
        for name, schema in known[operation.query.__name__]["properties"].items():
            yield {"name": name, "in": "query", "schema": schema}
    yield from ({"$ref": f"#/components/parameters/{name}"} for name in _HEADERS)


def _schema(kind: type) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(name=kind.__name__)}}


def _is_struct(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct)
