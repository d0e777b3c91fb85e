"""The arms differ by what they read, learn only from what they are given, and have independent twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.demo.world import Call, Reply
from benchmarks.evaluate.arms.memory import LogOnly, Memory, NoMemory, Recall, Situation
from benchmarks.evaluate.arms.raw_episodes import STRIDE, WINDOW, RawEpisodes
from benchmarks.evaluate.arms.reading import stories
from benchmarks.evaluate.arms.reasoning_bank import MOST_ITEMS, ReasoningBank
from benchmarks.evaluate.arms.weights import Weights
from benchmarks.evaluate.fleet_arm import FleetBoth, FleetText
from benchmarks.evaluate.runner import Plan, evaluate, follow, history, shuffled
from benchmarks.evaluate.worlds.recorded import Recorded, step_of
from benchmarks.evaluate.worlds.tool_world import ToolWorld
from benchmarks.evaluate.worlds.world import Task
from fleetlore.retrieval.encoder import shared_encoder

PUSH = Call("push", {"branch": "fix-1", "force": False})
PULL = Call("pull", {"rebase": True})
OK, REJECTED = Reply("done"), Reply("", "1", "rejected: fetch first")


def recorded(id: str, *steps: tuple[Call, Reply], goal: str = "push the branch", succeeded: bool = True) -> Recorded:
    return Recorded(id, f"agent-of-{id}", "push", goal, 0, steps, succeeded, 2, 8)


RECOVERED = recorded("s1", (PUSH, REJECTED), (PULL, OK), (PUSH, OK))


def situation(goal: str = "push the branch", *steps: tuple[Call, Reply]) -> Situation:
    found = Situation("now", "me", "push", goal, goal)
    found.steps = [step_of(place + 1, *step) for place, step in enumerate(steps)]
    found.candidates = [PUSH, PULL]
    return found


def texts(memory: Memory, where: Situation) -> list[str]:
    return [note.text for note in memory.recall(where).notes]


async def test_arms_without_a_store_say_nothing() -> None:
    for memory in (NoMemory(), LogOnly()):
        await memory.learn(RECOVERED)
        assert memory.recall(situation()) == Recall()
    assert not NoMemory().keeps_log and LogOnly().keeps_log


async def test_raw_episodes_give_the_nearest_windows_as_they_were() -> None:
    memory = RawEpisodes(shared_encoder())
    assert texts(memory, situation()) == []
    await memory.learn(RECOVERED)
    await memory.learn(recorded("s2", (Call("mail.send", {"to": "a@example.org"}), OK), goal="mail the report"))
    first = texts(memory, situation("push fix-1", (PUSH, REJECTED)))[0]
    assert first.splitlines() == [
        'push({"branch":"fix-1","force":false}) -> error 1: rejected: fetch first',
        'pull({"rebase":true}) -> ok',
        'push({"branch":"fix-1","force":false}) -> ok',
    ]
    assert [told.worked for told in stories(first)[0]] == [False, True, True]


async def test_long_sessions_are_cut_into_overlapping_windows() -> None:
    memory = RawEpisodes(shared_encoder())
    await memory.learn(recorded("s", *[(Call(f"t{n}", {}), OK) for n in range(20)]))
    found = texts(memory, situation())
    assert all(len(text.splitlines()) <= WINDOW for text in found)
    assert {line for text in found for line in text.splitlines()} == {f"t{n}({{}}) -> ok" for n in range(20)}
    assert len(found) == (20 - STRIDE + STRIDE - 1) // STRIDE


async def test_reasoning_bank_gives_the_record_of_the_nearest_goal_for_the_whole_session() -> None:
    memory = ReasoningBank(shared_encoder())
    await memory.learn(RECOVERED)
    await memory.learn(recorded("s2", (Call("mail.send", {"to": "x"}), OK), goal="mail the report of the stock"))
    where = situation("push another branch")
    assert texts(memory, where) == []  # given at the start, never later
    await memory.begin(where)
    [record] = texts(memory, where)
    assert "push(" in record and "mail" not in record
    where.aim = "mail something"
    assert texts(memory, where) == [record]
    assert 1 <= record.count("\n- ") + 1 <= MOST_ITEMS
    assert stories(record)


async def test_reasoning_bank_appends_and_never_merges() -> None:
    memory = ReasoningBank(shared_encoder())
    for number in range(3):
        await memory.learn(replace(RECOVERED, id=f"s{number}"))
    assert len(memory.records) == 3


@pytest.mark.parametrize("make", [RawEpisodes, ReasoningBank])
async def test_a_twin_learns_on_by_itself(make: type[RawEpisodes] | type[ReasoningBank]) -> None:
    memory = make(shared_encoder())
    await memory.learn(RECOVERED)
    twin = await memory.twin()
    await twin.learn(recorded("s2", (Call("mail.send", {}), OK), goal="mail"))
    where = situation("mail")
    for each in (memory, twin):
        await each.begin(where)
    assert texts(memory, where) != texts(twin, where)
    assert twin.encoder is memory.encoder


async def test_weights_abstain_until_a_version_has_passed_and_twins_share_no_learner() -> None:
    memory = Weights()
    await memory.learn(RECOVERED)
    await memory.begin(situation())
    assert memory.recall(situation()).risks == [None, None]
    twin = await memory.twin()
    assert twin.calls is not memory.calls


async def test_agents_hear_the_call_model_with_text_and_without_and_text_alone_does_not() -> None:
    text, weights = FleetText(), Weights()
    both = FleetBoth(text, weights, shares=True)
    forced = Call("push", {"branch": "fix-1", "force": True})
    asked = situation()
    asked.candidates = [PUSH, forced]
    for number in range(60):
        lived = RECOVERED if number % 2 else recorded("s", (forced, OK))
        told = replace(lived, id=f"s{number}", agent=f"agent-{number % 4}")
        await text.learn(told)
        await weights.learn(told)
    for arm in (weights, both, await both.twin(), await weights.twin()):
        await arm.begin(asked)
        fails, works = arm.recall(asked).risks
        assert fails is not None and works is not None and fails > 0.8 > 0.2 > works
    await text.begin(situation())
    assert text.recall(situation()).risks == ()
    assert "will likely fail" not in "".join(texts(text, situation()))


def test_a_recorded_session_is_judged_by_its_environment() -> None:
    judgment = RECOVERED.judgment()
    assert (judgment.verdict.label, judgment.verdict.source) == ("success", "reward")
    assert [step.failed for step in judgment.trajectory.calls] == [True, False, False]


def test_orders_are_shuffles_of_all_tasks() -> None:
    tasks = [Task(str(number), "d") for number in range(6)]
    orders = [shuffled(tasks, 0, order, 6) for order in range(4)]
    assert all(sorted(order, key=lambda task: task.id) == tasks for order in orders)
    assert len({tuple(task.id for task in order) for order in orders}) > 1
    assert len(shuffled(tasks, 0, 0, 15)) == 15


class Spy(Memory):
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.learned: list[Recorded] = []

    async def learn(self, recorded: Recorded) -> None:
        self.learned.append(recorded)


async def test_all_arms_learn_from_the_same_past_and_meet_the_same_sessions() -> None:
    world = ToolWorld(0, jobs=3)
    plan = Plan(arms=("a", "b"), seeds=(0,), orders=2, history=3, measured=4, forgetting_seeds=0)
    made: dict[str, Spy] = {}

    def arms(names: Sequence[str]) -> dict[str, Memory]:
        made.update({name: Spy() for name in names})
        return dict(made)

    results = await evaluate(lambda seed: world, plan, arms, lambda done: None)
    assert made["a"].learned == made["b"].learned == await history(world, 0, plan)
    assert {name: len(runs[0]) for name, runs in results.runs.items()} == {"a": 2, "b": 2}
    same = [
        {row: value for row, value in runs[0][0].items() if row != "overhead_percent"} for runs in results.runs.values()
    ]
    assert same[0] == pytest.approx(same[1], nan_ok=True)
    assert results.forgetting == {"a": [], "b": []}


async def test_the_past_has_met_half_of_the_tasks_and_the_rules_drift_in_the_middle() -> None:
    world = ToolWorld(0, jobs=3)
    plan = Plan(arms=("a",), history=20, measured=8)
    assert {session.task for session in await history(world, 0, plan)} <= {task.id for task in world.tasks[::2]}
    opened: list[int] = []

    class Watched:
        name, tasks, epochs, parts = world.name, world.tasks, world.epochs, world.parts

        def open(self, task: Task, seed: str, epoch: int) -> object:
            opened.append(epoch)
            return world.open(task, seed, epoch)

    await follow(Watched(), 0, 0, plan, LogOnly())  # type: ignore[arg-type]
    assert opened == [0] * 4 + [1] * 4
