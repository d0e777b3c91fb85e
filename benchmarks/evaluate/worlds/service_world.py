"""Make a second world of tools, whose failures are not of the kinds that fleetlore counts.

Each seed draws services with jobs, and every job its rule. Against `tools`, whose errors name their cause and each have
one remedy:

* **by region**: which value a job takes may depend on the region that it is for, and not on the value alone;
* **in two calls**: what a job needs may be set up by two calls in an order; the second alone works and sets up nothing;
* **late**: a wrong value may be accepted, and the call that applies it fails;
* **silent**: a wrong value may be answered with success, and nothing is done;
* **opaque**: an error's text is one of its service, whatever went wrong.

About half of the jobs have other rules in epoch 1. Everything follows from the world's seed, the task, the session's
seed, the epoch and the calls made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from benchmarks.demo.world import NETWORK
from benchmarks.evaluate.worlds.world import Call, Proposal, Reply, Task

SERVICES = ("archive", "billing", "catalog", "depot", "fleet", "ledger", "mailroom", "quotas")
VERBS = ("close", "grant", "issue", "merge", "move", "renew", "split", "trace", "void")
NOUNS = ("batch", "contract", "label", "order", "permit", "record", "seat", "voucher")
OPTIONS = ("channel", "class", "mode", "plan", "policy", "tier")
VALUES = ("amber", "basic", "cobalt", "direct", "extra", "fixed", "grey", "hybrid", "inner", "joint", "keyed", "light")
STEPS = ("enroll", "unseal")
REGIONS = ("east", "north", "south", "west")
OPAQUE = (
    "operation failed (reference {hex})",
    "request {hex} could not be completed",
    "error {number}: contact the administrator",
)
SERVICE_JOBS = 3
TASK_SERVICES = 3
TASKS = 24
JOBS = 24
SHORT_JOBS = 5
# The budget, in shortest ways: about the median need of an agent with its own log alone (5.4).
SLACK = 5.0
FLAKINESS = 0.04
DRIFTING = 0.5
NEEDING = 0.4
LASTS = (4, 8)
SERVES, APPLIES, PREPARES = 4.0, 2.0, 1.0

Wrong = Literal["error", "late", "silent"]


@dataclass(frozen=True, slots=True)
class Job:
    """One kind of subgoal and its rule.

    Attributes:
        takes: by region, the value that it takes.
        needs: the two calls, in order, that set up what it needs; None where it needs nothing.
        lasts: uses that these are good for.
        wrong: what comes of another value.
    """

    service: str
    verb: str
    noun: str
    option: str
    values: tuple[str, ...]
    takes: dict[str, str]
    needs: tuple[str, str] | None
    lasts: int
    wrong: Wrong

    @property
    def tool(self) -> str:
        return f"{self.service}_{self.verb}"

    @property
    def apply(self) -> str:
        return f"{self.service}_apply"


class ServiceWorld:
    """See the module."""

    name = "services"
    epochs = 2

    def __init__(self, seed: int, *, services: Sequence[str] = SERVICES, jobs: int = JOBS) -> None:
        self.seed = seed
        self._jobs_a_task = jobs
        self._services = tuple(services)
        self._jobs = [{name: _jobs(seed, epoch, name) for name in self._services} for epoch in range(self.epochs)]
        self._opaque = {name: Random(f"opaque/{seed}/{name}").choice(OPAQUE) for name in self._services}
        self._plans = dict(self._plan(number) for number in range(TASKS))
        self.tasks = [Task(id, id.rpartition("-")[0]) for id in self._plans]

    def _plan(self, number: int) -> tuple[str, list[tuple[str, int]]]:
        """Id of a task, and its subgoals: service, and which of its jobs."""
        rng = Random(f"services/{self.seed}/{number}")
        names = rng.sample(self._services, k=min(TASK_SERVICES, len(self._services)))
        chosen = [(rng.choice(names), rng.randrange(SERVICE_JOBS)) for _ in range(self._jobs_a_task)]
        return f"{'-'.join(names)}-{number:02}", chosen

    def open(self, task: Task, seed: str, epoch: int) -> ServiceSession:
        jobs = [self._jobs[epoch][name][place] for name, place in self._plans[task.id]]
        return ServiceSession(jobs, self._opaque, f"{self.seed}/{task.id}/{seed}")

    def parts(self) -> tuple[ServiceWorld, ServiceWorld]:
        """Half of the services each, in tasks of a few subgoals."""
        half = len(self._services) // 2
        return (
            ServiceWorld(self.seed, services=self._services[:half], jobs=SHORT_JOBS),
            ServiceWorld(self.seed, services=self._services[half:], jobs=SHORT_JOBS),
        )


def _jobs(seed: int, epoch: int, service: str) -> list[Job]:
    """The jobs of a service; names stay in every epoch."""
    naming = Random(f"service/{seed}/{service}")
    found = []
    for verb in naming.sample(VERBS, SERVICE_JOBS):
        noun, option, values = naming.choice(NOUNS), naming.choice(OPTIONS), tuple(naming.sample(VALUES, 3))
        rule = Random(f"rule/{seed}/{service}/{verb}/{epoch if naming.random() < DRIFTING else 0}")
        by_region = rule.random() < 0.5
        one = rule.choice(values)
        takes = {region: rule.choice(values) if by_region else one for region in REGIONS}
        first, second = rule.sample(STEPS, 2)
        needs = (first, second) if rule.random() < NEEDING else None
        wrong: Wrong = rule.choice(("error", "late", "silent"))
        found.append(Job(service, verb, noun, option, values, takes, needs, rule.randint(*LASTS), wrong))
    return found


class ServiceSession:
    """One session of a task. A call that serves the subgoal seems likelier to an agent than one that prepares it."""

    def __init__(self, jobs: Sequence[Job], opaque: dict[str, str], seed: str, flakiness: float = FLAKINESS) -> None:
        rng = Random(f"session/{seed}")
        self._jobs = list(jobs)
        self._opaque = opaque
        self._seed = seed
        self._flakiness = flakiness
        self._of = [(rng.choice(REGIONS), str(rng.randint(1000, 9999))) for _ in jobs]
        self._begun: set[tuple[str, str]] = set()  # service and first call
        self._uses: dict[tuple[str, str, str], int] = {}  # of service and both calls
        self._staged: bool | None = None  # whether what was accepted and not applied yet has the right value
        self.progress = 0
        self.calls = 0
        aims = [self._aim(place) for place in range(min(4, len(jobs)))]
        self.goal = f"{'; '.join(aims)}; and {len(jobs) - len(aims)} more"
        self.shortest = self._shortest() if flakiness else 0
        self.budget = math.ceil(SLACK * self.shortest) if flakiness else 100 * len(jobs)

    def _shortest(self) -> int:
        """Calls of the way that `solve` shows, in a session like this one without weather."""
        calm = ServiceSession(self._jobs, self._opaque, self._seed, flakiness=0.0)
        while not calm.done:
            calm.perform(calm.solve())
        return calm.calls

    def _aim(self, place: int) -> str:
        job, (region, number) = self._jobs[place], self._of[place]
        return f"{job.verb} {job.noun} {number} of {region} in {job.service}"

    @property
    def aim(self) -> str:
        return self._aim(self.progress)

    @property
    def succeeded(self) -> bool:
        return self.progress == len(self._jobs)

    @property
    def done(self) -> bool:
        return self.succeeded or self.calls >= self.budget

    @property
    def _job(self) -> Job:
        return self._jobs[self.progress]

    def _serving(self, value: str) -> Call:
        job, (region, number) = self._job, self._of[self.progress]
        return Call(job.tool, {job.noun: number, "region": region, job.option: value})

    def _applying(self) -> Call:
        return Call(self._job.apply, {"item": self._of[self.progress][1]})

    def _preparing(self, step: str) -> Call:
        return Call(f"{self._job.service}_{step}", {"scope": self._job.noun})

    def proposals(self) -> Sequence[Proposal]:
        found = [
            *(Proposal(self._serving(value), SERVES) for value in self._job.values),
            Proposal(self._applying(), APPLIES),
            *(Proposal(self._preparing(step), PREPARES) for step in STEPS),
        ]
        Random(f"step/{self._seed}/{self.progress}").shuffle(found)
        return found

    def solve(self) -> Call:
        job = self._job
        if self._staged:
            return self._applying()
        if job.needs is not None and not self._uses.get((job.service, *job.needs)):
            first, second = job.needs
            return self._preparing(second if (job.service, first) in self._begun else first)
        return self._serving(job.takes[self._of[self.progress][0]])

    def perform(self, call: Call) -> Reply:
        """Carry out a call that was proposed; one that fails changes nothing, but for what was to be applied."""
        rng = Random(f"call/{self._seed}/{self.calls}")
        weather, noise = rng.random() < self._flakiness, {"hex": f"{rng.getrandbits(32):08x}"}
        noise["number"] = str(rng.randint(100, 999))
        self.calls += 1
        if weather:
            return Reply("", "Timeout", "the connection timed out", NETWORK)
        job, step = self._job, call.tool.removeprefix(f"{self._job.service}_")
        failed = Reply("", "Error", self._opaque[job.service].format(**noise), call.tool)
        if step in STEPS:
            self._prepare(job.service, step)
            return Reply(f"done ({noise['hex']})")
        if step == "apply":
            staged, self._staged = self._staged, None
            return self._reached(job, noise) if staged else failed
        if job.needs is not None and not self._uses.get((job.service, *job.needs)):
            return failed
        right = call.arguments[job.option] == job.takes[call.arguments["region"]]
        if job.wrong == "late":
            self._staged = right
            return Reply(f"accepted ({noise['hex']})")
        if right:
            return self._reached(job, noise)
        return failed if job.wrong == "error" else Reply(f"done ({noise['hex']})")

    def _prepare(self, service: str, step: str) -> None:
        for job in self._jobs:
            if (
                job.service == service
                and job.needs is not None
                and job.needs[1] == step
                and (service, job.needs[0]) in self._begun
            ):
                key = (service, *job.needs)
                self._uses[key] = max(self._uses.get(key, 0), job.lasts)
        self._begun = {each for each in self._begun if each[0] != service} | {(service, step)}

    def _reached(self, job: Job, noise: dict[str, str]) -> Reply:
        if job.needs is not None:
            self._uses[job.service, *job.needs] -= 1
        self.progress += 1
        self._staged = None
        return Reply(f"done ({noise['hex']})")
