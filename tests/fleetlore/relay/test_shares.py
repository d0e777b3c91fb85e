"""One caller of a relay cannot make it forget what it holds for others."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from types import FunctionType, ModuleType
from typing import Any

import httpx2
import msgspec
import pytest

from fleetlore import Fleet
from fleetlore.agent import doors
from fleetlore.http_server import HttpLimits
from fleetlore.join import conversations
from fleetlore.join.dialects import CHAT_COMPLETIONS
from fleetlore.kafka.by_relay import LORE, Following
from fleetlore.relay import app, callers, native
from fleetlore.relay.api import Api
from fleetlore.relay.app import Hooks, relay_app
from fleetlore.relay.callers import Caller
from fleetlore.relay.gateway import About, tell
from fleetlore.testing import FakeClock
from fleetlore.wire import events as names
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.conftest import NOW, client_of
from tests.fleetlore.relay.test_api import ENDED, FAILED, STARTED, event
from tests.fleetlore.relay.test_gateway import chat

MOST = 20
ALICE, BOB, EVE = Caller("default", "alice", True), Caller("default", "bob", True), Caller("other", "eve", True)
TOKENS = {each: f"token-of-{each.agent}-00000" for each in (ALICE, BOB, EVE)}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds as they are would take thousands of requests to reach."""
    for module, name in ((callers, "MAX_SESSIONS"), (native, "MAX_SESSIONS"), (doors, "_MOST_SESSIONS")):
        monkeypatch.setattr(module, name, MOST)
    monkeypatch.setattr(conversations, "_MOST", MOST)
    monkeypatch.setattr(app, "_MOST_AGENTS", MOST)


@pytest.fixture
def fleets() -> dict[str, Fleet]:
    made = {}
    for tenant in ("default", "other"):
        made[tenant] = Fleet("relay", broker="nowhere:1", tenant=tenant, holdout_share=0.0, clock=FakeClock(NOW))
        made[tenant].emitter = Recorder()
    return made


Send = Callable[..., Any]


@asynccontextmanager
async def relayed(fleets: dict[str, Fleet], *, is_open: bool = False) -> AsyncIterator[Send]:
    """Send as a caller: by its token, or by name alone."""
    tokens = {sha256(token.encode()).digest(): caller for caller, token in TOKENS.items()}
    async with client_of(relay_app(fleets, None if is_open else tokens)) as http:

        async def send(caller: Caller, path: str, json: Any) -> httpx2.Response:
            headers = {"fleetlore-agent": caller.agent, "fleetlore-tenant": caller.tenant}
            return await http.post(path, json=json, headers=headers | {"fleetlore-token": TOKENS.get(caller, "")})

        send.http = http
        yield send


def begins(number: int) -> dict[str, Any]:
    return event("session.started", f"s{number}", **{names.GOAL: "x"})


@pytest.mark.parametrize("flooder", [BOB, EVE])
async def test_session_starts_of_one_caller(fleets: dict[str, Fleet], flooder: Caller) -> None:
    async with relayed(fleets) as send:
        await send(ALICE, "/v1/events", [STARTED])
        assert (await send(flooder, "/v1/events", [begins(number) for number in range(5 * MOST)])).status_code == 202
        assert (await send(ALICE, "/v1/events", [FAILED, ENDED])).json()["accepted"] == 2
        assert (await send(flooder, "/v1/events", [FAILED | {"session": "s0"}])).status_code == 409, "its own oldest"
        headers = {"fleetlore-token": TOKENS[ALICE]}
        health = (await send.http.get("/v1/health", headers=headers)).json()
        assert health["refused"]["sessions_forgotten"] > 0 and health["sessions"] <= MOST


async def test_session_starts_under_made_up_names(fleets: dict[str, Fleet]) -> None:
    """Without tokens a caller calls itself as it likes: then its tenant has its share, and its request its caller."""
    async with relayed(fleets, is_open=True) as send:
        await send(ALICE, "/v1/events", [STARTED])
        await send(BOB, "/v1/events", [begins(number) | {"agent": f"a{number}"} for number in range(5 * MOST)])
        for number in range(2 * MOST):
            await send(Caller("other", f"a{number}"), "/v1/events", [begins(number)])
        assert (await send(ALICE, "/v1/events", [FAILED, ENDED])).json()["accepted"] == 2


async def test_events_of_sessions_that_agents_number(fleets: dict[str, Fleet]) -> None:
    async with relayed(fleets) as send:
        whole = "/v1/events?whole=true"
        assert (await send(ALICE, whole, [STARTED | {"sequence": 0}])).json()["accepted"] == 1
        await send(EVE, whole, [begins(number) | {"sequence": 0} for number in range(5 * MOST)])
        assert (await send(ALICE, whole, [STARTED | {"sequence": 0}])).json()["repeated"] == 1


