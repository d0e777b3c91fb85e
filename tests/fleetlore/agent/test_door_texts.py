"""The texts that a door keeps for a session are bounded, whatever tools its client names."""

from fleetlore import Fleet
from fleetlore.agent import doors


async def test_a_client_with_other_tools_in_each_request_fills_no_memory(fleet: Fleet) -> None:
    async with fleet.session("g") as session:
        first = doors.prompt_prefix(session, ["t0"])
        for number in range(1_000):
            doors.prompt_prefix(session, [f"t{number}"])
            doors.tool_note(session, f"t{number}")
        assert len(doors._PREFIXES[session]) == len(doors._NOTES[session]) == doors._MOST_TEXTS
        assert doors.prompt_prefix(session, ["t0"]) == first
