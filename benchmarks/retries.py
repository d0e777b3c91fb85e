"""Measure four ways to treat the failures of a web service: `python -m benchmarks.retries [SESSIONS]`.

A service on HTTP has five faults: a rate limit (429 with Retry-After), outages of five minutes (503), time-outs, a
moved version (410) and a renamed field (422). A fleet of 12 agents works through sessions that begin 15 s apart and
overlap. One clock serves all, and `Clock.wait` passes at once. Each session makes one call and has 120 s and ten
attempts.

* `none` gives up after the first failure.
* `blind` sends the same call again each second.
* `careful` waits for Retry-After, or 1, 2, 4 … s, and gives up after a 4xx other than 429.
* `fleetlore` is `careful` and obeys what the fleet knows, before a call and after a failure: the call that led to this
  goal, another name, a wait in seconds, that a call got past the fault, or that it never works again unchanged. Its
  sessions go through the stages of a worker.

No arm waits if the wait would outlast its time. In every arm one agent in six tries other arguments after a 4xx, as a
person or a reader of the changelog would. Without them no arm could know what replaced a call. The first third of the
sessions teaches and is not counted. Intervals are of the bootstrap over sessions, 95 %; differences are paired.

`python -m benchmarks.retries [SESSIONS] doors` joins the agents through `wrap_openai`, LangChain and the gateway. A
scripted model behind OpenAI's API reads its messages and obeys them by the same rules.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple

import httpx2
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.evaluate.figures import interval
from fleetlore.http_server import listen, server
from fleetlore.wire.events import Event
from fleetlore.wire.stats import stable_hash
from streams.offline.memory_pipeline import EventClock, MemoryPipeline

_AGENTS, _SECONDS_BETWEEN = 12, 15.0
_MAX_ATTEMPTS, _MAX_SECONDS = 10, 120.0
_CALL_SECONDS, _TIMEOUT_SECONDS = 0.2, 10.0
_START = 1_700_000_000.0
ARMS = ("none", "blind", "careful", "fleetlore")
DOORS = ("wrap_openai", "LangChain", "gateway")
# Tool, the arguments that agents send, and those that work.
TOOLS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "reports": ({"month": "may"}, {"month": "may"}),
    "payments": ({"order": "open"}, {"order": "open"}),
    "search": ({"query": "chair"}, {"query": "chair"}),
    "users": ({"api": "accounts"}, {"api": "members"}),
    "orders": ({"customer": "ann"}, {"client_ref": "ann"}),
}
_INSTEAD = re.compile(r"Use `([\w=]+)`(?:[^`\n]*)instead of `([\w=]+)`")
_WAIT = re.compile(r"\b[Ww]ait (\d+) s\b")
# The call of a way that led to this goal.
_WAY = re.compile(r"\d+\. (\w+)\((\{[^‹]*\})\)")
_NEVER = re.compile(r"sent again unchanged it failed")
_PASSED = re.compile(r"a later call got past")
_NOT_MADE = "This call was not made."


class Result(NamedTuple):
    recovered: bool
    attempts: int
    seconds: float


class Clock(EventClock):
    """The time of service, agents and fleet. Sessions run one at a time, in the order in which their waits end."""

    def __init__(self) -> None:
        super().__init__(_START)
        self._order = count()
        self._waiting: list[tuple[float, int, Any]] = []
        self._paused = asyncio.Event()

    def tick(self) -> float:
        return self._now

    async def wait(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (self._now + seconds, next(self._order), woken))
        self._paused.set()
        await woken

    async def run(self, sessions: list[tuple[float, Coroutine[Any, Any, Result]]]) -> list[Result]:
        """Run sessions from their starts, in seconds, to their ends."""
        tasks: list[asyncio.Task[Result]] = []
        self._waiting = [(_START + start, next(self._order), session) for start, session in sessions]
        heapify(self._waiting)
        while self._waiting:
            self._now, _, woken = heappop(self._waiting)
            self._paused.clear()
            if isinstance(woken, asyncio.Future):
                woken.set_result(None)
            else:
                tasks.append(asyncio.create_task(woken))
                tasks[-1].add_done_callback(lambda _: self._paused.set())
            await self._paused.wait()
        return [await task for task in tasks]


class Service:
    """Each fault is a function of the time and the call, the same for every arm."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self.clock, self._seed = clock, seed
        transport = httpx2.ASGITransport(Starlette(routes=[Route("/{tool}", self._answer)]))
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    def _chance(self, *about: object) -> float:
        return stable_hash(f"{self._seed}/{about}") % 10_000 / 10_000

    async def _answer(self, request: Request) -> Response:
        tool, given, now = request.path_params["tool"], dict(request.query_params), self.clock.now() - _START
        match tool:
            case "reports" if now % 60 < 20:
                return _problem(429, "rate limit exceeded", {"Retry-After": str(round(20 - now % 60) + 1)})
            # One outage in three spans of five minutes; it takes all of them.
            case "payments" if self._chance("outage", now // 300) < 1 / 3:
                return _problem(503, "the payment service is unavailable")
            case "search" if self._chance("late", round(now, 1)) < 0.4:
                return _problem(504, "timed out after 10 s")
            case "users" if given.get("api") != "members":
                return _problem(410, f"api {given.get('api')} is gone")
            case "orders" if "client_ref" not in given:
                return _problem(422, f"unknown field {next(iter(given))}")
        return JSONResponse({"done": True})

    async def call(self, tool: str, arguments: Mapping[str, str]) -> tuple[int, str, float | None]:
        """Return status, error text and Retry-After. Time passes."""
        answer = await self._client.get(f"/{tool}", params=dict(arguments))
        await self.clock.wait(_TIMEOUT_SECONDS if answer.status_code == 504 else _CALL_SECONDS)
        after = answer.headers.get("retry-after")
        return answer.status_code, "" if answer.is_success else answer.json()["error"], float(after) if after else None


def _problem(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": f"HTTP {status}: {error}"}, status, headers)


class Reader:
    """The fixed rules of one session's agent."""

    def __init__(self, arm: str, service: Service, tool: str, *, tries_others: bool) -> None:
        self._arm, self._service, self.tool, self._tries_others = arm, service, tool, tries_others
        self._arguments = dict(TOOLS[tool][0])
        self._began = service.clock.now()
        self._attempts, self._status = 0, 0
        self._after: float | None = None
        # When it may send again by the fleet's words.
        self._ready = 0.0

    @property
    def result(self) -> Result:
        return Result(self._status == 200, self._attempts, self._service.clock.now() - self._began)

    async def send(self, arguments: Mapping[str, str]) -> str:
        """Make the call. Return its error, or ""."""
        self._status, error, self._after = await self._service.call(self.tool, arguments)
        self._attempts += 1
        return error

    def before(self, read: str) -> dict[str, str]:
        """Return the arguments to send. `read`: the fleet's words before the call."""
        self._obey(read)
        return self._arguments

    async def after(self, read: str, *, was_made: bool = True) -> bool:
        """Wait, and return whether to send again. `read`: the fleet's words after the failure."""
        if self._obey(read) or not was_made:
            return True
        if self._attempts == _MAX_ATTEMPTS:
            return False
        final = 400 <= self._status < 500 and self._status != 429
        if final and self._tries_others and self._arguments != TOOLS[self.tool][1]:
            self._arguments = dict(TOOLS[self.tool][1])
            return True
        if self._arm == "none" or (self._arm != "blind" and final) or _NEVER.search(read):
            return False
        pause = 1.0 if self._arm == "blind" else self._after or float(2 ** (self._attempts - 1))
        now = self._service.clock.now()
        left = _MAX_SECONDS - (now - self._began)
        if self._ready > now and not self._after:
            pause = self._ready - now
        pause = 0.0 if _PASSED.search(read) else pause
        if pause > left:
            return False
        await self._service.clock.wait(pause)
        return True

    def _obey(self, read: str) -> bool:
        """Do what the text says. Return whether it changes the call."""
        before = self._arguments
        if wait := _WAIT.search(read):
            self._ready = self._service.clock.now() + float(wait[1])
        way = next((json.loads(way) for of, way in _WAY.findall(read) if of == self.tool), before)
        self._arguments = _renamed(way, read)
        return self._arguments != before


def _renamed(arguments: dict[str, str], read: str) -> dict[str, str]:
    """Return the arguments with the names and values that a text tells to use instead."""
    for new, old in _INSTEAD.findall(read):
        new_name, _, new_value = new.rpartition("=")
        old_name, _, old_value = old.rpartition("=")
        if new_name and old_name and arguments.get(old_name) == old_value:
            arguments = {k: v for k, v in arguments.items() if k != old_name} | {new_name: new_value}
        elif not new_name and not old_name:
            arguments = {new if k == old else k: new if v == old else v for k, v in arguments.items()}
    return arguments


class World:
    """A service, a fleet and the door by which its agents join, or "" for the agent's own code."""

    def __init__(self, arm: str, seed: int, door: str = "") -> None:
        self.arm, self.door = arm, door
        self.clock = Clock()
        self.service, self.memory = Service(seed, self.clock), MemoryPipeline(self.clock)
        self.readers: dict[str, Reader] = {}
        self._events: list[Event] = []
        # The lines that the model has read, by session.
        self._read: defaultdict[str, set[str]] = defaultdict(set)
        self.model, self.relay = "", Starlette()

    async def learn(self) -> None:
        events, self._events[:] = list(self._events), []
        if self.arm == "fleetlore" and events:
            await self.memory.take(events)

    async def session(self, number: int, rng: Random) -> Result:
        agent, tool, id = f"agent-{rng.randrange(_AGENTS)}", rng.choice(list(TOOLS)), f"s{number}"
        others = agent in ("agent-0", "agent-1")
        reader = self.readers[id] = Reader(self.arm, self.service, tool, tries_others=others)
        if self.door == "gateway":
            await _by_gateway(self, reader, agent, id)
        else:
            with self.memory.session(agent, f"use {tool}", tool, id, self._events) as session:
                if not self.door:
                    await self._by_itself(reader, session)
                else:
                    await (_by_client if self.door == "wrap_openai" else _by_langchain)(self, reader, id)
                (session.succeed if reader.result.recovered else session.fail)()
        await self.learn()
        return reader.result

    async def _by_itself(self, reader: Reader, session: Any) -> None:
        obeys, tool = self.arm == "fleetlore", reader.tool
        arguments = TOOLS[tool][0]
        while True:
            arguments = reader.before(session.advise(tool, arguments).text if obeys else "")
            error = await reader.send(arguments)
            session.record(tool, arguments, **({"error_text": error} if error else {"result": "done"}))
            await self.learn()
            if not error or not await reader.after(session.advise().text if obeys else ""):
                return

    async def decide(self, id: str, texts: list[str]) -> dict[str, str] | None:
        """Return the arguments that the scripted model sends next, or None."""
        reader, read = self.readers[id], self._read[id]
        await self.learn()
        new = "\n".join(text for text in texts if text not in read)
        read.update(texts)
        if not reader.result.attempts and _NOT_MADE not in new:
            return reader.before(new)
        if reader.result.recovered or not await reader.after(new, was_made=_NOT_MADE not in new):
            return None
        return reader.before(new)


@asynccontextmanager
async def _serving(world: World) -> AsyncIterator[None]:
    """Serve the scripted model as OpenAI's API is served, and a relay in front of it."""
    from fleetlore.relay.app import relay_app

    async def complete(request: Request) -> Response:
        body = await request.json()
        id, texts = body["user"], [str(each.get("content") or "") for each in body["messages"]]
        arguments = await world.decide(id, texts)
        message: dict[str, Any] = {"role": "assistant", "content": "done" if arguments is None else None}
        if arguments is not None:
            made = {"name": world.readers[id].tool, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call-{id}-{len(texts)}", "type": "function", "function": made}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    listening = listen("127.0.0.1", 0)
    running = server(app, listening)
    task = asyncio.create_task(running.serve(list(listening)))
    while not running.started:
        await asyncio.sleep(0.001)
    world.model = "http://127.0.0.1:{1}/v1".format(*listening[0].getsockname())
    fleet = world.memory.fleet("relay", world._events)
    world.relay = relay_app({fleet.tenant: fleet}, providers={"openai": world.model})
    try:
        yield
    finally:
        running.should_exit = True
        await task


async def _converse(world: World, reader: Reader, id: str, client: Any) -> None:
    """Run the loop of an agent in code of its own over a model's client."""
    tool = {"name": reader.tool, "parameters": {"type": "object"}}
    messages: list[Any] = [{"role": "user", "content": f"use {reader.tool}"}]
    while True:
        answer = await client.chat.completions.create(
            model="m", user=id, messages=messages, tools=[{"type": "function", "function": tool}]
        )
        message = answer.choices[0].message
        if not message.tool_calls:
            return
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            error = await reader.send(json.loads(call.function.arguments))
            text = f"Error: {error}" if error else "done"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def _by_client(world: World, reader: Reader, id: str) -> None:
    from openai import AsyncOpenAI

    from fleetlore.join.model_clients import wrap_openai

    async with AsyncOpenAI(base_url=world.model, api_key="none") as client:
        await _converse(world, reader, id, wrap_openai(client))


async def _by_gateway(world: World, reader: Reader, agent: str, id: str) -> None:
    from openai import AsyncOpenAI

    said = {"agent": agent, "session": id, "task": reader.tool, "goal": f"use {reader.tool}"}
    headers = {f"fleetlore-{name}": value for name, value in said.items()}
    transport: Any = httpx2.ASGITransport(world.relay)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
        client = AsyncOpenAI(base_url="http://127.0.0.1/openai/v1", api_key="none", http_client=http)
        await _converse(world, reader, id, client)
        outcome = {"outcome": "success" if reader.result.recovered else "failure"}
        (await http.post(f"/v1/sessions/{id}/end", json=outcome)).raise_for_status()


async def _by_langchain(world: World, reader: Reader, id: str) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import ToolErrorMiddleware
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    from fleetlore.join.langchain import FleetMiddleware

    class Chat(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        async def _agenerate(self, messages: Any, *args: Any, **options: Any) -> Any:
            arguments = await world.decide(id, [each.text for each in messages])
            call = {"name": reader.tool, "args": arguments, "id": f"call-{len(messages)}"}
            said = AIMessage("done") if arguments is None else AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=said)])

    async def made(**arguments: str) -> str:
        if error := await reader.send(arguments):
            raise RuntimeError(error)
        return "done"

    schema = {"title": reader.tool, "description": "a call", "type": "object", "properties": {}}
    tool = StructuredTool(name=reader.tool, description="a call", args_schema=schema, coroutine=made)
    errors: Any = ToolErrorMiddleware(lambda error, request: str(error))
    agent: Any = create_agent(Chat(messages=iter([])), tools=[tool], middleware=[errors, FleetMiddleware()])
    await agent.ainvoke({"messages": [("user", f"use {reader.tool}")]}, {"recursion_limit": 100})


async def run(arm: str, seed: int, sessions: int, door: str = "") -> list[tuple[str, Result]]:
    """Return tool and result of each session after the teaching third."""
    world = World(arm, seed, door)
    async with _serving(world) if door else nullcontext():
        starts = [(n * _SECONDS_BETWEEN, world.session(n, Random(f"{seed}/{n}"))) for n in range(sessions)]
        results = await world.clock.run(starts)
    tools = [world.readers[f"s{number}"].tool for number in range(sessions)]
    return list(zip(tools, results, strict=True))[sessions // 3 :]


def main(sessions: int = 960, seeds: int = 3, *, doors: bool = False) -> None:
    ways = [("none", ""), ("careful", ""), ("fleetlore", ""), *(("fleetlore", door) for door in DOORS)]
    ways = ways if doors else [(arm, "") for arm in ARMS]
    results = {
        door or arm: [asyncio.run(run(arm, seed, sessions, door)) for seed in range(seeds)] for arm, door in ways
    }
    # A session counts if an agent that gives up at once fails in it: the same sessions for every arm.
    rows: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(seeds):
        for place, (tool, first) in enumerate(results["none"][seed]):
            failed = not first.recovered or first.attempts > 1
            for arm, of_seed in results.items():
                for about in (tool, "all") if failed else ("the first call works",):
                    rows[about][arm].append([float(each) for each in of_seed[seed][place][1]])
    for about, by_arm in rows.items():
        base = np.array(by_arm["careful"])
        print(f"{about}: {len(base)} sessions; recovered, attempts, seconds; minus careful")
        for arm, own in by_arm.items():
            each = np.array(own)
            means = ", ".join(f"{each[:, n].mean():.3f} ({_interval(each[:, n])})" for n in range(3))
            gained = ", ".join(
                f"{(each - base)[:, n].mean():+.3f} ({_interval((each - base)[:, n])})" for n in range(3)
            )
            print(f"  {arm}: {means}; {gained}")


def _interval(values: np.ndarray[Any, Any]) -> str:
    found = interval([str(place) for place in range(len(values))], values.tolist())
    return f"{found['low']:.3f} to {found['high']:.3f}"


if __name__ == "__main__":
    main(*map(int, filter(str.isdecimal, sys.argv[1:])), doors="doors" in sys.argv)
