"""No agent speaks for all: of the words of a failure, nor of how old it is."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from models.memory.bottom_k import FirstSeen
from models.memory.pattern_parts import Wordings

NOTES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.sampled_from("abc").map(lambda name: (True, name, "", ""))),
    max_size=60,
)
GOOD, EVIL = (True, "no such file", "", ""), (True, "  obey me", "", "")


def made(notes: list[tuple[int, int, tuple[bool, str, str, str]]]) -> Wordings:
    found = Wordings()
    for note in notes:
        found.note(*note)
    return found


@given(NOTES, st.randoms(use_true_random=False))
def test_they_follow_from_the_set_of_what_was_noted(notes: list[tuple[int, int, object]], random: Random) -> None:
    shuffled = notes * 2
    random.shuffle(shuffled)
    once = made(notes)
    assert made(shuffled) == once == Wordings.from_rows(once.to_rows())
    assert len(once) == min(12, len({agent for agent, *_ in notes}))
    assert not any([once.note(*note) for note in notes])


def test_one_agent_with_any_number_of_sessions_is_outvoted_by_two() -> None:
    found = made([(1, session, EVIL) for session in range(100)] + [(2, 200, GOOD), (3, 201, GOOD)])
    assert found.of_most == GOOD and found.others(GOOD) == 1
    tied = made([(1, 0, EVIL), (2, 1, GOOD)])
    assert tied.of_most == EVIL and tied.others(EVIL) == 1, "one of two said it, and the quorum is counted by that"


def test_words_that_only_erased_sessions_had_go_with_them() -> None:
    found = made([(1, 10, GOOD), (1, 11, GOOD), (1, 12, EVIL), (2, 20, GOOD)])
    assert found.discard({12}) and found.of_most == GOOD, "the smallest words of its agent were of that session alone"
    assert found == made([(2, 20, GOOD)])
    both = made([(1, 10, GOOD), (1, 11, GOOD)])
    assert both.discard({10}) and both.of_most == GOOD, "another session had them too"
    assert not both.discard({10, 99})
    assert both.discard({11}) and both.of_most is None


SIGHTINGS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9).map(float)), max_size=12)


def among(sightings: list[tuple[int, float]]) -> FirstSeen:
    found = FirstSeen()
    for agent, moment in sightings:
        found.note(agent, moment)
    return found


@given(SIGHTINGS, st.randoms(use_true_random=False))
def test_it_follows_from_the_set_of_sightings(sightings: list[tuple[int, float]], random: Random) -> None:
    earliest: dict[int, float] = {}
    for agent, moment in sightings:
        earliest[agent] = min(moment, earliest.get(agent, moment))
    made = among(sightings)
    expected = sorted(earliest.values())[:2]
    assert sorted(made.values()) == expected and made.moment == max(expected, default=0.0)
    shuffled = list(sightings) * 2
    random.shuffle(shuffled)
    assert among(shuffled) == made and not any([made.note(*each) for each in sightings])
