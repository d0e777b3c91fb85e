"""The sessions that a call model learns: which are chosen, and how a version is made of slices of them."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.wire.trajectory import Trajectory
from models.calls.training import train
from models.calls.window import AGENT_SESSIONS, Passes, SessionWindow, first_offsets
from tests.build import call, trajectory


def session(number: int, events: int = 3, later: float = 0.0) -> Trajectory:
    """A session whose calls depend on its number and revision; one in five fails."""
    random = Random(number * 31 + events)
    steps = []
    for _ in range(2):
        query, error = f"SELECT {random.randrange(4)}", "no such table: 'car'" if random.randrange(5) == 0 else None
        steps.append(call("sql", query, "3 rows", error))
    return trajectory(*steps, session=f"s{number}", agent=f"a{number % 5}", ended=number + later, events=events)


def sent(number: int, agent: str = "a", events: int = 3) -> Trajectory:
    return trajectory(call("sql"), session=f"s{number}", agent=agent, ended=float(number), events=events)


def filled(sessions: list[Trajectory], most: int = 1_000) -> SessionWindow:
    made = SessionWindow(most)
    for offset, each in enumerate(sessions):
        made.add(each, 0, offset)
    return made


@settings(max_examples=12)
@given(
    # Sessions in any order, some again in a later revision that may end later; after each, how many a slice learns.
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(3, 5), st.sampled_from([0.0, 0.5, 9.5]), st.integers(1, 12)),
        max_size=20,
    ),
    st.sampled_from([12, 1_000]),
)
def test_a_version_is_a_function_of_the_sessions_that_it_learned(
    came: list[tuple[int, int, float, int]], most: int
) -> None:
    kept, passes = SessionWindow(most), Passes()
    for offset, (number, events, later, slice) in enumerate(came):
        kept.add(session(number, events, later), 0, offset)
        assert passes.learn(kept.chosen(), slice) <= slice
        assert sorted({each.id: each for each in passes.sessions}.values()) == passes.sessions, "in order, each once"
    assert passes.version().weights == train(each.session() for each in passes.sessions).weights
    for _ in range(40):  # no more come: in the end it is the version of the window
        if passes.sessions == (chosen := kept.chosen()):
            break
        passes.learn(chosen, 3)
    assert passes.sessions == chosen and not passes.catches_up
    assert passes.version().weights == train(each.session() for each in chosen).weights


def test_a_slice_that_gets_late_skips_to_the_newest_session_and_the_window_is_learned_whole_all_the_same() -> None:
    passes, rests = Passes(), [0]
    chosen = filled([session(number) for number in range(40)]).chosen()

    def rest() -> None:
        rests[0] += 1

    assert passes.learn(chosen, 8, rest, lambda: rests[0] >= 3) == 4
    assert [each.ended for each in passes.sessions] == [4, 9, 14, 39]
    for _ in range(10):
        passes.learn(chosen, 8)
    assert passes.sessions == chosen


def chosen(made: SessionWindow) -> list[str]:
    return [each.session().session for each in made.chosen()]


@given(st.permutations(range(60)), st.lists(st.integers(0, 59), max_size=20))
def test_what_is_chosen_is_a_function_of_the_set(order: list[int], again: list[int]) -> None:
    known = [sent(number, "ab"[number % 3 == 0], events=3 + number % 2) for number in range(60)]
    older = [sent(number, "ab"[number % 3 == 0], events=1) for number in again]
    expected = [each.session() for each in filled(known, most=20).chosen()]
    came = [*older, *(known[place] for place in order), *(known[place] for place in again)]
    assert [each.session() for each in filled(came, most=20).chosen()] == expected


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abcde")), max_size=120, unique_by=lambda pair: pair[0]),
    st.integers(0, 120),
)
def test_what_was_dropped_early_would_not_have_been_chosen_later(some: list[tuple[int, str]], cut: int) -> None:
    sessions = [sent(number, agent) for number, agent in some]
    early = filled(sessions[:cut], most=16)
    early.chosen()
    for offset, each in enumerate(sessions[cut:], cut):
        early.add(each, 0, offset)
    assert chosen(early) == chosen(filled(sessions, most=16))


def test_the_newest_are_chosen_oldest_first() -> None:
    sessions = [sent(number, f"a{number % 8}") for number in range(40)]
    assert chosen(filled(sessions[::-1], most=16)) == [f"s{number}" for number in range(24, 40)]


def test_however_much_one_agent_sends_it_is_a_quarter_of_the_window() -> None:
    honest = [sent(number, f"a{number % 9}") for number in range(600)]
    flood = [sent(10_000 + number, "loud") for number in range(900)]
    agents = [each.agent for each in filled([*honest, *flood], most=10_000).chosen()]
    assert (agents.count("loud"), len(agents)) == (200, 800)


def test_an_agent_may_always_have_some_and_the_only_one_has_all() -> None:
    mine = [sent(number, "mine") for number in range(200)]
    assert len(chosen(filled(mine))) == 200
    with_another = chosen(filled([*mine, sent(999, "other")]))
    assert len(with_another) == AGENT_SESSIONS + 1 and with_another[-1] == "s999"


def test_the_first_offset_of_each_partition_is_stated() -> None:
    made = SessionWindow()
    for number in range(2, 6):
        made.add(sent(number), number % 2, number)
    assert first_offsets(made.chosen()) == {0: 2, 1: 3}
