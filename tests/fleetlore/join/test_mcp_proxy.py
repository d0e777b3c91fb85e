"""`fleetlore mcp-proxy` and `fleetlore mcp` as processes, with the official client and somebody else's server."""

import asyncio
import io
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from mcp import StdioServerParameters
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth_utils import check_resource_allowed
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import Fleet
from fleetlore.cli.app import build_app
from fleetlore.join.mcp import http_proxy, proxy
from fleetlore.join.mcp.http_proxy import forwarding_app
from fleetlore.join.mcp.server import MCPServer, lore_server
from fleetlore.wire import events
from tests import served
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import GOAL
from tests.fleetlore.join.mcp_sdk import OVER_HTTP, Client
from tests.read_back import sent

TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
OWN_SERVER = """
from fleetlore.join.mcp.server import MCPServer

server = MCPServer("own", instructions="Be kind.")

@server.resource("text://greeting")
def greeting() -> str:
    return "hello"

@server.prompt()
def ask(what: str) -> str:
    return f"What is {what}?"

server.run()
"""


def through(address: str, tenant: str, *command: str) -> StdioServerParameters:
    options = ["--broker", address, "--tenant", tenant, "--agent", "a", "--task", "t"]
    proxy = ["-m", "fleetlore.cli.main", "mcp-proxy", *options, "--", *command]
    return StdioServerParameters(command=sys.executable, args=proxy)


@pytest.mark.long
async def test_somebody_elses_server_is_recorded(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> None:
    await make_topics(broker.address, tenant, "events", "patterns", "items", partitions=1)
    async with Client(through(broker.address, tenant, *TIME)) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"get_current_time", "convert_time"}
        worked, failed = await asyncio.gather(
            client.call_tool("get_current_time", {"timezone": "UTC"}),
            client.call_tool("get_current_time", {"timezone": "Mars/Olympus"}),
        )
        assert not worked.is_error and failed.is_error
    while not (log := await sent(broker.address, tenant)) or log[-1]["type"] != "ai.fleetlore.session.ended.v1":
        await asyncio.sleep(0.1)
    outcomes = {each["data"][events.ARGUMENTS]["timezone"]: each["data"] for each in log if "outcome" in each["type"]}
    assert "datetime" in str(outcomes["UTC"][events.RESULT])
    assert "Mars/Olympus" in outcomes["Mars/Olympus"][events.ERROR_MESSAGE]
    assert {each["agent"] for each in log} == {"a"} and log[0]["data"][events.TASK] == "t"


@pytest.mark.long
async def test_what_it_does_not_know_passes_through(unused_address: str, tmp_path: Path) -> None:
    """Without a broker: the server works as without the proxy."""
    script = tmp_path / "server.py"
    script.write_text(OWN_SERVER)
    async with Client(through(unused_address, "default", sys.executable, str(script))) as client:
        assert str(client.instructions).startswith("Be kind.\n\n")  # and how to read what may be said later
        [content] = (await client.read_resource("text://greeting")).contents
        assert getattr(content, "text", "") == "hello"
        [message] = (await client.get_prompt("ask", {"what": "it"})).messages
        assert getattr(message.content, "text", "") == "What is it?"


@pytest.mark.long
def test_a_mistake_is_told_in_one_line(unused_address: str) -> None:
    run = CliRunner().invoke
    alone = ["mcp-proxy", "--url", "http://x/mcp"]
    odd = ["mcp-proxy", "--url", "notaurl", "--port", "7431", "--broker", unused_address]
    for arguments in (["mcp-proxy"], alone, odd, ["mcp-proxy", "--port", "80", "--", "x"]):
        assert run(build_app(), arguments).exit_code == 2
    done = run(build_app(), ["mcp-proxy", "--broker", unused_address, "--", "/no/such/server"])
    assert done.exit_code == 1
    assert "the MCP server '/no/such/server' cannot be started: No such file or directory" in done.output
    killed = run(build_app(), ["mcp-proxy", "--broker", unused_address, "--", "sh", "-c", "kill -KILL $$"])
    assert killed.exit_code == 137


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {"a": {}}}}
DONE = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def at_mcp(answer: Any) -> Starlette:
    """A server whose one function answers what an MCP client sends."""
    return Starlette(routes=[Route("/mcp", answer, methods=["POST", "DELETE"])])


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    async with served.serving(app) as address:
        yield f"{address}/mcp"


