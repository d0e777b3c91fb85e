"""The relay: its HTTP API, the gateway for models, the hooks of coding agents and the frames of native agents."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import orjson
from aiokafka import ConsumerRecord, TopicPartition

from fleetlore.join.hooks import CODING_AGENTS
from fleetlore.kafka.by_relay import LORE
from fleetlore.limits import refusals
from fleetlore.relay.app import openapi, relay_app
from fleetlore.wire.topics import ADAPTER_TOPICS
from tests.fleetlore.relay.test_api import ENDED, FAILED, STARTED, WORKED, WRONG, event
from tests.fuzz.asgi import Answer, Asked, ask, size
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, changed, json_of, mutated, text, value
from tests.fuzz.worker import Worker, fleet_of
from tests.served import serving

# Answers that the pages of the API promise: whatever else comes is a fault.
_PROMISED = {200, 202, 204, 400, 401, 403, 404, 405, 409, 413, 429}
_AT_ONCE = 50
_TOKENS = (b"fleetlore-agent", b"fleetlore-tenant", b"fleetlore-token", b"authorization", b"fleetlore-session",
           b"fleetlore-goal", b"fleetlore-task", b"fleetlore-place", b"content-type", b"content-encoding",
           b"ce-specversion", b"ce-sequence", b"ce-time", b"x-forwarded-for", b"te", b"expect", b"host")  # fmt: skip
_BODIES: dict[str, Any] = {
    "/v1/events": [STARTED, FAILED, WORKED, ENDED],
    "/v1/advise": {"session": "s1", "goal": "find a chair", "tool": "search", "arguments": WRONG, "hold": True},
    "/v1/brief": {"session": "s1", "goal": "find a chair", "tools": ["search"]},
    "/v1/sessions/s1/end": {"outcome": "success", "reward": 1.0, "sequence": 4},
    "/v1/lore": None,
    "/v1/stream": None,
    "/v1/health": None,
    "/v1/openapi.json": None,
}
_QUERIES = ("wait", "whole", "show", "tool", "level", "kind", "text", "limit")
_TOOL = {"name": "search", "description": "find", "parameters": {"type": "object"}}
_MODELS: dict[str, Any] = {
    "/openai/v1/chat/completions": {
        "model": "m", "tools": [{"type": "function", "function": _TOOL}],
        "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "find"}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"index":"products"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "LookupError: index products does not exist"},
        ],
    },
    "/openai/v1/responses": {
        "model": "m", "instructions": "Be kind.", "tools": [{"type": "function", **_TOOL}],
        "input": [
            {"role": "user", "content": "find"},
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"index":"products"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "LookupError: index products does not exist"},
        ],
    },
    "/anthropic/v1/messages": {
        "model": "m", "max_tokens": 9, "system": "Be kind.", "tools": [{"name": "search", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "find"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "search", "input": {"index": "p"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": "no"}]},
        ],
    },
}  # fmt: skip
_RECORDED = Path(__file__).parents[1] / "fleetlore/relay/recorded/claude-code-2.1.332.jsonl"
_HOOKS = [orjson.loads(line) for line in _RECORDED.read_bytes().splitlines()]
_CURSOR = {"conversation_id": "c", "hook_event_name": "postToolUse", "tool_name": "Shell", "tool_use_id": "t1",
           "tool_input": {"command": "ls"}, "tool_output": '{"exitCode": 1, "output": "no"}',
           "duration": 12}  # fmt: skip
_CODEX = {"session_id": "c1", "turn_id": "t", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "1",
          "tool_input": {"command": "ls"}, "tool_response": "Process exited with code 1\nls: no"}  # fmt: skip


def _headers(random: Random) -> tuple[tuple[bytes, bytes], ...]:
    made = [(b"fleetlore-agent", b"a1")]
    for _ in range(random.randrange(3) if chance(random, 3) else 0):
        content = random.choice((text(random).encode("utf-8", "replace"), b"1.0", b"3", b"9" * 5_000, b"gzip"))
        made.append((random.choice(_TOKENS), bytes(each for each in content if each > 0x1F and each != 0x7F).strip()))
    return tuple(made)


def _quoted(random: Random, safe: str = "/") -> str:
    return quote(text(random).encode("utf-8", "replace"), safe)


def _path(random: Random, path: str) -> bytes:
    if chance(random, 10):
        path = f"/agents/{_quoted(random)}{path}"
    if chance(random, 10):
        path = path.replace("s1", _quoted(random, ""))
    query = "&".join(f"{random.choice(_QUERIES)}={quote(str(value(random, 0)).encode('utf-8', 'replace'))}"
                     for _ in range(random.randrange(3)))  # fmt: skip
    return f"{path}?{query}".encode() if query else path.encode()


def _ask(random: Random, path: str, body: Callable[[Random], bytes], methods: Sequence[str]) -> Asked:
    return Asked(random.choice(methods), _path(random, path), _headers(random), any_bytes(random, body))


def make_request(random: Random) -> Asked:
    if chance(random, 8):
        path, valid = random.choice(list(_MODELS.items()))
        return _ask(random, path, lambda random: json_of(random, valid), ("POST",))
    path, valid = random.choice(list(_BODIES.items()))
    if path == "/v1/events" and chance(random, 2):  # one event alone
        kind = random.choice(("session.started", "action", "outcome", "message", "session.ended", "feedback"))
        valid = event(kind, text(random), random.randrange(3), **FAILED["data"])
    methods = ("POST",) * 9 if valid is not None else ("GET",) * 9
    return _ask(random, path, lambda random: json_of(random, valid or {}), (*methods, "PUT"))


def make_hook(random: Random) -> Asked:
    client = random.choice(list(CODING_AGENTS)) if not chance(random, 40) else _quoted(random)
    valid = random.choice((*_HOOKS, _CURSOR, _CODEX))
    body = any_bytes(random, lambda random: json_of(random, valid))
    return Asked("POST", f"/v1/hooks/{client}".encode(), _headers(random), body)


def make_frame(random: Random) -> Asked:
    match random.randrange(4):
        case 0:
            begun = [STARTED | {"sequence": 0}]
            return _ask(random, "/v1/events?whole=1&wait=0", lambda random: json_of(random, begun), ("POST",))
        case 1:
            name = random.choice(("adapters.acks", "events", _quoted(random)))
            valid = {"agent": "a1", "version": "v", "result": "ok"}
            path = f"/v1/native/records/{name}/{_quoted(random, '')}"
            return Asked("POST", path.encode(), _headers(random), any_bytes(random, lambda r: json_of(r, valid)))
        case _:
            return Asked("POST", b"/v1/native/follow", _headers(random), any_bytes(random, _following))


def _following(random: Random) -> bytes:
    topics = random.choice((LORE, ADAPTER_TOPICS))
    positions = {topics[0]: {0: random.choice((0, 1, 2**63, -1))}}
    asked: Any = {"topics": topics, "positions": positions, "wait": random.choice((0, 0.001, float("nan")))}
    if chance(random, 2):
        asked = changed(random, asked | {"positions": {topics[0]: {"0": 1}}}, 1)
    try:
        packed = msgspec.msgpack.encode(asked)
    except (OverflowError, UnicodeEncodeError):
        packed = b"\xc1"
    return mutated(random, packed) if chance(random, 2) else packed


_openapi, _tls = cache(openapi), cache(ssl.create_default_context)


class _Broker:
    """Stands in for what reads and writes topics: one record of each topic is there, and everything is taken."""

    connected = True

    def __init__(self, _: Any, topics: Sequence[str] = (), take: Any = None, **__: Any) -> None:
        self._topics, self._take = topics, take

    async def run(self) -> None:
        for each in self._topics:
            record = ConsumerRecord(each, 0, 0, 0, 0, b"k", b"v", None, 1, 1, ())
            await self._take({TopicPartition(each, 0): [record]})
        await asyncio.Event().wait()

    async def caught_up(self, timeout_seconds: float | None) -> bool:
        return True

    async def start(self) -> None:
        return None

    stop = start

    async def send(self, *_: Any, **__: Any) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_and_wait(self, *_: Any, **__: Any) -> None:
        return None


@asynccontextmanager
async def relay(worker: Worker, providers: Mapping[str, str] | None = None) -> AsyncIterator[Any]:
    """A relay without a broker, whose events a worker reads."""
    fleet = fleet_of(worker)
    app = relay_app({"default": fleet}, providers=providers)
    with ExitStack() as patched:
        for place in ("fleetlore.relay.native.Follower", "fleetlore.relay.native.make_producer"):
            patched.enter_context(patch(place, _Broker))
        # Both take a tenth of a second, and are the same for every relay.
        patched.enter_context(patch("fleetlore.relay.app.openapi", _openapi))
        patched.enter_context(patch("ssl.create_default_context", _tls))
        # A native agent waits for news, here for less than a minute.
        patched.enter_context(patch("fleetlore.relay.native._LONGEST_WAIT_SECONDS", 0.02))
        async with app.router.lifespan_context(app):
            yield app


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """A provider whose answer is the request: so answers are as odd."""
    body, more = b"", scope["type"] == "http"
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})


async def check(requests: Sequence[Asked]) -> Counter[str]:
    """Every request gets an answer that is promised; a refusal says why; the relay answers for itself afterwards."""
    found, worker, before = Counter[str](), Worker(), sum(refusals().values())
    async with AsyncExitStack() as entered:
        models = any(_is_of_model(asked) for asked in requests)
        provider = await entered.enter_async_context(serving(_echo)) if models else ""
        app = await entered.enter_async_context(relay(worker, {"openai": provider, "anthropic": provider}))
        for start in range(0, len(requests), _AT_ONCE):
            some = requests[start : start + _AT_ONCE]
            for asked, answer in zip(some, await asyncio.gather(*(ask(app, each) for each in some)), strict=True):
                found[_reason(asked, answer)] += 1
        health = await ask(app, Asked("GET", b"/v1/health", (), b""))
        assert health.status == 200, f"the relay does not fare well: {health}"
    worker.read()
    refused = found.total() - found["taken"]
    assert sum(refusals().values()) - before >= refused, f"not all of {refused} refusals are counted: {refusals()}"
    return found


def _is_of_model(asked: Asked) -> bool:
    return b"/openai/" in asked.path or b"/anthropic/" in asked.path


def _reason(asked: Asked, answer: Answer) -> str:
    assert answer.status in _PROMISED, f"{answer.status} for {asked}: {answer.body[:200]!r}"
    if answer.status < 300:
        return "taken"
    if _is_of_model(asked) or answer.status in (404, 405):
        return str(answer.status)
    problem = orjson.loads(answer.body)
    assert problem["detail"], f"a refusal without a reason: {answer}"
    return str(problem.get("reason") or answer.status)


HTTP = Boundary("http", make_request, check, size, full=100_000, batch=1_000)
HOOKS = Boundary("hooks", make_hook, check, size, full=100_000, batch=1_000)
NATIVE = Boundary("native", make_frame, check, size, full=100_000, batch=1_000)
