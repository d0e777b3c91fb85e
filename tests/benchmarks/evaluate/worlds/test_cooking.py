"""CookingWorld: gold actions cook the meal, mistakes spoil it, and what is missing is said."""

from __future__ import annotations

import builtins
import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.evaluate.worlds.cooking import CookingWorld, _call, _command, close
from benchmarks.evaluate.worlds.world import Call
from fleetlore.errors import ModelUnavailable

playable = pytest.mark.skipif(
    importlib.util.find_spec("textworld_express") is None or shutil.which("java") is None,
    reason="textworld-express or Java is not installed",
)


@pytest.fixture(scope="module", autouse=True)
def _no_engine_is_left() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("command", ["take red potato", "cook apple in oven", "inventory", "move west"])
def test_a_command_is_a_call_and_back(command: str) -> None:
    assert _command(_call(command)) == command


def test_a_heat_is_an_argument() -> None:
    assert _call("cook apple in oven") == Call("cook", {"object": "apple", "place": "oven"})


@playable
def test_gold_actions_cook_the_meal_and_the_wrong_heat_ends_the_session() -> None:
    world = CookingWorld(0, tasks=6)
    for task in world.tasks:
        session = world.open(task, "s", 0)
        while not session.done:
            session.perform(session._left[0])
            assert session.calls <= session.shortest
        assert session.succeeded
    first, second = (world.open(world.tasks[0], "s", 0) for _ in range(2))
    assert second.proposals() == world.open(world.tasks[0], "s", 0).proposals()
    with pytest.raises(RuntimeError, match="another one"):
        first.perform(Call("inventory", {}))


@playable
def test_what_the_game_does_not_take_is_an_error() -> None:
    world = CookingWorld(0, tasks=1)
    reply = world.open(world.tasks[0], "s", 0).perform(Call("dice", {"object": "moon"}))
    assert reply.error_type == "NotPossible"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == "textworld_express":
            raise ImportError(name)
        return real(name, *rest, **options)

    close()
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", without)
        with pytest.raises(ModelUnavailable, match="pip install textworld-express"):
            CookingWorld(0)
