"""Measure four ways to treat the failures of a web service: `python -m benchmarks.retries [SESSIONS]`.

A service on HTTP has five faults: a rate limit (429 with Retry-After), outages of minutes (503), time-outs, a moved
version (410) and a renamed field (422). One clock serves all, so nothing sleeps. A fleet of 12 agents works through
sessions that begin 15 s apart. Each session makes one call and has 120 s and ten attempts.

* `none` gives up after the first failure.
* `blind` sends the same call again each second.
* `careful` waits for Retry-After, or 1, 2, 4 … s, and gives up after a 4xx other than 429.
* `fleetlore` is `careful` and obeys what the fleet knows, before a call and after a failure: the call that led to this
  goal, another name, a wait in seconds, or that the call never works again unchanged. Its sessions go through the
  stages of a worker.

In every arm one agent in six tries other arguments after a 4xx, as a person or a reader of the changelog would. Without
them no arm could know what replaced a call. The first third of the sessions teaches and is not counted. Intervals are
of the bootstrap over sessions, 95 %; differences are paired.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from benchmarks.evaluate.figures import interval
from fleetlore.agent.session import Session
from fleetlore.wire.events import Event
from fleetlore.wire.stats import stable_hash
from streams.offline.memory_pipeline import MemoryPipeline

_AGENTS, _SECONDS_BETWEEN = 12, 15.0
_MAX_ATTEMPTS, _MAX_SECONDS = 10, 120.0
_CALL_SECONDS, _TIMEOUT_SECONDS = 0.2, 10.0
ARMS = ("none", "blind", "careful", "fleetlore")
# Tool, the arguments that agents send, and those that work.
TOOLS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "reports": ({"month": "may"}, {"month": "may"}),
    "payments": ({"order": "open"}, {"order": "open"}),
    "search": ({"query": "chair"}, {"query": "chair"}),
    "users": ({"api": "accounts"}, {"api": "members"}),
    "orders": ({"customer": "ann"}, {"client_ref": "ann"}),
}
_INSTEAD = re.compile(r"Use `([\w=]+)`(?:[^`\n]*)instead of `([\w=]+)`")
_WAIT = re.compile(r"\bWait (\d+) s\b")
# The call of a way that led to this goal.
_WAY = re.compile(r"\d+\. (\w+)\((\{.*\})\)")
_NEVER = re.compile(r"sent again unchanged it failed")


class Result(NamedTuple):
    recovered: bool
    attempts: int
    seconds: float


class Service:
    """The service at `now`: each fault is a function of the time and the call, the same for every arm."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._seed = seed
        routes = [Route("/{tool}", self._answer)]
        self.client = TestClient(Starlette(routes=routes), base_url="http://127.0.0.1")

    def _chance(self, *about: object) -> float:
        return stable_hash(f"{self._seed}/{about}") % 10_000 / 10_000

    async def _answer(self, request: Request) -> Response:
        tool, given = request.path_params["tool"], dict(request.query_params)
        match tool:
            case "reports" if self.now % 60 < 20:
                return _problem(429, "rate limit exceeded", {"Retry-After": str(round(20 - self.now % 60) + 1)})
            # One outage in three spans of five minutes; it takes all of them.
            case "payments" if self._chance("outage", self.now // 300) < 1 / 3:
                return _problem(503, "the payment service is unavailable")
            case "search" if self._chance("late", round(self.now, 1)) < 0.4:
                return _problem(504, "timed out after 10 s")
            case "users" if given.get("api") != "members":
                return _problem(410, f"api {given.get('api')} is gone")
            case "orders" if "client_ref" not in given:
                return _problem(422, f"unknown field {next(iter(given))}")
        return JSONResponse({"done": True})

    def call(self, tool: str, arguments: Mapping[str, str]) -> tuple[int, str, float | None]:
        """Return status, error text and Retry-After. Time passes."""
        answer = self.client.get(f"/{tool}", params=dict(arguments))
        self.now += _TIMEOUT_SECONDS if answer.status_code == 504 else _CALL_SECONDS
        after = answer.headers.get("retry-after")
        return answer.status_code, "" if answer.is_success else answer.json()["error"], float(after) if after else None


def _problem(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": f"HTTP {status}: {error}"}, status, headers)


async def run(arm: str, seed: int, sessions: int) -> list[tuple[str, Result]]:
    """Return the tool and the result of each session in which the first call failed, after the teaching third."""
    service, memory, found = Service(seed), MemoryPipeline(), []
    for number in range(sessions):
        rng = Random(f"{seed}/{number}")
        agent, tool = f"agent-{rng.randrange(_AGENTS)}", rng.choice(list(TOOLS))
        service.now = number * _SECONDS_BETWEEN
        _set_clock(memory, service.now)
        events: list[Event] = []
        with memory.session(agent, f"use {tool}", tool, f"s{number}", events) as session:
            result = _work(arm, service, memory, session, tool, tries_others=agent in ("agent-0", "agent-1"))
            (session.succeed if result.recovered else session.fail)()
        if number >= sessions // 3:
            found.append((tool, result))
        if arm == "fleetlore":
            await memory.take(events)
    return found


def _set_clock(memory: MemoryPipeline, now: float) -> None:
    clock: Any = memory.clock
    clock._now = max(clock._now, 1_700_000_000.0 + now)


def _work(
    arm: str, service: Service, memory: MemoryPipeline, session: Session, tool: str, *, tries_others: bool
) -> Result:
    began, arguments, works = service.now, dict(TOOLS[tool][0]), TOOLS[tool][1]
    obeys = arm == "fleetlore"
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        told = session.advise(tool, arguments).text if obeys else ""
        arguments = next((json.loads(way) for of, way in _WAY.findall(told) if of == tool), arguments)
        arguments = _renamed(arguments, told)
        if attempt == 1 and (wait := _WAIT.search(told)):
            service.now += float(wait[1])
        status, error, after = service.call(tool, arguments)
        if not error:
            _set_clock(memory, service.now)
            session.record(tool, arguments, result="done")
            return Result(True, attempt, service.now - began)
        _set_clock(memory, service.now)
        session.record(tool, arguments, error_text=error)
        told = session.advise().text if obeys else ""
        changed = _renamed(arguments, told)
        final = 400 <= status < 500 and status != 429
        if changed == arguments and final and tries_others:
            changed = dict(works)
        if changed != arguments:
            arguments = changed
            continue
        if arm == "none" or (arm != "blind" and final) or _NEVER.search(told):
            return Result(False, attempt, service.now - began)
        wait = _WAIT.search(told)
        pause = 1.0 if arm == "blind" else after or float(2 ** (attempt - 1))
        service.now += float(wait[1]) if wait and not after else pause
        if service.now - began > _MAX_SECONDS:
            return Result(False, attempt, service.now - began)
    return Result(False, _MAX_ATTEMPTS, service.now - began)


def _renamed(arguments: dict[str, str], told: str) -> dict[str, str]:
    """Return the arguments with the names and values that a text tells to use instead."""
    for new, old in _INSTEAD.findall(told):
        new_name, _, new_value = new.rpartition("=")
        old_name, _, old_value = old.rpartition("=")
        if new_name and old_name and arguments.get(old_name) == old_value:
            arguments = {k: v for k, v in arguments.items() if k != old_name} | {new_name: new_value}
        elif not new_name and not old_name:
            arguments = {new if k == old else k: new if v == old else v for k, v in arguments.items()}
    return arguments


def main(sessions: int = 450, seeds: int = 3) -> None:
    results = {arm: [asyncio.run(run(arm, seed, sessions)) for seed in range(seeds)] for arm in ARMS}
    # A session counts if an agent that gives up at once fails in it: the same sessions for every arm.
    rows: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(seeds):
        for place, (tool, first) in enumerate(results["none"][seed]):
            if not first.recovered or first.attempts > 1:
                for arm in ARMS:
                    for of in (tool, "all"):
                        rows[of][arm].append([float(each) for each in results[arm][seed][place][1]])
    for of, by_arm in rows.items():
        base = np.array(by_arm["careful"])
        print(f"{of}: {len(base)} failures; recovered, attempts, seconds; minus careful")
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
    main(*map(int, sys.argv[1:2]))