@asynccontextmanager
async def proxied(fleet: Fleet, server: Any) -> AsyncIterator[tuple[str, httpx2.AsyncClient]]:
    """The address of a proxy in front of a server, and a client."""
    async with (
        serving(server) as address,
        serving(forwarding_app(fleet, address)) as proxy,
        httpx2.AsyncClient(timeout=120) as http,
    ):
        yield proxy, http


async def test_a_proxy_that_is_started_again_takes_up_the_client_s_session(fleet: Fleet, recorder: Recorder) -> None:
    async def answer(request: Request) -> Response:
        return JSONResponse(DONE)

    async with (
        serving(at_mcp(answer)) as address,
        httpx2.AsyncClient(timeout=120, headers={"Mcp-Session-Id": "s1"}) as http,
    ):
        for _ in range(2):
            async with serving(forwarding_app(fleet, address)) as proxy:
                assert (await http.post(proxy, json=CALL)).json() == DONE
    assert recorder.kinds == ["session.started", "outcome", "session.ended"] * 2
    assert len({event.session for event in recorder.events}) == 2


@OVER_HTTP
@pytest.mark.parametrize("headers", [{}, {"Fleetlore-Session": "mine"}])
async def test_agents_of_one_sdk_have_a_session_each(fleet: Fleet, recorder: Recorder, headers: dict[str, str]) -> None:
    """The protocol of 2026-07-28 has no sessions: each request stands alone, and both clients call themselves alike."""
    server = MCPServer("upstream")

    @server.tool()
    def divide(a: int, b: int) -> float:
        return a / b

    async with proxied(fleet, server.streamable_http_app()) as (proxy, _):

        async def agent(*divisors: int) -> None:
            async with (
                httpx2.AsyncClient(timeout=120, headers=headers) as http,
                Client(streamable_http_client(proxy, http_client=http), mode="2026-07-28") as client,
            ):
                await client.list_tools()
                started.append(None)
                while len(started) < 2:
                    await asyncio.sleep(0.01)
                await asyncio.gather(*(client.call_tool("divide", {"a": 1, "b": each}) for each in divisors[:2]))
                await client.call_tool("divide", {"a": 1, "b": divisors[-1]})

        started: list[None] = []
        await asyncio.gather(agent(1, 1, 1), agent(2, 2, 2))
    by_session: dict[str, set[int]] = {}
    for event in recorder.events:
        if event.kind == "outcome":
            by_session.setdefault(event.session, set()).add(event.data[events.ARGUMENTS]["b"])
    if headers:
        assert list(by_session.values()) == [{1, 2}], "who names its session decides by that"
    else:
        assert {1} in by_session.values() and {2} in by_session.values()
        assert all(len(each) == 1 for each in by_session.values()), "calls of two agents are in one session"
    assert recorder.kinds.count("session.started") == recorder.kinds.count("session.ended")


