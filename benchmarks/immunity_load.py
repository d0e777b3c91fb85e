"""Load every memory with the same fleet of agents, and let some of them meet a new failure.

One process hosts many agents, as tasks of one event loop, and the fleet is spread over several such processes. An agent
works through sessions of four calls, each asked about first: an event for each, one before them and one behind. It
keeps to a timetable, whatever the memory does (an open loop), so a memory that falls behind shows it as waiting time,
not as less load.

Nine calls of ten are of 200 known kinds; a tenth of these kinds fails in known ways. Every `novelty_seconds` one agent
makes a call that fails in a new way. From then on an agent of another process asks about the same call, until its
memory holds that failure. With one process only, it is another agent of that process.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import msgspec

from fleetlore.fingerprint.fingerprint import Failure, failure_of

if TYPE_CHECKING:
    from benchmarks.immunity_memories import Memory, Worker

CALLS = 4  # of a session
KINDS = 200
TOOLS = 20
FAILING_KINDS = 20
# An ask costs time of the process that asks, so who waits long asks less often: never finer than a twentieth of the
# wait.
ASK_SHARE = 0.05


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the fleet.

    Attributes:
        memory: what it remembers with: a name in `benchmarks.immunity_memories`.
        where: what that memory needs to know: a broker's address, a folder.
        calls_per_second: of all processes together.
        seconds: how long the agents work; new failures begin after `warm_up_seconds`.
        wait_seconds: how long after that an agent goes on asking.
        ask_seconds: between two asks about a new failure.
        number: of this process, from 0.
    """

    memory: str
    where: str
    agents: int
    processes: int
    calls_per_second: float
    seconds: float
    warm_up_seconds: float
    wait_seconds: float
    novelty_seconds: float = 0.1
    ask_seconds: float = 0.005
    number: int = 0

    @property
    def novelties(self) -> int:
        return int((self.seconds - self.warm_up_seconds) / self.novelty_seconds)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and what comes of it."""

    tool: str
    arguments: dict[str, str]
    result: str = ""
    error_type: str = ""
    error: str = ""

    @property
    def failure(self) -> Failure:
        return failure_of(self.tool, self.arguments, self.error_type, self.error)


class Result(msgspec.Struct):
    """The result of one process; times are seconds since the Unix epoch.

    Attributes:
        met: when a new failure happened, by its number.
        learned: when another agent was first told of it.
        sent, lost: events.
        cpu_seconds: of this process while the agents worked.
        late_seconds: by how much agents missed their timetable, 99 of 100 times less than this.
        asks: questions asked before a call; ask_seconds: what they took together.
    """

    met: dict[int, float] = {}
    learned: dict[int, float] = {}
    sent: int = 0
    lost: int = 0
    cpu_seconds: float = 0.0
    late_seconds: float = 0.0
    asks: int = 0
    ask_seconds: float = 0.0


def known_call(kind: int, rng: Random) -> Call:
    """A call of one of the known kinds; as large as the mean outcome of logged runs of SQL, shell and retail agents."""
    arguments = {
        "target": f"service-{rng.randrange(50)}",
        f"mode_{kind // TOOLS}": "fast",
        "body": f"select owner from builds where id = {rng.randrange(10**6)} and branch is not null {'x' * 60}",
    }
    tool = f"tool_{kind % TOOLS}"
    if kind < FAILING_KINDS:
        return Call(tool, arguments, "", "InvalidMode", f"mode_{kind} is not allowed for builds of this branch")
    return Call(tool, arguments, result=f"{rng.randrange(10**6)} rows " + "of what was asked for " * 8)


def new_call(number: int) -> Call:
    """A call with a new argument, and its failure. No other event holds the argument's name."""
    name = f"flaw_{number:05d}_"
    return Call(
        f"tool_{number % TOOLS}",
        {"target": "service-0", name: "on"},
        error_type="UnknownArgument",
        error=f"there is no argument '{name}' in this version",
    )


class Host:
    def __init__(self, plan: Plan, memory: Memory) -> None:
        self.result = Result()
        self._plan = plan
        self._memory = memory
        self._names = [f"agent-{number}" for number in range(plan.number, plan.agents, plan.processes)]
        self._due: deque[int] = deque()  # new failures that the next agent of this process to make a call shall meet
        self._lateness: list[float] = []

    async def work(self, start: float) -> None:
        """All of it; `start`: seconds since the Unix epoch."""
        plan = self._plan
        await asyncio.sleep(max(0.0, start - time.time()))
        before = time.process_time()
        asking = asyncio.create_task(self._ask_all(start))
        agents = [
            asyncio.create_task(self._agent(name, index, start, start + plan.seconds))
            for index, name in enumerate(self._names)
        ]
        await asyncio.gather(*agents)
        self.result.cpu_seconds = time.process_time() - before
        await asking
        self.result.sent, self.result.lost = await self._memory.stop()
        self._lateness.sort()
        self.result.late_seconds = self._lateness[int(len(self._lateness) * 0.99)] if self._lateness else 0.0

    async def _agent(self, name: str, index: int, start: float, end: float) -> None:
        plan, rng = self._plan, Random(f"{self._plan.number}/{name}")
        session_seconds = plan.agents * CALLS / plan.calls_per_second
        due = start + session_seconds * index / len(self._names)
        number = 0
        while due < end:
            await self._until(due)
            async with self._memory.session(name, number) as worker:
                for place in range(CALLS):
                    await self._until(due + session_seconds * place / CALLS)
                    await self._call(worker, known_call(rng.randrange(KINDS), rng))
            number += 1
            due += session_seconds

    async def _call(self, worker: Worker, call: Call) -> None:
        novelty = self._due.popleft() if self._due else None
        if novelty is not None:
            call = new_call(novelty)
        began = time.perf_counter()
        worker.knows(call)
        self.result.ask_seconds += time.perf_counter() - began
        self.result.asks += 1
        if novelty is not None:
            self.result.met[novelty] = time.time()
        await worker.perform(call)

    async def _until(self, due: float) -> None:
        wait = due - time.time()
        await asyncio.sleep(max(0.0, wait))
        self._lateness.append(max(0.0, time.time() - due))

    async def _ask_all(self, start: float) -> None:
        """Let the new failures happen, and have those of the next process asked about here."""
        plan = self._plan
        asking = []
        for novelty in range(plan.novelties):
            due = start + plan.warm_up_seconds + novelty * plan.novelty_seconds
            await asyncio.sleep(max(0.0, due - time.time()))
            if novelty % plan.processes == plan.number:
                self._due.append(novelty)
            if (novelty + 1) % plan.processes == plan.number:
                asking.append(asyncio.create_task(self._ask(novelty, due, start + plan.seconds + plan.wait_seconds)))
        await asyncio.gather(*asking)

    async def _ask(self, novelty: int, since: float, until: float) -> None:
        """One agent that wants to make the call that has just failed elsewhere."""
        call = new_call(novelty)
        async with self._memory.session(f"asker-{self._plan.number}", -1 - novelty) as worker:
            while (now := time.time()) < until:
                if worker.knows(call):
                    self.result.learned[novelty] = time.time()
                    return
                await asyncio.sleep(max(self._plan.ask_seconds, ASK_SHARE * (now - since)))
