"""The benchmark's own tools and tasks: gold plans pass the checker, and what differs from them does not."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.evaluate.worlds import bfcl
from benchmarks.evaluate.worlds.bfcl import HOW, NEW_PART, PROPOSED, BfclSession, BfclWorld, load
from benchmarks.evaluate.worlds.world import Call
from fleetlore.errors import ModelUnavailable

installed = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="bfcl-eval is not installed")


def session(id: str) -> BfclSession:
    entries, tools = load()
    return BfclSession(entries[id], tools, "s")


@installed
def test_every_gold_plan_succeeds_without_an_error() -> None:
    entries, tools = load()
    assert len(entries) >= 170
    for entry in entries.values():
        environment = BfclSession(entry, tools, "s")
        for _, call in entry.gold:
            assert any(proposal.call.key == call.key for proposal in environment.proposals())
            assert not environment.perform(call).failed
        assert environment.succeeded, entry.id


@installed
def test_a_call_too_many_fails_the_state_check() -> None:
    entries, _ = load()
    entry = next(each for each in entries.values() if each.classes == ("GorillaFileSystem",) and len(each.gold) > 2)
    environment = session(entry.id)
    assert not environment.perform(Call("mkdir", {"dir_name": "one_too_many"})).failed
    for _, call in entry.gold:
        environment.perform(call)
    assert environment.done and not environment.succeeded


@installed
def test_the_tools_errors_are_their_own() -> None:
    entries, _ = load()
    entry = next(each for each in entries.values() if each.classes == ("VehicleControlAPI",))
    reply = session(entry.id).perform(Call("fillFuelTank", {"fuelAmount": 1e9}))
    assert reply.error_type == "ToolError" and "tank" in (reply.error_message or "")
    missing = session(entry.id).perform(Call("fillFuelTank", {"litres": 1}))
    assert missing.error_type == "TypeError"


@installed
def test_sessions_do_not_touch_each_other_and_proposals_do_not_change() -> None:
    world = BfclWorld(0, tasks=10)
    assert [task.id for task in world.tasks] == [task.id for task in BfclWorld(0, tasks=10).tasks]
    task = world.tasks[0]
    first, second = world.open(task, "a", 0), world.open(task, "a", 0)
    assert first.proposals() == second.proposals()
    assert 3 <= len(first.proposals()) <= PROPOSED + 1
    first.perform(first.proposals()[0].call)
    assert second.calls == 0 and second.progress == 0
    assert world.open(task, "b", 0).proposals() != first.proposals()


@installed
def test_the_parts_share_no_api() -> None:
    old, new = BfclWorld(0).parts()
    assert all(NEW_PART not in task.domain for task in old.tasks)
    assert {task.domain for task in new.tasks} == {NEW_PART}


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load.cache_clear()
    monkeypatch.setattr(bfcl, "PACKAGE", "bfcl_eval_that_is_not_there")
    with pytest.raises(ModelUnavailable, match="pip install --no-deps"):
        BfclWorld(0)
    load.cache_clear()
    assert "bfcl-eval" in HOW