async def test_a_peer_that_is_silent_is_left_and_one_that_waits_is_not(fleet: Fleet, recorder: Recorder) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(request: Request) -> Response:
        id = (await request.json())["id"]
        if id == "slow":
            asked.set()
            await go.wait()
        return JSONResponse({"jsonrpc": "2.0", "id": id, "result": {"content": []}})

    def call(id: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": id, "arguments": {}}}

    async with proxied(fleet, at_mcp(answer)) as (proxy, http):

        async def post(id: str) -> None:
            await http.post(proxy, json=call(id), headers={"Fleetlore-Session": f"of {id}"})

        async def later(seconds: float, ended: int) -> None:
            fleet.clock.advance(seconds)
            await post("b")
            assert recorder.kinds.count("session.ended") == ended

        await post("a")
        waiting = asyncio.create_task(post("slow"))
        await asyncio.wait_for(asked.wait(), 120)
        await later(599.0, ended=0)
        await later(2.0, ended=1)
        go.set()
        await waiting
        await later(599.0, ended=1)  # it was heard of when its call was answered
        await later(2.0, ended=2)
    assert {each[events.TOOL] for each in recorder.outcomes} == {f"mcp__127.0.0.1__{id}" for id in ("a", "slow", "b")}


async def test_who_lets_a_client_in_is_found_through_the_proxy(fleet: Fleet) -> None:
    """The official SDK looks for it and refuses a resource of another address than the one that it asked."""
    says: dict[str, Any] = {"authorization_servers": ["https://login.example.com"], "scopes_supported": ["tools"]}
    seen: list[dict[str, str]] = []

    async def refuse(request: Request) -> Response:
        seen.append(dict(request.headers))
        at = request.url.replace(path="/.well-known/oauth-protected-resource/mcp")
        return Response("", 401, {"WWW-Authenticate": f'Bearer error="invalid_token", resource_metadata="{at}"'})

    async def metadata(request: Request) -> Response:
        return JSONResponse({"resource": str(request.url.replace(path="/mcp")), **says})

    server = Starlette(
        routes=[Route("/mcp", refuse, methods=["POST"]), Route("/.well-known/oauth-protected-resource/mcp", metadata)]
    )
    async with proxied(fleet, server) as (proxy, http):
        headers = {"Fleetlore-Session": "s", "Authorization": "Bearer mine"}
        refused = await http.post(proxy, content=b"{}", headers=headers)
        named = extract_resource_metadata_from_www_auth(refused)
        urls = build_protected_resource_metadata_discovery_urls(named, proxy)
        found = [(await http.get(url)).json() for url in urls]
    assert refused.status_code == 401 and named == urls[1]
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert found == [{"resource": proxy, **says}] * 3
    assert check_resource_allowed(proxy, found[0]["resource"])
    assert seen[0]["authorization"] == "Bearer mine"
    assert "fleetlore-session" not in seen[0], "our header is not the server's"


async def test_a_server_that_is_away_is_said(fleet: Fleet, unused_address: str) -> None:
    async with (
        serving(forwarding_app(fleet, f"http://{unused_address}/mcp")) as proxy,
        httpx2.AsyncClient(timeout=120) as http,
    ):
        answer = await http.post(proxy, content=b"{}")
    assert answer.status_code == 502 and unused_address in answer.text


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_server_that_dies_in_the_middle_of_its_answer_leaves_no_call_open(
    fleet: Fleet, recorder: Recorder, kind: str
) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}}")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 999\r\n\r\n{{".encode())
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with (
            serving(forwarding_app(fleet, f"http://{host}:{port}/mcp")) as proxy,
            httpx2.AsyncClient(timeout=120, headers={"Fleetlore-Session": "s"}) as http,
        ):
            if kind == "application/json":
                answer = await http.post(proxy, json=CALL)
                assert answer.status_code == 502 and "cut off its answer" in answer.text
            else:
                with pytest.raises(httpx2.RemoteProtocolError):
                    await http.post(proxy, json=CALL)
            fleet.clock.advance(601.0)
            with suppress(httpx2.HTTPError):
                await http.post(proxy, json=CALL, headers={"Fleetlore-Session": "other"})
            assert recorder.kinds.count("session.ended") == 1, "its call is taken for one under way"
    assert not recorder.outcomes


