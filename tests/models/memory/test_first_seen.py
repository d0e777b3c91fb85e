"""One agent alone cannot make something old: the second one's first sighting counts."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from models.memory.bottom_k import FirstSeen

SIGHTINGS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9).map(float)), max_size=12)


@given(SIGHTINGS, st.randoms(use_true_random=False))
def test_it_follows_from_the_set_of_sightings(sightings: list[tuple[int, float]], random: Random) -> None:
    earliest: dict[int, float] = {}
    for agent, moment in sightings:
        earliest[agent] = min(moment, earliest.get(agent, moment))
    made = FirstSeen.among(sightings)
    expected = sorted(earliest.values())[:2]
    assert sorted(made.values()) == expected and made.moment == max(expected, default=0.0)
    shuffled = list(sightings) * 2
    random.shuffle(shuffled)
    assert FirstSeen.among(shuffled) == made


@given(SIGHTINGS.filter(bool), st.floats(0, 9))
def test_one_agent_dates_nothing_back_that_others_met(sightings: list[tuple[int, float]], moment: float) -> None:
    before = FirstSeen.among(sightings)
    after = FirstSeen.among([*sightings, (99, moment)])
    assert after.moment >= min(before.values())


def test_it_says_whether_anything_changed() -> None:
    made = FirstSeen()
    assert [made.note(*each) for each in [(1, 5.0), (1, 6.0), (2, 7.0), (3, 8.0), (3, 4.0), (1, 5.0)]] == [
        True, False, True, False, True, False
    ]  # fmt: skip
    assert made == {1: 5.0, 3: 4.0} and made.moment == 5.0
