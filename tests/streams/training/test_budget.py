"""The trainer's share of a core holds in any 10 s, by a virtual clock that the trainer's own CPU moves."""

import asyncio
import importlib
import sys
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.testing import FakeClock
from fleetlore.wire.trajectory import Trajectory
from models.calls.gate import GateReport
from models.calls.training import TrainedCalls
from sinks.metrics import Metrics
from streams.training.trainer import CallsTrainer
from streams.training.window import CpuBudget
from tests.build import call, trajectory

SHARE, WINDOW_SECONDS = 0.25, 10.0
# The load of 7,500 events/s, with a tenth of the sessions that cost ten times as much: the window holds 13 s of them.
RATE, SESSIONS = 75.0, 1_000
LEARN, READ, VERSION, GATE = 0.026, 0.0004, 0.2, 0.05
# A session is learned within 20 s of its end, and the stages before the trainer need up to 9 s of them at full load.
OLDEST = 11.0


class Machine:
    """A free core: whatever is spent passes on the clock too, and while a thread sleeps the rest goes on."""

    def __init__(self) -> None:
        self.clock, self.cpu = FakeClock(), 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        self.times, self.spent = [0.0], [0.0]

    def spend(self, seconds: float) -> None:
        self._note()
        self.cpu += seconds
        self.clock.advance(seconds)
        self._note()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.meanwhile()

    def _note(self) -> None:
        self.times.append(self.clock.monotonic())
        self.spent.append(self.cpu)

    def at(self, moment: float) -> float:
        """CPU seconds at a moment: they grow only between two notes of one `spend`."""
        place = bisect_right(self.times, moment) - 1
        if place + 1 == len(self.times) or self.spent[place + 1] == self.spent[place]:
            return self.spent[place]
        return self.spent[place] + moment - self.times[place]

    def busiest(self) -> float:
        """The greatest share of the core in any ten seconds."""
        starts = [moment for time in self.times for moment in (time, time - WINDOW_SECONDS) if moment >= 0]
        return max(self.at(start + WINDOW_SECONDS) - self.at(start) for start in starts) / WINDOW_SECONDS

    def budget(self, share: float = SHARE) -> CpuBudget:
        return CpuBudget(share, clock=self.clock, spent=lambda: self.cpu, sleep=self.sleep)


class Publication:
    """Publishes nothing."""

    tenant, name, canary_share, on_trial, running = "t", "calls", 0.0, False, None

    def __init__(self, clock: FakeClock) -> None:
        self.metrics, self.clock = Metrics("trainer"), clock


@pytest.mark.parametrize(("late_seconds", "slower"), [(0.0, 1.0), (2.0, 1.0), (0.0, 5.0)])
def test_it_keeps_its_share_in_any_ten_seconds_and_learns_what_is_new(
    monkeypatch: pytest.MonkeyPatch, late_seconds: float, slower: float
) -> None:
    """`slower`: how many times the CPU a session costs from every other ten seconds on."""
    machine, random = Machine(), Random(1)
    clock = machine.clock

    class Training:
        def __init__(self) -> None:
            self.learned = 0

        def learn(self, session: Trajectory) -> None:
            machine.spend(LEARN * (slower if clock.monotonic() // 10 % 2 else 1.0))
            self.learned += 1

        def version(self) -> TrainedCalls:
            machine.spend(VERSION)
            return TrainedCalls(b"", self.learned, 1, 1, (), ())

    def judge(*_: Any) -> GateReport:
        machine.spend(GATE)
        return GateReport("too_few", {})

    monkeypatch.setattr("streams.training.trainer.judge_candidate", judge)
    budget, ages = machine.budget(), [0.0]
    trainer = CallsTrainer(Publication(clock), training=Training, budget=budget, sessions=SESSIONS)
    newest: float | None = None
    arrived = 0

    def arrive() -> None:
        nonlocal arrived
        while arrived < clock.monotonic() * RATE and budget.reading_debt_seconds() == 0:
            ended = max(0.0, arrived / RATE - random.random() * late_seconds)
            session = trajectory(call("sql"), session=f"s{arrived}", agent=f"a{arrived % 9}", ended=ended)
            machine.spend(READ)
            trainer.add(session, 0, arrived)
            arrived += 1

    machine.meanwhile = arrive
    while clock.monotonic() < 60.0:
        arrive()
        if trainer.due():
            asyncio.run(trainer.learn())
            learned = trainer._passes.sessions[-1].ended
            ages.append(clock.monotonic() - (learned if newest is None else newest))
            newest = learned
        else:
            machine.sleep(0.2)
    assert clock.monotonic() * RATE - arrived < 2 * RATE, "reading keeps up"
    assert machine.busiest() <= 0.30
    assert machine.cpu / clock.monotonic() >= 0.9 * SHARE, "it learns as much as it may"
    assert max(ages) <= OLDEST, "just before each version, the newest session of the last one"


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 3)), min_size=1))
def test_work_takes_its_share_and_no_more(steps: list[tuple[float, float]]) -> None:
    """Rests, and the CPU of the piece of work after each."""
    machine = Machine()
    budget = machine.budget()
    for rest, piece in steps:
        machine.clock.advance(rest)
        machine.spend(piece)
        budget.pace()
    assert machine.cpu <= 0.15 + SHARE * machine.clock.monotonic() + 1e-6
    longest = max(piece for _, piece in steps)
    assert machine.busiest() <= (0.15 + SHARE * WINDOW_SECONDS + longest) / WINDOW_SECONDS + 1e-6


def test_reading_goes_before_learning() -> None:
    machine = Machine()
    budget = machine.budget()
    machine.spend(0.2)
    assert budget.debt_seconds() > 0 and budget.reading_debt_seconds() == 0
    machine.spend(0.2)
    assert budget.reading_debt_seconds() > 0


def test_the_last_learner_gets_what_the_others_leave() -> None:
    machine = Machine()
    budget, owed = machine.budget(), []

    def others() -> None:  # they learn whenever nothing is owed, for ten seconds
        if machine.clock.monotonic() < 10.0 and budget.debt_seconds() == 0:
            machine.spend(0.02)
            owed.append(machine.clock.monotonic())

    machine.meanwhile = others
    others()
    budget.pace_last()
    assert owed[-1] > 9.0 and machine.clock.monotonic() > 10.0


def test_modules_are_imported_at_the_share_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr("tests.streams.training.test_budget.IMPORTING", machine, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"paced_{number}" for number in range(20)]
    for number, name in enumerate(names):
        following = f"import {names[number + 1]}\n" if number + 1 < len(names) else ""
        (tmp_path / f"{name}.py").write_text(
            f"from tests.streams.training.test_budget import IMPORTING\nIMPORTING.spend(0.1)\n{following}"
        )
    finders = list(sys.meta_path)
    with machine.budget().paced_imports():
        importlib.import_module(names[0])
    assert sys.meta_path == finders
    assert machine.cpu == pytest.approx(2.0) and machine.clock.monotonic() >= 6.0
    for name in names:
        del sys.modules[name]


def test_who_waits_for_a_rested_process_does_not_wear_it_out_by_asking() -> None:
    """Each look at the clock costs some CPU, so the whole burst is never there: a thread asked for it without end."""
    machine, sleeps = Machine(), 0

    def spent() -> float:
        machine.cpu += 20e-6
        return machine.cpu

    def sleep(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        assert sleeps < 100
        machine.clock.advance(seconds)

    budget = CpuBudget(SHARE, clock=machine.clock, spent=spent, sleep=sleep)
    machine.spend(1.0)
    budget.pace_last()
    assert sleeps < 5
