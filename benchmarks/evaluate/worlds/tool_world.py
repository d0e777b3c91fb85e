"""Make the project's own tool world one of the evaluation: ten domains, tasks of at least 30 steps, drift, injected
faults.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.demo.world import Call, Reply
from benchmarks.evaluate.worlds.long_catalogue import LONG_CATALOGUE
from benchmarks.evaluate.worlds.long_world import LongEnvironment, LongWorld
from benchmarks.evaluate.worlds.world import Proposal, Task

SERVES = 4.0
PREPARES = 1.0
FORBIDDEN = 1.0
SHORT_JOBS = 5


class ToolSession:
    """A session of the long world. A call that serves the subgoal seems likelier to an agent than one that prepares it,
    and a forbidden one unlikely: agents come to it by a slip or a habit, and what makes it usual is that it pays.
    """

    def __init__(self, inner: LongEnvironment) -> None:
        self._inner = inner
        self.goal = inner.goal
        self.shortest = inner.shortest
        self.budget = inner.budget

    @property
    def aim(self) -> str:
        return self._inner.step.aim

    @property
    def calls(self) -> int:
        return self._inner.calls

    @property
    def progress(self) -> int:
        return self._inner.reached

    @property
    def done(self) -> bool:
        return self._inner.done

    @property
    def succeeded(self) -> bool:
        return self._inner.succeeded

    def proposals(self) -> Sequence[Proposal]:
        step = self._inner.step
        return [
            *(Proposal(call, SERVES) for call in step.attempts),
            *(Proposal(call, PREPARES) for call in step.preparations),
            *(Proposal(call, FORBIDDEN) for call in self._inner.forbidden_calls),
        ]

    def perform(self, call: Call) -> Reply:
        return self._inner.perform(call)

    def solve(self) -> Call:
        return self._inner.solve()


class ToolWorld:
    """See the module. Raises KeyError for an unknown domain."""

    name = "tools"
    epochs = 2

    def __init__(
        self, seed: int, *, domains: Sequence[str] | None = None, jobs: int = 30, shortcuts: bool = False
    ) -> None:
        self._seed = seed
        self._shortcuts = shortcuts
        restarts = 2 if jobs >= 10 else 0
        self._worlds = [
            LongWorld(seed, epoch=epoch, domains=domains, jobs=jobs, restarts=restarts, shortcuts=shortcuts)
            for epoch in range(self.epochs)
        ]
        self._tasks = {task.id: task for task in self._worlds[0].tasks}
        self.tasks = [Task(task.id, task.id.rpartition("-")[0]) for task in self._worlds[0].tasks]

    def open(self, task: Task, seed: str, epoch: int) -> ToolSession:
        return ToolSession(self._worlds[epoch].open(self._tasks[task.id], seed))

    def parts(self) -> tuple[ToolWorld, ToolWorld]:
        """Half of the domains each, in tasks of a few subgoals."""
        names = sorted(LONG_CATALOGUE.domains)
        half = len(names) // 2
        return (
            ToolWorld(self._seed, domains=names[:half], jobs=SHORT_JOBS, shortcuts=self._shortcuts),
            ToolWorld(self._seed, domains=names[half:], jobs=SHORT_JOBS, shortcuts=self._shortcuts),
        )
