"""Ask for one call from the same state in every arm: the first call, and the call after the first failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

from benchmarks.living.agent import CALLS, Told, opening, propose, reply
from benchmarks.living.llm.model import WORKERS, Message, Model
from benchmarks.living.past import seed_of
from benchmarks.living.world import Call, Ran, Task, World

# Draws of the model from each state: one draw gave 29 % and another 33 % of the same states with the same text.
DRAWS = 3

Makes = Mapping[str, Callable[[Task, str], Told]]


class State(NamedTuple):
    """The advice for a model, and its call.

    Attributes:
        before: the call that it is compared with: the first one told nothing, or the one that failed.
    """

    task: Task
    arm: str
    told: str
    before: Call
    call: Call
    ran: Ran


class _Asked(NamedTuple):
    task: Task
    arm: str
    told: str
    messages: list[Message]
    seed: int
    before: Call


def first_calls(world: World, tasks: Sequence[Task], model: Model, makes: Makes, seed: int, draws: int) -> list[State]:
    """`draws` calls of each task, in the order of the tasks, the draws and the arms."""
    alone = dict(zip(tasks, _drawn(world, model, [_alone(world, each, seed) for each in tasks]), strict=True))

    def states() -> Iterator[_Asked]:
        for task, draw in product(tasks, range(draws)):
            for arm, make in makes.items():
                told = make(task, f"first/{task.id}/{draw}")
                text = told.start()
                told.end(False)
                said = opening(world, task, text, told.first)
                yield _Asked(task, arm, text, said, seed_of(seed, task, draw), alone[task])

    return _answered(world, model, list(states()))


def calls_after_failure(
    world: World, tasks: Sequence[Task], model: Model, makes: Makes, seed: int, draws: int
) -> list[State]:
    """The same for tasks whose first call fails without advice."""
    first = dict(zip(tasks, _drawn(world, model, [_alone(world, each, seed) for each in tasks]), strict=True))

    def states() -> Iterator[_Asked]:
        for (task, call), draw in product(first.items(), range(draws)):
            ran = world.run(task, call)
            if not ran.error:
                continue
            for arm, make in makes.items():
                told = make(task, f"failed/{task.id}/{draw}")
                text = told.start() if told.once else told.after(call, ran)
                told.end(False)
                began = opening(world, task, "", told.first)
                said = [*began, ("assistant", str(call)), reply(task, ran, text, CALLS - 1)]
                yield _Asked(task, arm, text, said, seed_of(seed, task, draw) + 1, call)

    return _answered(world, model, list(states()))


def _alone(world: World, task: Task, seed: int) -> tuple[list[Message], int]:
    return opening(world, task, ""), seed_of(seed, task)


def _answered(world: World, model: Model, states: Sequence[_Asked]) -> list[State]:
    calls = _drawn(world, model, [(each.messages, each.seed) for each in states])
    return [
        State(each.task, each.arm, each.told, each.before, call, world.run(each.task, call))
        for each, call in zip(states, calls, strict=True)
    ]


def _drawn(world: World, model: Model, asked: Sequence[tuple[list[Message], int]]) -> list[Call]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(lambda each: propose(world, model, *each), asked))
