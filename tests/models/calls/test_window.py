from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.trajectory import Trajectory
from models.calls.window import AGENT_SESSIONS, SessionWindow, first_offsets
from tests.build import call, trajectory


def session(number: int, agent: str = "a", events: int = 3) -> Trajectory:
    return trajectory(call("sql"), session=f"s{number}", agent=agent, ended=float(number), events=events)


def window(sessions: list[Trajectory], most: int = 1_000) -> SessionWindow:
    made = SessionWindow(most)
    for offset, each in enumerate(sessions):
        made.add(each, 0, offset)
    return made


def chosen(made: SessionWindow) -> list[str]:
    return [each.session().session for each in made.chosen()]


@given(st.permutations(range(60)), st.lists(st.integers(0, 59), max_size=20))
def test_what_is_chosen_is_a_function_of_the_set(order: list[int], again: list[int]) -> None:
    known = [session(number, "ab"[number % 3 == 0], events=3 + number % 2) for number in range(60)]
    older = [session(number, "ab"[number % 3 == 0], events=1) for number in again]
    expected = [each.session() for each in window(known, most=20).chosen()]
    came = [*older, *(known[place] for place in order), *(known[place] for place in again)]
    assert [each.session() for each in window(came, most=20).chosen()] == expected


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abcde")), max_size=120, unique_by=lambda pair: pair[0]),
    st.integers(0, 120),
)
def test_what_was_dropped_early_would_not_have_been_chosen_later(some: list[tuple[int, str]], cut: int) -> None:
    sessions = [session(number, agent) for number, agent in some]
    early = window(sessions[:cut], most=16)
    early.chosen()
    for offset, each in enumerate(sessions[cut:], cut):
        early.add(each, 0, offset)
    assert chosen(early) == chosen(window(sessions, most=16))


def test_the_newest_are_chosen_oldest_first() -> None:
    sessions = [session(number, f"a{number % 8}") for number in range(40)]
    assert chosen(window(sessions[::-1], most=16)) == [f"s{number}" for number in range(24, 40)]


def test_however_much_one_agent_sends_it_is_a_quarter_of_the_window() -> None:
    honest = [session(number, f"a{number % 9}") for number in range(600)]
    flood = [session(10_000 + number, "loud") for number in range(900)]
    agents = [each.agent for each in window([*honest, *flood], most=10_000).chosen()]
    assert (agents.count("loud"), len(agents)) == (200, 800)


def test_an_agent_may_always_have_some_and_the_only_one_has_all() -> None:
    mine = [session(number, "mine") for number in range(200)]
    assert len(chosen(window(mine))) == 200
    with_another = chosen(window([*mine, session(999, "other")]))
    assert len(with_another) == AGENT_SESSIONS + 1 and with_another[-1] == "s999"


def test_a_session_without_a_call_teaches_nothing() -> None:
    assert not SessionWindow().add(trajectory(session="s"), 0, 0)


def test_old_records_are_forgotten_by_partition() -> None:
    made = SessionWindow()
    for number in range(6):
        made.add(session(number), number % 2, number)
    made.forget_before(0, 3)
    assert chosen(made) == ["s1", "s3", "s4", "s5"]
    assert first_offsets(made.chosen()) == {0: 4, 1: 1}
