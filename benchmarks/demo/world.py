"""Simulate a tool world: tasks for agents, with hidden preconditions, realistic errors and a flaky network.

A :class:`World` is a set of rules drawn by a seed from :mod:`benchmarks.demo.catalogue`; another seed is another world
with other right answers. ``world.open(task, seed)`` starts a session; at each :class:`Step` the agent sees calls that
would reach the next subgoal (``attempts``) and calls that might make one of them possible (``preparations``), and
performs one. The environment decides by program whether the goal was reached. Everything is a function of (world seed,
task, session seed, calls made): no clock, no global random state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from benchmarks.demo.catalogue import CATALOGUE, Catalogue, Fault, Job, Remedy

# ``Reply.fault`` of a transient network error: it comes by chance, and no rule is behind it.
NETWORK = "network"
# Calls that a session may spend, per subgoal.
PATIENCE = 4.0


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: dict[str, Any]

    @property
    def key(self) -> str:
        """The call as canonical JSON: equal for equal calls."""
        return json.dumps([self.tool, self.arguments], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of the environment: a result, or an error.

    ``fault`` names the rule that was broken (``tool:rule``), or :data:`NETWORK`. It is for counting and for
    tests; an agent must not read it.
    """

    result: str
    error_type: str | None = None
    error_message: str | None = None
    fault: str | None = None

    @property
    def failed(self) -> bool:
        return self.error_type is not None


