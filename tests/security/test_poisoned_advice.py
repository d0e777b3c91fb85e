"""Attack: lie to a fleet about remedies. The first tip stays the one that ten honest agents found."""

import pytest

from benchmarks.security.poisoned_text import LIARS, MISTAKES, VOLUME, poisoned
from fleetlore.advice.gate import PROVEN
from fleetlore.watch.safety import is_harmful
from tests.rows import for_each


@pytest.mark.long
@for_each("liars, volume", (LIARS[:1], 40), (LIARS, VOLUME))
@for_each("denies", False, True)
async def test_no_lie_takes_the_place_of_what_ten_honest_agents_found(
    liars: list[str], volume: int, denies: bool
) -> None:
    found = await poisoned(liars, volume, denies=denies)
    assert found.told >= 15
    assert found.lied == 0
    assert found.silenced == 0
    # The attack works on a count of sessions, except for calls that need three agents and are not shown.
    harmful = sum(is_harmful("bash", f"{command} reset") for command, _, _ in MISTAKES)
    assert found.by_sessions == found.told - (harmful if len(liars) < PROVEN else 0)
