"""A fleet without a broker, in which the way that solved a goal of the task `look` is known, and tools that fail."""

from pathlib import Path

import pytest

from fleetlore import Fleet
from fleetlore.advice.decide import Draft, write
from fleetlore.fingerprint.fingerprint import strategy_id
from fleetlore.wire.lore import HOW_TO
from tests.build import memory_item, met
from tests.fleetlore.join.world import World

# That the strategy solved.
GOAL = "look around"
# What a tool returns if it failed, in a text, in JSON and in an object, and for a call that a person refused.
SAID_FAILED = ("Error: no such table", '{"isError": true, "content": "no such table"}', {"error": "no such table"})
REFUSED = "User rejected the tool call"
DENIED = "PermissionError", "[Errno 13] Permission denied: '/etc/shadow'"


@pytest.fixture
def fleet(fleet: Fleet) -> Fleet:
    way = {"kind": "strategy", "task": "look", "title": f"{HOW_TO}{GOAL}", "content": "Look into /srv first"}
    fleet.replica.index.put_item(memory_item(strategy_id("look", GOAL), support=3, agents=3, **way))
    return fleet


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: of the file.
    """
    if path == "/etc/shadow":
        raise PermissionError(13, "Permission denied", path)
    return f"text of {path}"


def know_denied(fleet: Fleet, tool: str = "read_file", argument: str = "path") -> str:
    """Id of the pattern by which the fleet knows that reading /etc/shadow fails."""
    pattern = met(tool, {argument: "/etc/shadow"}, *DENIED)
    fleet.replica.index.put_pattern(pattern)
    return pattern.id


def know_better(fleet: Fleet, tool: str, argument: str) -> str:
    """Id of the item by which the fleet knows what to read instead of /etc/shadow: a call of that is sure to fail."""
    was, now = (f"{argument}=/etc/shadow",), (f"{argument}=/srv/a",)
    item = memory_item("better", tool=tool, was=was, now=now, support=3, agents=3)
    fleet.replica.index.put_item(item)
    return item.id


def know_look_up(fleet: Fleet, tool: str, other: str) -> None:
    """A person wrote what to call after a failure of a tool: another tool, by the name under which it is recorded."""
    index = fleet.replica.index
    draft = Draft(text=f"Send {other} next: it shows what there is.", why="w", after=tool)
    index.put_hint(write(index, draft, by="ann", now=fleet.clock.now()))


LOOK_UP = "Send look next: it shows what there is. (written by ann)"
