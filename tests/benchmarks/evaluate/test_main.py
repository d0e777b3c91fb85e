"""`python -m benchmarks.evaluate`: the fleet's arm is the real pipeline and advice, the command prints what is asked
for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from benchmarks.command import command_app
from benchmarks.demo.world import Call, Reply, World
from benchmarks.evaluate.__main__ import ARMS, evaluate, memories
from benchmarks.evaluate.arms.memory import Situation
from benchmarks.evaluate.arms.oracle import REFERENCES
from benchmarks.evaluate.arms.reading import stories
from benchmarks.evaluate.fleet_arm import FleetBoth, FleetText, OtherTask
from benchmarks.evaluate.forgetting import Forgetting
from benchmarks.evaluate.immunity import Immunity, immunity, work
from benchmarks.evaluate.report import ROWS, bars, lines, report
from benchmarks.evaluate.runner import Plan, Results
from benchmarks.evaluate.worlds.recorded import Recorded, step_of
from fleetlore.wire.events import Event
from streams.offline.memory_pipeline import MemoryPipeline

PUSH = Call("push", {"branch": "fix-1", "force": False})
PULL = Call("pull", {"rebase": True})
OK, REJECTED = Reply("done"), Reply("", "1", "rejected: fetch first")


def recorded(id: str) -> Recorded:
    steps = ((PUSH, REJECTED), (PULL, OK), (PUSH, OK))
    return Recorded(id, f"agent-of-{id}", "push", "push the branch", 0, steps, True, 2, 8)


def situation(*steps: tuple[Call, Reply]) -> Situation:
    found = Situation("tomorrow", "me", "push", "push the branch", "push the branch")
    found.steps = [step_of(place + 1, *step) for place, step in enumerate(steps)]
    found.candidates = [PUSH, PULL]
    return found


class Answers:
    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def perform(self, call: Call) -> Reply:
        return self.reply


async def test_what_other_sessions_recovered_from_is_advised_before_the_call() -> None:
    memory = FleetText()
    await memory.begin(situation())
    assert memory.recall(situation()).notes == []
    for number in range(3):
        await memory.learn(recorded(f"s{number}"))
    await memory.begin(situation())
    notes = memory.recall(situation()).notes
    told = [told for note in notes for story in stories(note.text) for told in story]
    assert ("pull", True) in {(each.tool, each.worked) for each in told}


@pytest.mark.parametrize(("without", "says"), [("remedies", False), ("strategies", True)])
async def test_a_part_that_is_left_out_is_not_told_nor_is_it_to_a_twin(without: str, says: bool) -> None:
    memory = FleetText(without)
    for number in range(3):
        await memory.learn(recorded(f"s{number}"))
    for each in (memory, await memory.twin()):
        assert any(item.cause is not None for item in each.fleet.index.items.values()) == says
        await each.begin(situation())
        assert each.recall(situation()).notes or not says
    assert memory.fleet.index.patterns


async def test_without_patterns_the_health_of_tools_stays_known() -> None:
    memory = FleetText("patterns")
    await memory.learn(recorded("s"))
    assert {pattern.level for pattern in memory.fleet.index.patterns.values()} == {"tool", "call"}


async def test_a_placebo_says_as_much_as_was_told_at_another_task() -> None:
    memory, text = OtherTask(), FleetText()
    for number in range(3):
        await memory.learn(recorded(f"s{number}"))
        await text.learn(recorded(f"s{number}"))
    here, there = situation(), situation()
    there.task = "another"
    for each in (memory, text):
        await each.begin(here)
    told = text.recall(here).notes
    assert told and memory.recall(here).notes == []
    said = memory.recall(there).notes
    assert [len(note.text) for note in said] == [len(note.text) for note in told]
    assert memory.recall(here).notes != []


async def test_a_session_of_the_arm_itself_teaches_the_fleet_when_it_has_ended() -> None:
    memory = FleetText()
    await memory.begin(situation())
    for call, reply in recorded("now").steps:
        memory.recall(situation())
        assert await memory.act(call, Answers(reply)) == reply
    assert not memory.fleet.index.patterns
    await memory.end(recorded("now"))
    assert {pattern.tool for pattern in memory.fleet.index.patterns.values()} == {"push", "pull"}
    assert memory.emitted == []


async def test_a_session_that_was_only_looked_at_teaches_nothing() -> None:
    memory = FleetText()
    await memory.begin(situation())
    await memory.act(PUSH, Answers(REJECTED))
    await memory.begin(situation())
    await memory.end(recorded("now"))
    assert not memory.fleet.index.patterns


async def test_the_same_events_twice_change_nothing() -> None:
    once, twice = FleetText(), FleetText()
    await once.learn(recorded("s"))
    for _ in range(2):
        twice.fleet.clock._now = once.fleet.clock._now - 5  # the same session at the same time
        await twice.learn(recorded("s"))
    assert twice.fleet.index.items.keys() == once.fleet.index.items.keys()
    calls = [{pattern.id: pattern.calls for pattern in each.fleet.index.patterns.values()} for each in (once, twice)]
    assert calls[0] == calls[1]


async def test_a_twin_knows_the_same_and_goes_its_own_way() -> None:
    memory = FleetText()
    await memory.learn(recorded("s1"))
    twin = await memory.twin()
    assert twin.fleet.index.patterns.keys() == memory.fleet.index.patterns.keys()
    await twin.learn(recorded("s2"))
    sessions = [max(p.sessions for p in each.fleet.index.patterns.values()) for each in (memory, twin)]
    assert sessions == [1, 2]


async def test_both_shares_its_parts_with_the_arms_and_its_twin_does_not() -> None:
    made = memories(ARMS)
    both = made["both"]
    assert isinstance(both, FleetBoth) and both.text is made["text"] and both.shares
    await both.learn(recorded("s"))
    assert not both.text.fleet.index.patterns
    twin = await both.twin()
    assert twin.text is not both.text and not twin.shares
    await twin.learn(recorded("s"))
    assert twin.text.fleet.index.patterns
    alone = memories(["both"])["both"]
    assert isinstance(alone, FleetBoth) and not alone.shares


async def test_a_fleet_in_memory_knows_of_a_failure_from_the_take_on() -> None:
    fleet = MemoryPipeline()
    emitted: list[Event] = []
    async with fleet.session("a", "push it", "push", "s1", emitted) as session:
        async with session.action(PUSH.tool, PUSH.arguments) as action:
            action.fail("1", "rejected: fetch first")
        session.fail()
    assert [event.kind for event in emitted] == ["session.started", "outcome", "session.ended"]
    with fleet.session("b", "push it", "push", "s2", []) as other:
        assert not other.advise(PUSH.tool, PUSH.arguments)
        await fleet.take(emitted)
        assert other.advise(PUSH.tool, PUSH.arguments).tips


async def test_a_fleet_is_spared_most_of_what_isolated_agents_repeat() -> None:
    found = await immunity(20, 0, lambda done: None)
    assert found.fewer > 0.3
    assert found.fleet_success >= found.isolated_success
    assert Immunity(1, 0, 0, 0, 1.0, 1.0).fewer == 0.0


def test_both_arms_of_immunity_have_the_same_work_with_a_few_tasks_that_nearly_all_meet() -> None:
    world = World(0)
    first = list(work(world, 50, 0))
    assert first == list(work(world, 50, 0))
    counts = sorted((sum(task is each for _, task, _ in first) for each in world.tasks), reverse=True)
    assert counts[0] > 4 * max(1, counts[10])
    assert {agent for agent, _, _ in first} == {f"agent-{number}" for number in range(50)}


def results(success: dict[str, float]) -> Results:
    def run(arm: str, seed: int) -> dict[str, float]:
        value = success[arm] + 0.01 * seed
        return {
            **{row: value / 2 for row in ROWS if row.endswith("x")},
            "success": value,
            "transfer_success": value,
            "recovery": value,
            "repair": 0.5,
            "steps": 3 - value,
            "errors": 4.0,
            "guard_sessions": 0.0,
            "guard_calls": 0.0,
            "overhead_percent": 0.2,
        }

    runs = {arm: {seed: [run(arm, seed)] * 2 for seed in range(3)} for arm in success}
    known = {"oracle": {seed: [run("both", seed)] * 2 for seed in range(3)}} if "both" in success else {}
    return Results(runs, {arm: [Forgetting(0.9, 0.895, 0.6, 0.85)] for arm in success}, references=known)


def test_a_report_says_which_bars_are_met_and_which_are_missed() -> None:
    better = {"log": 0.1, "raw-episodes": 0.4, "both": 0.7}
    found = report("tools", Plan(arms=tuple(better), seeds=(0, 1, 2), orders=2), results(better), 1.0)
    assert found["arms"]["both"]["success"]["mean"] == pytest.approx(0.71)
    assert found["arms"]["log"]["both_minus_this"]["success"]["low"] == pytest.approx(0.6)
    parts = {"text": 0.7, "no-remedies": 0.3}
    without = report("tools", Plan(arms=tuple(parts), seeds=(0, 1, 2), orders=2), results(parts), 1.0)["arms"]
    assert without["no-remedies"]["text_minus_this"]["success"]["low"] == pytest.approx(0.4)
    assert "text_minus_this" not in without["text"]
    assert found["references"]["oracle"]["steps"]["mean"] == pytest.approx(2.29)
    assert [line[0] for line in lines(found)] == ["log", "raw-episodes", "both", "oracle (reference)"]
    met = {name: bar["met"] for name, bar in found["bars"].items()}
    assert met == {
        "success_beats_every_arm": True,
        "recovery_beats_every_arm": True,
        "recovery": True,
        "steps_saved": False,
        "overhead_percent": True,
        "forgetting_pp": True,
        "gain_pp": True,
    }
    worse = {"log": 0.1, "raw-episodes": 0.8, "both": 0.6}
    missed = report("tools", Plan(arms=tuple(worse), seeds=(0, 1, 2), orders=2), results(worse), 1.0)["bars"]
    assert not missed["success_beats_every_arm"]["met"] and missed["success_beats_every_arm"]["figure"] < 0
    assert not missed["recovery"]["met"]
    json.dumps(found)


def test_without_ours_there_are_no_bars() -> None:
    assert bars({"log": {}}, results({"log": 0.5})) == {}


def command(*arguments: str) -> tuple[int, str, str, BaseException | None]:
    found = CliRunner().invoke(command_app(evaluate), [*arguments])
    return found.exit_code, found.stdout, found.stderr, found.exception


@pytest.mark.long
def test_a_quick_run_prints_every_row_for_every_arm() -> None:
    code, out, err, error = command("tools", "--quick", "--arms", "log,text,both", "--json")
    assert code == 0, error
    found = json.loads(out)
    assert list(found["arms"]) == ["log", "text", "both"]
    assert list(found["references"]) == list(REFERENCES)
    for arm in found["arms"].values():
        rows = ("success", "recovery", "steps", "forgetting_pp", "gain_pp", "overhead_percent")
        assert all(arm[row] is not None for row in rows)
    assert found["bars"]["overhead_percent"]["met"]
    assert "seed 0, order 0: both" in err


@pytest.mark.parametrize(("arguments", "said"), [(("mars",), "mars"), (("tools", "--arms", "log,magic"), "magic")])
def test_unknown_worlds_and_arms_are_refused(arguments: Sequence[str], said: str) -> None:
    code, out, err, _ = command(*arguments)
    assert (code, out) == (1, "") and err.startswith("benchmarks: ") and said in err
