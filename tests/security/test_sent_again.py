"""One principal says neither that a failed call works when it is sent again, nor hides that it fails for others."""

from tests.rows import for_each
from tests.security.memory_fleet import Made, MemoryFleet

FAILED = Made("pull", {"image": "a"}, error="manifest unknown")
WORKED = Made("pull", {"image": "a"}, "pulled")


async def shown(fleet: MemoryFleet) -> str:
    doors = await fleet.read(FAILED, goal="mine", then=FAILED)
    return doors["before the next call"]


@for_each("honest", [0, 1, 2])
async def test_one_agent_does_not_say_that_a_call_works_after_a_wait(honest: int) -> None:
    fleet = MemoryFleet()
    for number in range(honest):
        await fleet.session(f"honest-{number}", FAILED, FAILED, goal=f"goal {number}", ok=False)
    for number in range(12):
        await fleet.session("mallory", FAILED, WORKED, goal=f"other goal {number}")
    assert "worked in" not in await shown(fleet)
    await fleet.session("second", FAILED, WORKED, goal="another goal")
    assert "worked in" in await shown(fleet), "two agents do"


@for_each("sessions", [1, 12])
async def test_one_agent_does_not_hide_that_a_call_never_works(sessions: int) -> None:
    fleet = MemoryFleet()
    for number in range(18):
        await fleet.session(f"honest-{number % 6}", FAILED, FAILED, goal=f"goal {number}", ok=False)
    for number in range(sessions):
        await fleet.session("mallory", FAILED, WORKED, goal=f"other goal {number}")
    assert "it failed in 18 of 18 sessions. Change it" in await shown(fleet)