@dataclass(frozen=True, slots=True)
class Task:
    """Work that many sessions may be given; each session fills in its names and numbers."""

    id: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The next subgoal and the calls an agent can think of for it."""

    aim: str
    attempts: tuple[Call, ...]
    preparations: tuple[Call, ...]


class World:
    """The rules of one world, drawn by ``seed``.

    ``flakiness`` is the chance that a networked call fails for no reason, ``needing`` the share of a job's possible
    preconditions that it has.
    """

    catalogue: ClassVar[Catalogue] = CATALOGUE

    def __init__(self, seed: int = 0, *, tasks: int = 24, flakiness: float = 0.04, needing: float = 0.8) -> None:
        self.seed = seed
        self._needing = needing
        self.flakiness = flakiness
        self.domains = {name: self.catalogue.domains[name] for name in sorted(self.catalogue.domains)}
        self.preconditions = self.catalogue.preconditions
        self._wording: dict[str, str] = {}
        self._refused: dict[str, tuple[Any, ...]] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._helps: dict[str, Remedy] = {}
        self._draw_rules()
        self.tasks = tuple(self._task(number) for number in range(tasks))

    def _draw_rules(self) -> None:
        rng = Random(f"world/{self.seed}")
        for name, precondition in self.preconditions.items():
            self._helps[name] = rng.choice(precondition.remedies)
            for remedy in precondition.remedies:
                self._wording.setdefault(remedy.tool, rng.choice(remedy.tool.split("|")))
        for job in (job for jobs in self.catalogue.domains.values() for job in jobs):
            self._wording[job.tool] = rng.choice(job.tool.split("|"))
            refused = rng.choices(range(len(job.values)), weights=[1, *[2] * (len(job.values) - 1)])[0]
            self._refused[job.tool] = tuple(rng.sample(job.values, refused))
            self._needs[job.tool] = tuple(need for need in job.needs if rng.random() < self._needing)

    def _task(self, number: int) -> Task:
        rng = Random(f"task/{self.seed}/{number}")
        domains = rng.sample(sorted(self.domains), k=min(2, len(self.domains)))
        jobs = [job for name in domains for job in self.domains[name]]
        return Task(f"{'-'.join(domains)}-{number:02d}", tuple(rng.choices(jobs, k=rng.randint(4, 6))))

    def open(self, task: Task, seed: int | str) -> Environment:
        """A fresh session of ``task``; the same seed gives the same names, numbers and network errors."""
        return Environment(self, task, seed)

    def tool(self, name: str) -> str:
        return self._wording[name]

    def refuses(self, job: Job, value: object) -> bool:
        return any(value == refused and type(value) is type(refused) for refused in self._refused[job.tool])

    def needs(self, job: Job) -> tuple[str, ...]:
        return self._needs[job.tool]

    def helps(self, precondition: str) -> Remedy:
        return self._helps[precondition]


class Environment:
    """One session of one task: shows the next :class:`Step`, performs calls, and knows whether the goal was reached."""

    def __init__(self, world: World, task: Task, seed: int | str) -> None:
        self.world = world
        self.task = task
        self.seed = f"{world.seed}/{task.id}/{seed}"
        rng = Random(f"session/{self.seed}")
        common = {name: rng.choice(pool) for name, pool in world.catalogue.entities.items()}
        common["branch"] = f"fix-{rng.randint(100, 999)}"
        self._entities = [common | {"number": str(rng.randint(1000, 9999))} for _ in task.jobs]
        self._uses: dict[str, float] = {}
        self._reached: list[str] = []
        self.calls = 0
        self.budget = math.ceil(PATIENCE * len(task.jobs))
        self.goal = "; ".join(job.aim.format(**names) for job, names in zip(task.jobs, self._entities, strict=True))

    @property
    def succeeded(self) -> bool:
        return self._reached == [job.tool for job in self.task.jobs]

    @property
    def done(self) -> bool:
        return self.succeeded or self.calls >= self.budget

    @property
    def reached(self) -> int:
        return len(self._reached)

    @property
    def step(self) -> Step:
        if self.done:
            raise RuntimeError("the session is done: it has no next step")
        job, rng = self._job, Random(f"step/{self.seed}/{self.reached}")
        attempts = [
            Call(self.world.tool(job.tool), self._fill(job.arguments) | {job.choice: value}) for value in job.values
        ]
        preparations = [
            Call(self.world.tool(remedy.tool), self._fill(remedy.arguments))
            for need in job.needs
            for remedy in self.world.preconditions[need].remedies
        ]
        rng.shuffle(attempts)
        rng.shuffle(preparations)
        return Step(job.aim.format(**self._names), tuple(attempts), tuple(preparations))

    def solve(self) -> Call:
        """Return a call that makes progress (if the network does not fail): for tests and for training."""
        job = self._job
        for need in self.world.needs(job):
            if self._left(need) < 1:
                remedy = self.world.helps(need)
                return Call(self.world.tool(remedy.tool), self._fill(remedy.arguments))
        value = next(value for value in job.values if not self.world.refuses(job, value))
        return Call(self.world.tool(job.tool), self._fill(job.arguments) | {job.choice: value})

    def perform(self, call: Call) -> Reply:
        """Carry out ``call``. A call that fails changes nothing. Raises ``RuntimeError`` once the session is done."""
        if self.done:
            raise RuntimeError("the session is done: no call can be performed")
        noise = self._noise()
        self.calls += 1
        for jobs in self.world.domains.values():
            for job in jobs:
                if self.world.tool(job.tool) == call.tool:
                    return self._work(job, call, noise)
        return self._prepare(call, noise)

    @property
    def _job(self) -> Job:
        return self.task.jobs[self.reached]

    @property
    def _names(self) -> dict[str, str]:
        return self._entities[self.reached]

    def _fill(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value.format(**self._names) if isinstance(value, str) else value for name, value in arguments.items()
        }

    def _noise(self) -> dict[str, Any]:
        """Draw the numbers of the texts and the network error, by the position of the call and never by its content."""
        rng = Random(f"call/{self.seed}/{self.calls}")
        return {
            "network_error": rng.choice(self.world.catalogue.flaky) if rng.random() < self.world.flakiness else None,
            "n": rng.randint(2, 250),
            "ms": rng.randint(300, 90_000),
            "port": rng.randint(20_000, 60_000),
            "line": rng.randint(3, 400),
            "hex": f"{rng.getrandbits(32):08x}",
            "clock": f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}",
        }

    def _error(self, fault: Fault, noise: dict[str, Any], rule: str, value: object = None) -> Reply:
        return Reply("", fault.kind, fault.text.format(**self._names, **noise, value=value), rule)

    def _fact(self, need: str) -> str:
        about = self.world.preconditions[need].about
        return f"{need}/{self._names[about]}" if about else need

    def _left(self, need: str) -> float:
        return self._uses.get(self._fact(need), self.world.preconditions[need].held)

    def _work(self, job: Job, call: Call, noise: dict[str, Any]) -> Reply:
        network_error = noise["network_error"]
        if job.networked and network_error is not None:
            return self._error(network_error, noise, NETWORK)
        expected = {*job.arguments, job.choice}
        if call.arguments.keys() != expected:
            odd = sorted(expected ^ call.arguments.keys())[0]
            return self._error(
                Fault("TypeError", f"missing or unexpected argument '{odd}'"), noise, f"{call.tool}:arguments"
            )
        for need in self.world.needs(job):
            if self._left(need) < 1:
                return self._error(self.world.preconditions[need].fault, noise, f"{call.tool}:{need}")
        value = call.arguments[job.choice]
        if self.world.refuses(job, value) or value not in job.values:
            return self._error(job.refusal, noise, f"{call.tool}:{job.choice}", value)
        for need in self.world.needs(job):
            self._uses[self._fact(need)] = self._left(need) - 1
        result = job.result.format(**self._names, **noise)
        if job is self._job and call.arguments.items() >= self._fill(job.arguments).items():
            self._reached.append(job.tool)
        return Reply(result)

    def _prepare(self, call: Call, noise: dict[str, Any]) -> Reply:
        answer: Reply | None = None
        for need, precondition in self.world.preconditions.items():
            for remedy in precondition.remedies:
                if self.world.tool(remedy.tool) != call.tool:
                    continue
                if self._fill(remedy.arguments) != call.arguments:
                    answer = answer or Reply("nothing to do")
                elif remedy is self.world.helps(need):
                    self._uses[self._fact(need)] = precondition.lasts or math.inf
                    return Reply(remedy.result.format(**self._names, **noise))
                elif remedy.fault is not None:
                    answer = self._error(remedy.fault, noise, f"{call.tool}:{need}")
                else:
                    answer = Reply(remedy.result.format(**self._names, **noise))
        return answer or self._error(Fault("UnknownTool", f"no tool named '{call.tool}'"), noise, "unknown-tool")