@pytest.mark.parametrize(("flooder", "size", "most"), [(BOB, 1, MOST), (EVE, 1, MOST), (BOB, 5_000, 11)])
def test_sessions_of_hooks_of_one_caller(fleets: dict[str, Fleet], flooder: Caller, size: int, most: int) -> None:
    hooks = Hooks()
    hooks.sessions._shares._most_bytes = 100_000

    def send(caller: Caller, session: str, size: int, name: str = "PreToolUse") -> None:
        about = {"hook_event_name": name, "session_id": session, "tool_name": "Bash", "tool_use_id": "u"}
        given = about | {"tool_input": {"command": "x" * size}}
        hooks.answer(fleets[caller.tenant], caller, "claude-code", msgspec.json.encode(given))

    send(ALICE, "s", 1)
    for number in range(5 * MOST):
        send(flooder, f"s{number}", size)
        assert len(hooks.sessions) <= most
    recorder: Any = fleets["default"].emitter
    assert len(hooks.sessions) >= most // 2
    assert not [each for each in recorder.events if each.kind == "session.ended" and each.agent == "alice"]
    send(ALICE, "s", 1, "SessionEnd")
    (ended,) = (each.session for each in recorder.events if each.kind == "session.ended" and each.agent == "alice")
    assert ended.startswith("s.")


@pytest.mark.parametrize("flooder", [BOB, EVE])
def test_conversations_of_one_caller(fleets: dict[str, Fleet], flooder: Caller) -> None:
    found = conversations.Conversations()

    def send(caller: Caller, prompt: str) -> conversations.Conversation:
        told = tell(found, fleets[caller.tenant], caller.agent, CHAT_COMPLETIONS, chat(prompt=prompt), About())
        assert told is not None
        return told

    first = send(ALICE, "mine")
    others = [send(flooder, str(number)) for number in range(5 * MOST)]
    assert first.session.is_open
    assert sum(each.session.is_open for each in others) == MOST - 1