async def test_events_are_lines_by_the_newline_alone(fleet: Fleet, recorder: Recorder) -> None:
    """JSON may have in its texts what Unicode takes for the end of a line; and a line may come in pieces."""
    text = "one\u2028two\u0085three\x1cfour"
    result = {"content": [{"type": "text", "text": text}]}
    event = b"event: message\r\ndata: " + orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": result}) + b"\r\n\r\n"

    async def answer(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for each in event:
                yield bytes([each])

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async with proxied(fleet, at_mcp(answer)) as (proxy, http):
        said = (await http.post(proxy, json=CALL)).content
    assert said == event.replace(b"\r", b"")
    assert [each[events.RESULT] for each in recorder.outcomes] == [text]


async def test_a_session_is_of_who_may_use_it_and_the_server_ends_it(fleet: Fleet, recorder: Recorder) -> None:
    refuses = True

    async def answer(request: Request) -> Response:
        if request.method == "DELETE":
            return Response(status_code=405 if refuses else 204)
        return JSONResponse(DONE, headers={"Mcp-Session-Id": "s1"})

    mine, hers = ({"Authorization": f"Bearer {name}", "Mcp-Session-Id": "s1"} for name in ("mine", "hers"))
    async with proxied(fleet, at_mcp(answer)) as (proxy, http):
        # The server names the session in its first answer.
        for headers in ({"Authorization": "Bearer mine"}, mine, hers, mine):
            await http.post(proxy, json=CALL, headers=headers)
        by = [event.session for event in recorder.events if event.kind == "outcome"]
        assert by[0] == by[1] == by[3] != by[2]
        await http.delete(proxy, headers=mine)
        assert "session.ended" not in recorder.kinds, "the server has not ended it"
        refuses = False
        await http.delete(proxy, headers=mine)
        assert [event.session for event in recorder.events if event.kind == "session.ended"] == [by[0]]


async def test_an_agent_asks_reports_and_ends_over_mcp(fleet: Fleet, recorder: Recorder) -> None:
    with lore_server(fleet) as server:
        async with Client(server) as client:

            async def ask(tool: str, /, **arguments: Any) -> str:
                result = await client.call_tool(tool, arguments)
                return getattr(result.content[0], "text", "")

            assert {tool.name for tool in (await client.list_tools()).tools} == {"advise", "report", "end", "search"}
            assert "Look into /srv first" in await ask("advise", session="s", goal=GOAL, task="look")
            assert await ask("report", session="s", tool="sql", arguments={"q": 1}, result=[1]) == "Recorded."
            failed = {"tool": "sql", "arguments": {"q": 2}, "error": "the cars are gone"}
            assert await ask("report", session="s", **failed) == "Recorded."
            assert "Look into /srv first" in await ask("search", text="look into srv")
            assert await ask("search", text="cooking") == "Nothing is known of it."
            for number in range(30):  # a word that most items hold finds them all the same
                tool = f"search_{number}"
                title = f"{tool}: products is gone"
                item = memory_item(f"w{number}", tool=tool, title=title, was=("products",), now=(tool,))
                fleet.replica.index.put_item(item)
            assert "30 items of that, and too few agents" in await ask("search", text="products")
            assert await ask("end", session="s", outcome="success", reward=1.0) == "Ended."
            assert "no session 's' is open" in await ask("end", session="s", outcome="success")
            assert not (await client.list_resources()).resources  # nothing is read past the gate
            assert not (await client.list_resource_templates()).resource_templates
            await ask("advise", session="left open", goal="g")
    assert [recorder.error(each) for each in recorder.outcomes] == [None, ("_OTHER", "the cars are gone")]
    ended = [event.data for event in recorder.events if event.kind == "session.ended"]
    assert [each[events.OUTCOME] for each in ended] == ["success", "unknown"]


@pytest.mark.long
async def test_the_lore_is_served_on_stdin_and_stdout(unused_address: str) -> None:
    command = ["-m", "fleetlore.cli.main", "mcp", "--broker", unused_address]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        result = await client.call_tool("advise", {"session": "s", "goal": "g"})
        assert getattr(result.content[0], "text", "") == "Nothing is known of it."


def test_a_line_longer_than_a_message_passes_in_pieces_and_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "MAX_MESSAGE", 4)
    read = io.BytesIO(b"ab\nabcdefghij\nabc\nabcd\nabcde\nx").readline
    lines = [(b"ab\n", True), (b"abcd", False), (b"efgh", False), (b"ij\n", False), (b"abc\n", True)]
    lines += [(b"abcd", False), (b"\n", False), (b"abcd", False), (b"e\n", False), (b"x", True)]
    assert list(proxy.lines_of(read)) == lines


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_endless_answer_fills_no_memory(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(http_proxy, "MAX_MESSAGE", 1_000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"data: "
        for _ in range(200):
            sent += 500
            yield b"x" * 500
        yield b"\ndata: " + orjson.dumps(DONE) + b"\n\n"

    async def answer(request: Request) -> Response:
        return StreamingResponse(endless(), media_type=kind)

    async with proxied(fleet, at_mcp(answer)) as (address, http):
        got = await http.post(address, json=CALL)
    if kind == "application/json":
        assert got.status_code == 502 and "more than 1000 bytes" in got.text
    else:
        assert got.status_code == 200 and len(got.content) > 100_000
        assert got.content.endswith(b"data: " + orjson.dumps(DONE) + b"\n\n")


@pytest.mark.long
async def test_a_long_line_in_many_parts_costs_no_more_than_short_lines(fleet: Fleet) -> None:
    async def seconds(end: bytes) -> float:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(12_000):
                yield b"x" * 1_000 + end
                await asyncio.sleep(0)

        async def answer(request: Request) -> Response:
            return StreamingResponse(parts(), media_type="text/event-stream")

        async with proxied(fleet, at_mcp(answer)) as (address, http):
            began = time.process_time()
            await http.post(address, json=CALL)
            return time.process_time() - began

    assert await seconds(b"") < 4 * await seconds(b"\n")
