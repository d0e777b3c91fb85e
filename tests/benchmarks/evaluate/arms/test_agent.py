"""The agent of all arms: habits, slips, texts and risks move it by one stated rule."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from benchmarks.demo.world import NETWORK
from benchmarks.evaluate.arms.agent import FRUITLESS, PATIENCE, SLIP, TRUST, Mind, attend, caution
from benchmarks.evaluate.arms.memory import (
    READ_CHARACTERS,
    LogOnly,
    Memory,
    NoMemory,
    Note,
    Recall,
    Situation,
    within_budget,
)
from benchmarks.evaluate.worlds.tool_world import ToolWorld
from benchmarks.evaluate.worlds.world import Call, Proposal, Reply

A, B, C = (Call(name, {"x": 1}) for name in "abc")
PROPOSALS = [Proposal(A, 4.0), Proposal(B, 4.0), Proposal(C, 4.0)]
OK, ERROR = Reply("ok"), Reply("", "1", "no", "rule")


def choices(recall: Recall, *, proposals: Sequence[Proposal] = PROPOSALS, agents: int = 300) -> dict[str, float]:
    """How often each call is the first one of many agents."""
    counts = dict.fromkeys("abc", 0)
    for number in range(agents):
        counts[Mind(f"agent-{number}", f"luck-{number}", True).choose(proposals, recall).tool] += 1
    return {name: count / agents for name, count in counts.items()}


def test_without_memory_equal_calls_are_chosen_equally_often_and_weights_count() -> None:
    even = choices(Recall())
    assert max(even.values()) - min(even.values()) < 0.15
    inclined = choices(Recall(), proposals=[Proposal(A, 40.0), *PROPOSALS[1:]])
    assert inclined["a"] > 0.7


def test_texts_and_risks_move_most_agents_but_not_all() -> None:
    read = choices(Recall([Note('Failed: a({"x": 1})\nThen: b({"x": 1})\nWorked: a({"x": 1})')]))
    assert 0.5 < read["b"] < 1.0
    warned = choices(Recall(risks=[0.95, 0.05, 0.95]))
    assert 0.6 < warned["b"] < 1.0
    unsure = choices(Recall(risks=[None, None, None]))
    assert unsure == choices(Recall())


def test_a_policy_cannot_make_an_agent_do_what_it_deems_pointless() -> None:
    idle = choices(Recall(risks=[0.4, 0.4, 0.02]), proposals=[PROPOSALS[0], PROPOSALS[1], Proposal(C, 0.2)])
    assert idle["c"] < 0.2


def test_what_the_policy_abstains_on_counts_as_the_mean() -> None:
    assert caution([0.5, None, 0.5], [A, B, C]) == pytest.approx([math.log(0.5)] * 3)
    assert caution([None, None, None], [A, B, C]) == [0.0] * 3
    assert caution([], [A, B, C]) == [0.0] * 3
    assert caution([1.0, 0.0, None], [A, B, C])[0] > -math.inf


def test_after_being_overruled_in_vain_the_agent_follows_its_own_mind() -> None:
    def chosen(risks: list[float | None]) -> str:
        mind = Mind("agent", "luck", True)
        weight = 10.0 * math.exp(mind.own_values([Proposal(B, 1.0)])[0] - mind.own_values([Proposal(A, 1.0)])[0])
        return "".join(
            mind.choose([Proposal(A, weight), Proposal(B, 1.0)], Recall(risks=risks)).tool for _ in range(40)
        )

    assert chosen([]).count("a") > 30  # its own mind, but for slips and moods
    obeyed = chosen([0.98, 0.0])
    assert "b" * PATIENCE in obeyed
    assert obeyed.count("a") >= 40 // (PATIENCE + 2)


def test_fruitless_calls_are_left_and_everything_is_tried_in_the_end() -> None:
    mind = Mind("agent", "luck", True)
    tried = set()
    for _ in range(12):
        call = mind.choose(PROPOSALS, Recall())
        tried.add(call.tool)
        mind.take_in(call, ERROR, progress=False)
    assert tried == {"a", "b", "c"}
    assert FRUITLESS > 0


def test_the_network_is_met_by_the_same_call_again() -> None:
    mind = Mind("agent", "luck", True)
    call = mind.choose(PROPOSALS, Recall())
    mind.take_in(call, Reply("", "503", "unavailable", NETWORK), progress=False)
    assert mind.choose(PROPOSALS, Recall(risks=[0.99 if each.call == call else 0.01 for each in PROPOSALS])) == call


def test_its_own_log_is_read_where_the_arm_keeps_one() -> None:
    with_log, without = Mind("agent", "luck", True), Mind("agent", "luck", False)
    for mind in (with_log, without):
        mind.take_in(A, ERROR, progress=False)
        mind.take_in(B, OK, progress=True)
    assert with_log.told([A, B], Recall()) == [-TRUST, 0.0]
    assert without.told([A, B], Recall()) == [0.0, 0.0]


def test_slips_are_as_frequent_as_stated() -> None:
    slipped = 0
    for number in range(2000):
        mind = Mind("agent", f"luck-{number}", True)
        slipped += mind.choose([Proposal(A, 1e9), Proposal(B, 1e-9)], Recall()).tool == "b"
    assert slipped / 2000 == pytest.approx(SLIP / 2, abs=0.02)


async def test_a_run_is_the_same_every_time_and_ends_within_its_budget() -> None:
    async def run(memory: Memory, luck: str) -> object:
        world = ToolWorld(2)
        task = world.tasks[0]
        recorded = await attend("agent", task, world.open(task, "s", 0), memory, session="s", luck=luck, number=0)
        assert len(recorded.steps) <= recorded.budget
        return [call.key for call, _ in recorded.steps], recorded.succeeded

    assert await run(LogOnly(), "l") == await run(LogOnly(), "l")
    assert await run(LogOnly(), "l") != await run(LogOnly(), "m")
    assert await run(LogOnly(), "l") != await run(NoMemory(), "l")


def test_an_agent_reads_no_more_than_its_budget() -> None:
    notes = [Note(str(number) * 1500) for number in range(5)]
    assert within_budget(notes) == notes[: READ_CHARACTERS // 1500]
    again = [Note("same", place) for place in range(3)]
    assert within_budget([*again, again[0]]) == again


def test_a_situation_starts_empty() -> None:
    assert Situation("s", "a", "t", "g").steps == []