@pytest.mark.parametrize(
    ("flooder", "large"), [(EVE, "arguments"), (BOB, "arguments"), (BOB, "id"), (BOB, "result id"), (BOB, "response")]
)
def test_bytes_of_conversations_of_one_caller(
    fleets: dict[str, Fleet], flooder: Caller, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = conversations.Conversations()
    monkeypatch.setattr(found._shares, "_most_bytes", 100_000)

    def send(caller: Caller, number: int, size: int) -> conversations.Conversation:
        text = f"{number}" + "x" * size
        id, arguments = (text if large == "id" else "c1"), msgspec.json.encode({"q": text * (large == "arguments")})
        call = {"id": id, "function": {"name": "f", "arguments": arguments.decode()}}
        made = {"role": "assistant", "tool_calls": [call]}
        answer = {"role": "tool", "tool_call_id": text if large == "result id" else id, "content": "done"}
        body = chat(prompt=str(number)) | ({"previous_response_id": text} if large == "response" else {})
        body["messages"] += [made, answer]
        told = tell(found, fleets[caller.tenant], caller.agent, CHAT_COMPLETIONS, body, About())
        assert told is not None
        return told

    first = send(ALICE, 0, 10)
    others = [send(flooder, number, 30_000) for number in range(1, 6)]
    assert first.session.is_open
    assert [each.session.is_open for each in others][-1] and sum(each.session.is_open for each in others) <= 3
    assert not send(flooder, 7, 200_000).session.is_open, "larger than all that a caller may keep"
    assert first.session.is_open
    assert found._shares._bytes.total() == sum(each.size + each.session.size for each in found._open)


@pytest.fixture
def api(fleets: dict[str, Fleet], monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api(fleets)
    monkeypatch.setattr(app, "Api", lambda _: made)
    return made


LONG = "x y " * 100_000
CALL = {names.TOOL: "t", names.CALL_ID: "c"}
FAILS = CALL | {names.ARGUMENTS: {"a": 1}, names.ERROR_MESSAGE: "e"}


def kept(about: list[object]) -> int:
    """Characters of the longest text that objects hold, directly or not."""
    longest, seen = 0, {id(each) for each in about}
    for each in about:
        longest = max(longest, len(each) if isinstance(each, str) else 0)
        for inner in gc.get_referents(each):
            if id(inner) not in seen and not isinstance(inner, ModuleType | type | FunctionType):
                seen.add(id(inner))
                about.append(inner)
    return longest


@pytest.mark.parametrize(
    "asked",
    [
        ("/v1/events", [STARTED | {"data": {names.GOAL: LONG, names.TASK: LONG}}]),
        ("/v1/events", [STARTED, event("action", "s1", **CALL | {names.CALL_ID: LONG, names.ARGUMENTS: {"a": LONG}})]),
        ("/v1/events", [STARTED, event("outcome", "s1", **FAILS | {names.ARGUMENTS: {"a": LONG}})]),
        ("/v1/events", [STARTED, event("outcome", "s1", **FAILS | {names.ERROR_MESSAGE: LONG})]),
        ("/v1/events", [STARTED, event("outcome", "s1", **FAILS | {names.ERROR_TYPE: LONG})]),
        ("/v1/advise", {"session": "s", "goal": LONG, "task": LONG, "tool": LONG, "call_id": LONG}),
        ("/v1/brief", {"session": "s", "tools": [LONG]}),
    ],
    ids=lambda asked: asked[0],
)
async def test_texts_of_a_caller_are_kept_as_on_the_wire(fleets: dict[str, Fleet], api: Api, asked: Any) -> None:
    async with relayed(fleets) as send:
        assert (await send(ALICE, *asked)).status_code < 300
        assert len(api.sessions) == 1 and kept([api.sessions, fleets["default"]]) <= 8 * 1024


def test_hooks_keep_texts_as_the_wire_keeps_them(fleets: dict[str, Fleet]) -> None:
    hooks = Hooks()
    about = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": LONG}, "prompt": LONG}
    for name, more in (
        ("UserPromptSubmit", {}),
        ("PreToolUse", {"tool_use_id": LONG}),
        ("PreToolUse", {"tool_use_id": "", "tool_name": LONG}),
        ("PostToolUseFailure", {"tool_use_id": "a", "error": LONG}),
    ):
        given = about | {"hook_event_name": name} | more
        hooks.answer(fleets["default"], ALICE, "claude-code", msgspec.json.encode(given))
    assert kept([hooks, fleets["default"]]) <= 8 * 1024
    hooks.sessions.leave_all()  # or the session would be that of the next test


def test_conversations_keep_failed_calls_as_the_wire_keeps_them(fleets: dict[str, Fleet]) -> None:
    call = {"function": {"name": "f", "arguments": msgspec.json.encode({"q": LONG}).decode()}}
    body = chat(prompt="go")
    body["messages"] += [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "Error: " + LONG}]
    told = tell(conversations.Conversations(), fleets["default"], "alice", CHAT_COMPLETIONS, body, About())
    assert told is not None and kept([told.session, fleets["default"]]) <= 8 * 1024


@pytest.mark.parametrize("flooder", [BOB, EVE])
async def test_bytes_of_sessions_of_one_caller(fleets: dict[str, Fleet], api: Api, flooder: Caller) -> None:
    api.sessions._most_bytes = 100_000
    began = event("action", "s1", **CALL | {names.ARGUMENTS: {"a": "x" * 5_000}})
    async with relayed(fleets) as send:
        await send(ALICE, "/v1/events", [STARTED])
        for number in range(MOST - 1):
            flood = [each | {"session": f"s{number}"} for each in (STARTED, began)]
            assert (await send(flooder, "/v1/events", flood)).json()["accepted"] == 2
        assert 5 <= len(api.sessions) <= 11 and ("default", "alice", STARTED["session"]) in api.sessions


async def test_streams_of_one_caller(fleets: dict[str, Fleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_CALLERS", HttpLimits().within_open_files().connections // 3)
    async with relayed(fleets) as send:
        http: httpx2.AsyncClient = send.http

        async def hold(caller: Caller, open: AsyncExitStack) -> int:
            answer = http.stream("GET", "/v1/stream", headers={"fleetlore-token": TOKENS[caller]})
            return (await open.enter_async_context(answer)).status_code

        async with AsyncExitStack() as open:
            assert [await hold(EVE, open) for _ in range(4)] == [200, 200, 200, 429]
            assert await hold(ALICE, open) == 200
        async with AsyncExitStack() as open, asyncio.timeout(120):
            while await hold(EVE, open) != 200:  # the relay sees a moment later that they ended
                await asyncio.sleep(0)


async def test_positions_that_claim_more_than_a_body_holds_are_refused(fleets: dict[str, Fleet]) -> None:
    """The length of a list is what its sender says: 4 GB in five bytes."""
    good = msgspec.msgpack.encode(Following(LORE, {}, 0.0))
    many = msgspec.msgpack.encode(Following(LORE, {LORE[0]: dict.fromkeys(range(100_000), 0)}, 0.0))
    async with relayed(fleets) as send:
        http: Any = send.http
        for body in (
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            b"\xc6\xff\xff\xff\xffab",
            good[:-3],
            b"\xdc",
            many,
        ):
            answer = await http.post("/v1/native/follow", content=body, headers={"fleetlore-token": TOKENS[ALICE]})
            assert answer.status_code == 400 and answer.json()["detail"]
