"""The scripted agents: habit without advice, remedies with it, and a journal that records what happened."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo.advisers import FleetAdviser, Journal, _remedy
from benchmarks.demo.agents import Mind, Tip, attend, closest, repeated
from benchmarks.demo.catalogue import CATALOGUE
from benchmarks.demo.world import Call, Environment, Reply, Step, Task, World
from fleetlore.advice.advice import Advice
from fleetlore.advice.changes import change_tip
from fleetlore.calls.model import Outlook
from fleetlore.wire.lore import MemoryItem
from tests.build import memory_item

PUSH = [Call("push", {"branch": "fix-1", "force": value}) for value in (True, False)]
PULL = Call("pull", {"branch": "fix-1"})
LOGIN = [Call("login", {"profile": name}) for name in ("deploy", "default")]
STEP = Step("push fix-1", tuple(PUSH), (PULL, *LOGIN))
ERROR = Reply("", "1", "rejected", "push:upstream")
STORM = Reply("", "503", "503 Service Unavailable", "network")
OK = Reply("done")


class Scripted:
    """An adviser with given answers."""

    def __init__(self, tips: dict[str, Tip] | None = None, predicted: Sequence[float | None] | None = None) -> None:
        self.tips = tips or {}
        self.predicted = predicted

    def advise(self, call: Call) -> Tip:
        return self.tips.get(call.key, self.tips.get(call.tool, Tip()))

    def predict(self, calls: Sequence[Call]) -> Sequence[float | None]:
        return self.predicted or [None] * len(calls)

    async def perform(self, call: Call, environment: Environment) -> Reply:
        return environment.perform(call)


def habit(agent: str = "a") -> list[Call]:
    """The two attempts, the preferred one first."""
    first = Mind(agent, Scripted()).choose(STEP)
    return [first, next(call for call in PUSH if call is not first)]


def test_habits_are_the_agents_own_and_do_not_depend_on_the_order_shown() -> None:
    backwards = Step(STEP.aim, STEP.attempts[::-1], STEP.preparations[::-1])
    for number in range(20):
        agent = f"agent-{number}"
        assert Mind(agent, Scripted()).choose(STEP) == Mind(agent, Scripted()).choose(backwards)
    assert len({habit(f"agent-{number}")[0].key for number in range(20)}) == 2


def test_a_habit_looks_at_the_choice_and_not_at_this_sessions_names() -> None:
    other = Step("push fix-2", tuple(Call("push", call.arguments | {"branch": "fix-2"}) for call in PUSH), ())
    for number in range(20):
        agent = f"agent-{number}"
        chosen = Mind(agent, Scripted()).choose(other)
        assert chosen.arguments["force"] == habit(agent)[0].arguments["force"]


def test_a_known_remedy_is_done_first_and_once() -> None:
    mind = Mind("a", Scripted({"push": Tip(0.9, (Call("pull", {"branch": "fix-77"}),))}))
    assert mind.choose(STEP) == PULL
    mind.take_in(STEP, PULL, OK, progress=False)
    assert mind.choose(STEP) == habit()[0]


def test_a_remedy_that_worked_earlier_in_the_session_counts_until_an_error_comes() -> None:
    mind = Mind("a", Scripted({"push": Tip(0.9, (PULL,))}))
    mind.take_in(STEP, PULL, OK, progress=False)
    mind.take_in(STEP, PUSH[0], OK, progress=True)
    assert mind.choose(STEP) == habit()[0]
    mind.take_in(STEP, habit()[0], ERROR, progress=False)
    assert mind.choose(STEP) == PULL


def test_other_arguments_that_helped_elsewhere_replace_the_habit() -> None:
    first, second = habit()
    remedy = Call("push", {"branch": "fix-9", "force": second.arguments["force"]})
    assert Mind("a", Scripted({"push": Tip(0.9, (remedy,))})).choose(STEP) == second
    same = Call("push", {"branch": "fix-9", "force": first.arguments["force"]})
    assert Mind("a", Scripted({"push": Tip(0.9, (same,))})).choose(STEP) == first


def test_a_remedy_that_failed_is_not_tried_again_for_the_same_subgoal() -> None:
    mind = Mind("a", Scripted({"push": Tip(0.9, (PULL,))}))
    mind.take_in(STEP, PULL, ERROR, progress=False)
    assert mind.choose(STEP) != PULL


def test_risk_and_policy_move_an_agent_only_when_they_are_clear() -> None:
    first, second = habit()
    clear = {first.key: Tip(0.8), second.key: Tip(0.1)}
    unclear = {first.key: Tip(0.5), second.key: Tip(0.4)}
    assert Mind("a", Scripted(clear)).choose(STEP) == second
    assert Mind("a", Scripted(unclear)).choose(STEP) == first
    assert Mind("a", Scripted(predicted=[0.9, 0.1])).choose(STEP) == second
    assert Mind("a", Scripted(predicted=[0.5, 0.4])).choose(STEP) == first
    assert Mind("a", Scripted(predicted=[None, 0.0])).choose(STEP) == first
    assert Mind("a", Scripted(predicted=[0.9, None])).choose(STEP) == first


def test_bad_weather_is_waited_out() -> None:
    mind = Mind("a", Scripted())
    call = mind.choose(STEP)
    mind.take_in(STEP, call, STORM, progress=False)
    assert mind.choose(STEP) == call
    mind.take_in(STEP, call, OK, progress=True)
    assert mind.choose(STEP) == call


def test_after_a_preparation_the_call_that_had_failed_comes_next() -> None:
    mind = Mind("a", Scripted())
    failed = mind.choose(STEP)
    mind.take_in(STEP, failed, ERROR, progress=False)
    mind.take_in(STEP, LOGIN[1], OK, progress=False)
    assert mind.choose(STEP) == failed


def test_without_advice_an_agent_tries_everything_it_can_think_of() -> None:
    mind = Mind("a", Scripted())
    tried = set()
    for _ in range(30):
        call = mind.choose(STEP)
        tried.add(call.key)
        mind.take_in(STEP, call, OK if call.tool != "push" else ERROR, progress=False)
    assert tried == {call.key for call in (*STEP.attempts, *STEP.preparations)}


def test_closest_goes_by_tool_and_argument_names_then_by_values() -> None:
    assert closest(Call("login", {"profile": "default"}), LOGIN) == LOGIN[1]
    assert closest(Call("login", {"profile": "sso"}), LOGIN) is None
    assert closest(Call("pull", {"branch": "other"}), [PULL, *LOGIN]) == PULL
    assert closest(Call("pull", {"ref": "fix-1"}), [PULL]) is None
    assert closest(Call("pull", {}), [PULL]) is None


@given(st.lists(st.sampled_from("abcd")))
def test_repeated_counts_all_but_the_first_of_each_fault(faults: list[str]) -> None:
    assert repeated(faults) == sum(fault in faults[:index] for index, fault in enumerate(faults))
    assert repeated(faults) == repeated(reversed(faults))


async def played(journal: Journal, *script: tuple[Call, Reply]) -> Journal:
    """Let the journal watch a session with a given script."""

    class Stage:
        replies = iter(reply for _, reply in script)

        def perform(self, call: Call) -> Reply:
            return next(self.replies)

    stage = Stage()
    for call, _ in script:
        await journal.perform(call, stage)  # type: ignore[arg-type]
    return journal


async def test_a_journal_remembers_the_call_in_between_or_the_other_arguments() -> None:
    prepared = await played(Journal(), (PUSH[0], ERROR), (LOGIN[1], ERROR), (PULL, OK), (PUSH[0], OK))
    assert prepared.advise(PUSH[1]) == Tip(0.5, (PULL,))
    changed = await played(Journal(), (PUSH[0], ERROR), (PUSH[1], OK))
    assert changed.advise(PUSH[0]).remedies == (PUSH[1],)


async def test_a_journal_keeps_weather_out_and_draws_nothing_across_sessions() -> None:
    stormy = await played(Journal(), (PUSH[0], STORM), (PULL, OK), (PUSH[0], OK))
    assert stormy.advise(PUSH[0]) == Tip(0.0, ())
    parted = await played(await played(Journal(), (PUSH[0], ERROR)), (PULL, OK), (PUSH[0], OK))
    assert parted.advise(PUSH[0]) == Tip(0.5, ())


async def test_an_error_that_stays_the_same_teaches_no_remedy() -> None:
    journal = await played(Journal(), (PUSH[0], ERROR), (PULL, OK), (PUSH[0], ERROR))
    assert journal.advise(PUSH[0]) == Tip(1.0, ())


async def total(world: World, journal_of: dict[str, Journal], sessions: int) -> tuple[int, float]:
    runs = [
        await attend(
            agent, world.open(world.tasks[(number * 7 + index) % len(world.tasks)], f"{agent}/{number}"), journal
        )
        for number in range(sessions)
        for index, (agent, journal) in enumerate(journal_of.items())
    ]
    return repeated(fault for run in runs for fault in run.faults), sum(run.succeeded for run in runs) / len(runs)


@pytest.mark.parametrize("seed", range(4))
async def test_a_memory_shared_by_all_avoids_most_of_what_private_ones_repeat(seed: int) -> None:
    world, names, one = World(seed), [f"agent-{number}" for number in range(20)], Journal()
    private, alone = await total(world, {name: Journal() for name in names}, 3)
    shared, together = await total(world, dict.fromkeys(names, one), 3)
    assert shared < private / 3
    assert together > alone


async def test_the_weather_is_not_counted_as_a_fault() -> None:
    world = World(0, domains=["api"], flakiness=0.9)
    job = CATALOGUE.domains["api"][0]
    run = await attend("a", world.open(Task("one", (job,)), 1), Journal())
    assert not [fault for fault in run.faults if fault == "network"]
    assert run.calls > len(run.faults)


def test_a_change_becomes_the_call_with_it() -> None:
    changed = _remedy(
        {"tool": "login", "change": ["profile", "default", "deploy"]}, Call("login", {"profile": "default"})
    )
    assert changed == Call("login", {"profile": "deploy"})


@pytest.mark.parametrize("remedy", [None, {"tool": "login"}])
def test_a_remedy_without_a_change_is_left_out(remedy: dict[str, object] | None) -> None:
    assert _remedy(remedy, PUSH[0]) is None


class FakeSession:
    """Stands in for `fleetlore.agent.fleet.Session`: given advice, and a record of what was reported."""

    def __init__(self, advice: Advice, foreseen: Outlook | None = None) -> None:
        self.given = advice
        self.foreseen = foreseen
        self.reported: list[tuple[str, object, object]] = []

    def advise(self, tool: str, arguments: object) -> Advice:
        return self.given

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        return [self.foreseen] * len(calls)

    @contextlib.asynccontextmanager
    async def action(self, tool: str, arguments: object) -> AsyncIterator[FakeAction]:
        action = FakeAction()
        yield action
        self.reported.append((tool, action.error, action.result))


class FakeAction:
    def __init__(self) -> None:
        self.result: object = None
        self.error: object = None

    def fail(self, error_type: str, message: str) -> None:
        self.error = (error_type, message)


def recovery(remedy: dict[str, Any] | None) -> MemoryItem:
    return memory_item("1", remedy=remedy)


async def test_the_fleets_advice_becomes_tips_and_every_call_is_reported() -> None:
    items = (recovery({"tool": "push", "change": ["branch", "fix-1", "fix-2"]}), recovery(None))
    tips = tuple(change_tip(item, "changed") for item in items)
    session: Any = FakeSession(Advice(tips, risk=0.7), Outlook(0.2, None))
    adviser = FleetAdviser(session)
    assert adviser.advise(PUSH[0]) == Tip(0.7, (Call("push", {**PUSH[0].arguments, "branch": "fix-2"}),))
    assert adviser.predict(PUSH) == [0.2, 0.2]
    world = World(0, flakiness=0.0)
    environment = world.open(world.tasks[0], 1)
    working, unknown = environment.solve(), Call("no_such_tool", {})
    first, second = await adviser.perform(working, environment), await adviser.perform(unknown, environment)
    assert session.reported == [
        (working.tool, None, first.result),
        ("no_such_tool", (second.error_type, second.error_message), None),
    ]


def test_a_call_the_fleet_knows_nothing_of_has_no_risk_and_without_a_policy_nothing_is_predicted() -> None:
    session: Any = FakeSession(Advice())
    adviser = FleetAdviser(session)
    assert adviser.advise(PUSH[0]) == Tip(0.0, ())
    assert adviser.predict(PUSH) == [None, None]
