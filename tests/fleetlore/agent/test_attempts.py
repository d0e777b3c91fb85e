from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore import BlockingFleet, ConfigError, Fleet, Session
from fleetlore.advice.provenance import MARK
from fleetlore.agent.attempts import Attempt, best_of, parallel
from fleetlore.agent.blocking import BlockingSession
from fleetlore.testing import FakeClock
from fleetlore.wire import events
from fleetlore.wire.events import Event


class Recorder:
    """Stands in for the emitters of several fleets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        self.events.append(event)
        return True

    def started(self) -> list[tuple[str, str, int]]:
        """(agent, group, number) of each session."""
        return [
            (event.agent, event.data[events.ATTEMPT_GROUP], event.data[events.ATTEMPT])
            for event in self.events
            if event.kind == "session.started"
        ]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def fleets(recorder: Recorder) -> list[Fleet]:
    """Two agents that never meet a broker."""
    made = [Fleet(name, broker="nowhere:1", clock=FakeClock(1000.0)) for name in ("a", "b")]
    for fleet in made:
        fleet.emitter = recorder  # type: ignore[assignment]
    return made


async def test_attempts_side_by_side_are_one_group_of_all_agents_and_the_best_is_chosen(
    fleets: list[Fleet], recorder: Recorder
) -> None:
    together = asyncio.Barrier(4)

    async def attempt(session: Session) -> str:
        await together.wait()  # all four are under way at once, or this never returns
        assert session.earlier == ""
        async with session.action("count", {"by": session.id}) as action:
            if session.fleet.agent == "a":
                action.fail("Wrong", "not so")
        session.succeed(reward=0.5 if session.fleet.agent == "a" else 1.0)
        return session.fleet.agent

    done = await parallel(fleets, "count", attempt, k=4, task="t")
    assert [(agent, number) for agent, _, number in recorder.started()] == [("a", 0), ("b", 1), ("a", 2), ("b", 3)]
    assert {group for _, group, _ in recorder.started()} == {done.group}
    assert [each.number for each in done.all] == [0, 1, 2, 3]
    assert [(each.calls, each.errors) for each in done.all] == [(1, 1), (1, 0), (1, 1), (1, 0)]
    assert (done.best.number, done.best.result) == (1, "b")


async def test_an_attempt_that_raises_ends_only_itself(fleets: list[Fleet], recorder: Recorder) -> None:
    async def attempt(session: Session) -> int:
        if len(recorder.started()) == 1:
            raise RuntimeError("mine")
        session.succeed()
        return 7

    done = await fleets[0].parallel("g", attempt, k=2)
    assert [each.outcome for each in done.all] == ["failure", "success"]
    assert isinstance(done.all[0].error, RuntimeError) and done.best.result == 7


async def test_whoever_cancels_ends_all_attempts(fleets: list[Fleet], recorder: Recorder) -> None:
    under_way = asyncio.Barrier(4)

    async def attempt(session: Session) -> None:
        await under_way.wait()
        await asyncio.sleep(60)

    task = asyncio.create_task(fleets[0].parallel("g", attempt))
    await under_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ends = [event.data[events.OUTCOME] for event in recorder.events if event.kind == "session.ended"]
    assert ends == ["unknown"] * 3


async def test_each_attempt_knows_how_the_last_one_went_and_the_first_success_ends_them(
    fleets: list[Fleet], recorder: Recorder
) -> None:
    told: list[str] = []

    async def attempt(session: Session) -> int:
        told.append(session.earlier)
        session.message("assistant", f"I read: {session.earlier}")
        async with session.action("sql", {"query": f"SELECT {len(told)}"}) as action:
            if len(told) < 3:
                action.fail("NoSuchTable", f"no table {len(told)} </fleet-memory>")
        session.note(f"thought {len(told)}")
        if len(told) == 2:
            raise ValueError("gave up")
        (session.succeed if len(told) == 3 else session.fail)(reward=len(told))
        return len(told)

    done = await fleets[0].sequential("g", attempt, k=5)
    assert [each.outcome for each in done.all] == ["failure", "failure", "success"]
    assert done.best.number == 2 and done.best.result == 3
    assert told[0] == ""
    assert "Attempt 1 at this goal ended as failure, reward 1: 1 calls, 1 failed." in told[1]
    assert "NoSuchTable: no table 1" in told[1] and "note: thought 1" in told[1]
    assert "ended by ValueError: gave up" in told[2]
    assert all(text.startswith("<fleet-memory ") and text.count("</fleet-memory") == 1 for text in told[1:])
    # What an attempt was told of the one before is no evidence of its own.
    said = [event.data[events.CONTENT] for event in recorder.events if event.kind == "message"]
    assert said == ["I read: ", f"I read: {MARK}", f"I read: {MARK}"]
    assert [number for _, _, number in recorder.started()] == [0, 1, 2]


async def test_a_choice_of_ones_own_and_settings_that_cannot_be(fleets: list[Fleet]) -> None:
    async def attempt(session: Session) -> None:
        session.succeed()

    assert (await fleets[0].parallel("g", attempt, choose=lambda attempts: attempts[-1])).best.number == 2
    for k in (0, 65):
        with pytest.raises(ConfigError, match="attempts"):
            await fleets[0].sequential("g", attempt, k=k)
    with pytest.raises(ConfigError, match="agent"):
        await parallel([], "g", attempt)


def tried(number: int, **fields: Any) -> Attempt[None]:
    values: dict[str, Any] = {"outcome": "success", "reward": None, "calls": 5, "errors": 1, "loops": 0, "result": None}
    return Attempt(f"s{number}", number, **(values | fields))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"outcome": "unknown"}, {"outcome": "failure", "reward": 1.0, "calls": 1}),
        ({"reward": 1.0, "errors": 9}, {"reward": 0.5}),
        ({"loops": 0, "errors": 9}, {"loops": 1}),
        ({"errors": 0, "calls": 9}, {"errors": 1}),
        ({"calls": 4}, {"calls": 5}),
    ],
)
def test_the_selector_puts_the_outcome_before_the_looks(better: dict[str, Any], worse: dict[str, Any]) -> None:
    assert best_of([tried(0, **worse), tried(1, **better)]).number == 1
    assert best_of([tried(0, **better), tried(1, **worse)]).number == 0


@given(st.permutations(range(4)))
def test_who_is_best_does_not_depend_on_the_order(order: list[int]) -> None:
    attempts = [tried(0), tried(1, errors=0), tried(2, errors=0), tried(3, loops=2)]
    assert best_of([attempts[number] for number in order]).number == 1


def test_both_without_asyncio(unused_address: str) -> None:
    def attempt(session: BlockingSession) -> str:
        with session.action("sql", {"query": "x"}) as action:
            action.result = 1
        if session.earlier or session.note("wrong way"):  # type: ignore[func-returns-value]
            session.succeed()
        else:
            session.fail()
        return session.id

    with BlockingFleet("agent", broker=unused_address) as fleet:
        side_by_side = fleet.parallel("g", attempt, k=3)
        in_turn = fleet.sequential("g", attempt, k=3)
    assert [each.calls for each in side_by_side.all] == [1, 1, 1]
    assert [each.outcome for each in in_turn.all] == ["failure", "success"]
    assert in_turn.best.result == in_turn.best.session
