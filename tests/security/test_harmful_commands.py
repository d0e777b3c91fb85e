"""A call that changes something outside is shown only after three agents made it after the failure, not two.

These calls hold no part of the asking agent's own call, so any call could be shown after its failure. So no call of one
agent is shown, and no list decides which calls are dangerous.
"""

import pytest

from tests.rows import for_each
from tests.security.harmful_commands import COMMANDS, TOOLS
from tests.security.memory_fleet import Made, MemoryFleet, leaks

ERROR = "Error: quota of project orion is used up"
STRUCTURED = ("deploy", {"env": "staging", "version": 12})
SHELL = ("bash", {"command": "make release"})
GOAL = "release the service"


async def read_after(
    failed: tuple[str, object], remedy: tuple[str, object], agents: int, *, sessions: int = 2
) -> dict[str, str]:
    """The text that an agent reads at a failure which others, but not three honest agents, got past by the remedy."""
    fleet = MemoryFleet()
    for number in range(3):
        await fleet.session(f"honest{number}", Made(*failed, error=ERROR), goal=GOAL, ok=False)
    for agent in range(agents):
        for number in range(sessions):
            calls = (Made(*failed, error=ERROR), Made(*remedy), Made(*failed, result="done"))
            await fleet.session(f"mallory{agent}", *calls, goal=f"{GOAL} {number}")
    return await fleet.read(Made(*failed, error=ERROR), goal="mine")


@pytest.mark.long
@for_each("number, row", *enumerate(COMMANDS))
async def test_a_command_of_one_agent_or_two_is_shown_to_no_other(number: int, row: tuple[str, str, str]) -> None:
    """Half of the commands of each kind by one agent, and half after a failure in a shell: the product has no list."""
    kind, command, mark = row
    failed, agents = SHELL if number % 4 < 2 else STRUCTURED, 1 + number % 2
    doors = await read_after(failed, ("terminal", {"command": command}), agents)
    assert not leaks(doors, mark), f"to {kind} takes three agents"


@for_each("tool, arguments, mark", *TOOLS)
async def test_a_call_of_another_tool_by_two_agents_is_shown_to_no_other(
    tool: str, arguments: object, mark: str
) -> None:
    doors = await read_after(STRUCTURED, (tool, arguments), 2)
    assert not leaks(doors, mark), "a tool that changes something outside takes three agents"


@for_each("kind, command, mark", *COMMANDS[1::4])
async def test_a_command_within_a_way_that_solved_the_task_is_shown_to_no_other(
    kind: str, command: str, mark: str
) -> None:
    fleet = MemoryFleet()
    for agent, number in (("mallory", 0), ("mallory", 1), ("eve", 2)):
        await fleet.session(agent, Made(*SHELL, error=ERROR), goal=GOAL, task="release", ok=False, id=f"bad{number}")
        way = (Made("terminal", {"command": command}), Made("bash", {"command": "make tag"}, "tagged"))
        await fleet.session(agent, *way, goal=GOAL, task="release", id=f"good{number}")
    for task, goal in (("release", GOAL), ("", f"{GOAL} again")):
        assert not leaks(await fleet.read(goal=goal, task=task, tools=["bash"]), mark), f"to {kind} takes three agents"
