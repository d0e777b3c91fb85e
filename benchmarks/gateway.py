"""Measure what the relay's gateway adds to a request for a model: `python -m benchmarks.gateway [ROUNDS]`.

A local server answers as OpenAI's does, at once. The same request goes to it directly and through `fleetlore relay`, a
separate process, in turns. So both meet the same load, which is printed with the figures. The same requests are read in
this process, too, as a wrapped client or LiteLLM's callback does it, by CPU time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from statistics import median, quantiles
from typing import Any

import httpx2
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlore import Fleet
from fleetlore.join.conversations import SessionCalls
from fleetlore.join.dialects import CHAT_COMPLETIONS
from streams.embedded.broker import free_port

ROUNDS = 2_000
# Milliseconds at the median and at the 99th percentile: by the clock what is added, by CPU time what the agent does.
BARS = {"added": (2.0, 8.0), "in the agent": (5.0, 5.0)}
WARM_UP = 100
# Calls in the conversation; each result has so many characters.
CALLS, CHARACTERS = 20, 500
ANSWER = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[]}'


def request_of(number: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"task {number}"}]
    for call in range(CALLS):
        made = {"name": "search", "arguments": '{"index":"products"}'}
        calls = [{"id": f"call-{number}-{call}", "type": "function", "function": made}]
        said = "LookupError: no index" if call == CALLS - 1 else "x" * CHARACTERS
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call-{number}-{call}", "content": said})
    return {"model": "m", "messages": messages}


async def in_process(rounds: int) -> list[float]:
    """CPU in milliseconds of reading each request in the agent's process and adding the advice."""
    calls, took = SessionCalls(), []
    async with Fleet("bench", broker="127.0.0.1:1") as fleet, fleet.session("bench"):
        for number in range(WARM_UP + rounds):
            body = request_of(number)
            begun = time.thread_time()
            _, conversation = calls.told(CHAT_COMPLETIONS, body)
            took.append((time.thread_time() - begun) * 1e3)
            assert conversation is not None
    return took[WARM_UP:]


async def main(rounds: int = ROUNDS) -> None:
    """Print medians and 99th percentiles, in milliseconds."""

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(ANSWER, media_type="application/json")

    there, relay = free_port(), free_port()
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=there, log_level="error"))
    serving = asyncio.create_task(server.serve())
    options = ["--http", f"127.0.0.1:{relay}", "--openai", f"http://127.0.0.1:{there}/v1", "--broker", "127.0.0.1:1"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fleetlore.cli.main", "relay", *options, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        times: dict[str, list[float]] = {"direct": [], "relay": []}
        urls = {"direct": f"http://127.0.0.1:{there}/v1", "relay": f"http://127.0.0.1:{relay}/openai/v1"}
        used = 0.0
        async with httpx2.AsyncClient(timeout=60, transport=httpx2.AsyncHTTPTransport(retries=20)) as http:
            for number in range(WARM_UP + rounds):
                body = request_of(number)
                if number == WARM_UP:
                    used = cpu_seconds(process.pid)
                for way, url in urls.items():
                    begun = time.perf_counter()
                    (await http.post(f"{url}/chat/completions", json=body)).raise_for_status()
                    times[way].append((time.perf_counter() - begun) * 1e3)
        used = cpu_seconds(process.pid) - used
    finally:
        process.terminate()
        await process.wait()
        server.should_exit = True
        await serving
    added = [relay - direct for direct, relay in zip(times["direct"][WARM_UP:], times["relay"][WARM_UP:], strict=True)]
    measured = {way: each[WARM_UP:] for way, each in times.items()} | {"added": added}
    for way, some in (measured | {"in the agent": await in_process(rounds)}).items():
        figures = median(some), quantiles(some, n=100)[98]
        said = ""
        if way in BARS:
            met = all(figure <= bar for figure, bar in zip(figures, BARS[way], strict=True))
            said = f"   bars {BARS[way][0]:g} / {BARS[way][1]:g} ms: {'met' if met else 'missed'}"
        print(f"{way:<12} p50 {figures[0]:6.2f} ms   p99 {figures[1]:6.2f} ms{said}")
    print(f"the relay's CPU {used / rounds * 1e3:.2f} ms a request")
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def cpu_seconds(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:2])))
