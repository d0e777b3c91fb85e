"""Run the two arms of the demo: the same agents on the same tasks, each with its own memory, then with the fleet's.

World, tasks, sessions and habits come from one seed, so both arms see the same world. The fleet's agents start one
after the other and think before each call, as agents do: what the first ones meet, the others can know.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.demo.advisers import FleetAdviser, Journal
from benchmarks.demo.agents import Run, attend
from benchmarks.demo.tickets import handle, tickets
from benchmarks.demo.world import Call, Reply, Task, World
from fleetlore.agent.fleet import Fleet
from fleetlore.errors import BrokerUnavailable
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Pattern

READY_SECONDS = 30.0
FLUSH_SECONDS = 20.0
# Enough for the gate of the policy adapter, with some to spare.
TICKETS = 150
SHOWN_HINTS = 3
# Many agents on one small broker: 20 fetches a second of each would take a core of it.
FETCH_WAIT_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Agents and sessions of the demo.

    Attributes:
        sessions: number of sessions of each agent.
        stagger_seconds: pause between the starts of two agents.
        thinking_seconds: mean time an agent takes before a call.
    """

    agents: int = 50
    sessions: int = 3
    seed: int = 1
    stagger_seconds: float = 0.5
    thinking_seconds: float = 0.15

    @property
    def world(self) -> World:
        # The fleet gives no advice to make another call first, because such advice helped on no log.
        return World(self.seed, needing=0.0)

    @property
    def names(self) -> list[str]:
        return [f"agent-{number:02d}" for number in range(self.agents)]

    def work(self, world: World, agent: str) -> Iterator[tuple[Task, str]]:
        """Yield task and session seed of each session of an agent."""
        rng = Random(f"plan/{self.seed}/{agent}")
        for number in range(self.sessions):
            yield rng.choice(world.tasks), f"{agent}/{number}"


async def isolated_arm(plan: Plan, progress: Callable[[], None]) -> list[Run]:
    """Run every agent with its own journal; `progress` is called after each session."""
    world, runs = plan.world, []
    for agent in plan.names:
        journal = Journal()
        for task, seed in plan.work(world, agent):
            runs.append(await attend(agent, world.open(task, seed), journal))
            progress()
    return runs


class _TimedIndex(LoreIndex):
    """Remembers when each pattern first became known, in Unix seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.learned: dict[str, float] = {}

    def put_pattern(self, pattern: Pattern) -> None:
        super().put_pattern(pattern)
        self.learned.setdefault(pattern.id, time.time())


@dataclass(slots=True)
class Member:
    """One agent of the fleet: the time it joined, in seconds since the Unix epoch, and the results of its sessions."""

    name: str
    fleet: Fleet
    joined: float
    index: _TimedIndex
    runs: list[Run] = field(default_factory=list)
    hints: Counter[str] = field(default_factory=Counter)

    def learned_at(self, pattern: str) -> float | None:
        """Return when this agent could first look up the pattern, in Unix seconds. The result is None if it cannot
        yet."""
        return self.index.learned.get(pattern)


class FleetArm:
    """The agents of the fleet at work.

    Attributes:
        members: the agents that have joined so far.
        first_met: when each failure pattern of the class level first happened, and to whom, without transient ones.
        started: when the first agent began to act, in seconds since the Unix epoch.
    """

    def __init__(self, plan: Plan, data: Path, progress: Callable[[], None]) -> None:
        self.members: list[Member] = []
        self.first_met: dict[str, tuple[float, str]] = {}
        self.started = 0.0
        self._plan = plan
        self._data = data
        self._progress = progress

    async def __aenter__(self) -> FleetArm:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect all agents. They stay connected until here, so that late lessons reach all of them."""
        await asyncio.gather(*(member.fleet.close() for member in self.members))

    async def work(self) -> None:
        """Let all agents join and do their sessions, and deliver their events.

        Raises:
            BrokerUnavailable: some events could not be delivered.
        """
        world = self._plan.world
        async with asyncio.TaskGroup() as group:
            for number, name in enumerate(self._plan.names):
                group.create_task(self._work(world, name, number * self._plan.stagger_seconds), name=name)
        await self._flush()

    async def handle_tickets(self) -> None:
        """Let all agents handle tickets, and deliver their events. Raises BrokerUnavailable as `work` does."""
        share = math.ceil(TICKETS / len(self.members))
        await asyncio.gather(*(self._handle_tickets(member, share) for member in self.members))
        await self._flush()

    def common_hints(self) -> tuple[tuple[str, int], ...]:
        """Return the hints that most sessions read, with the number of sessions."""
        total: Counter[str] = sum((member.hints for member in self.members), Counter())
        return tuple(total.most_common(SHOWN_HINTS))

    async def _handle_tickets(self, member: Member, count: int) -> None:
        for number, subject in enumerate(tickets(f"{self._plan.seed}/{member.name}", count)):
            await handle(member.fleet, number, subject)

    async def _flush(self) -> None:
        await asyncio.gather(*(member.fleet.flush(FLUSH_SECONDS) for member in self.members))
        lost = sum(member.fleet.dropped + member.fleet.emitter.waiting for member in self.members)
        if lost:
            raise BrokerUnavailable(f"{lost} events of the fleet could not be delivered within {FLUSH_SECONDS:.0f} s")

    def first_learned(self) -> float:
        """Return when the first agent learned the first pattern, in Unix seconds. Raises ValueError if none did."""
        times = [member.learned_at(pattern) for pattern in self.first_met for member in self.members]
        return min(seconds for seconds in times if seconds is not None)

    async def _work(self, world: World, name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        member = await self._join(name)
        self.started = self.started or member.joined
        for task, seed in self._plan.work(world, name):
            member.runs.append(await self._session(member, world, task, seed))
            self._progress()

    async def _join(self, name: str) -> Member:
        fleet = Fleet(name, data=self._data, fetch_wait_ms=FETCH_WAIT_MS, ready_seconds=READY_SECONDS)
        fleet.replica.index = index = _TimedIndex()
        member = Member(name, fleet, math.inf, index)
        self.members.append(member)
        await fleet.start()
        member.joined = time.time()
        return member

    async def _session(self, member: Member, world: World, task: Task, seed: str) -> Run:
        environment = world.open(task, seed)
        thinking = Random(f"thinking/{seed}")

        async def think() -> None:
            await asyncio.sleep(thinking.uniform(0.5, 1.5) * self._plan.thinking_seconds)

        def watch(call: Call, reply: Reply) -> None:
            if reply.failed:
                failure = failure_of(call.tool, call.arguments, reply.error_type, reply.error_message)
                if not failure.transient:
                    self.first_met.setdefault(failure.class_, (time.time(), member.name))

        async with member.fleet.session(environment.goal, task=task.id) as session:
            adviser = FleetAdviser(session)
            run = await attend(member.name, environment, adviser, pause=think, watch=watch)
            member.hints.update(adviser.hints)
            if run.succeeded:
                session.succeed(reward=1.0)
            else:
                session.fail(reward=0.0)
        return run
