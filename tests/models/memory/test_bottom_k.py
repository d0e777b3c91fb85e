"""Samples of sessions and agents: exact while small, unbiased later, and no agent speaks for all."""

import random
from collections import Counter
from copy import deepcopy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.stats import stable_hash
from models.memory.bottom_k import (
    AGENT_RESENDS,
    BADLY,
    WELL,
    CountSample,
    FirstSeen,
    Resends,
    SampleTotals,
    SessionCounts,
)
from models.memory.pattern_parts import Wordings
from tests.rows import for_each

K = 8

sessions = st.integers(1, 2**52 - 1) | st.integers(1, 30)


def seen_by(session: int, calls: int, failures: int, ended: int, again: int) -> tuple[int, SessionCounts]:
    """A session is of one agent; half of them are of the first."""
    return session, SessionCounts(max(0, session % 8 - 4), calls, failures, ended, again)


Row = tuple[int, SessionCounts]
entry = st.builds(seen_by, sessions, st.integers(1, 20), st.integers(0, 20), st.integers(0, 2), st.integers(0, 9))
entries = st.lists(entry, max_size=40)


def sample(rows: list[Row], k: int = K) -> CountSample:
    made = CountSample(k)
    for session, figures in rows:
        made.add(session, figures)
    return made


def merged(*samples: CountSample) -> CountSample:
    result = deepcopy(samples[0])
    for other in samples[1:]:
        result.merge(other)
    return result


@given(entries, entries, entries, st.randoms(use_true_random=False))
def test_a_sample_is_a_function_of_the_set_joins_in_any_order_and_reads_back(
    a: list[Row], b: list[Row], c: list[Row], rng: random.Random
) -> None:
    x, y, z = sample(a), sample(b), sample(c)
    once = merged(x, y, z)
    assert once.to_rows() == merged(z, y, x).to_rows() == merged(x, merged(y, z)).to_rows()
    again = deepcopy(once)
    assert again.merge(y) is False and again.merge(once) is False
    shuffled = [*a, *b, *c, *a]
    rng.shuffle(shuffled)
    assert sample(shuffled) == again == once == CountSample.from_rows(once.to_rows(), K)
    assert sample(shuffled, 256).resends == sample([*a, *b, *c], 256).resends
    assert len(once.kept) <= K


@given(st.lists(entry, max_size=K - 1, unique_by=lambda each: each[0]))
def test_below_k_sessions_all_figures_are_exact(rows: list[Row]) -> None:
    sessions = dict(rows)
    made = sample(rows)
    assert made.totals.sessions == len(sessions)
    assert made.totals.calls == sum(each.calls for each in sessions.values())
    assert made.totals.failures == sum(each.failures for each in sessions.values())
    assert made.totals.agents == len({each.agent for each in sessions.values()})


def test_a_session_that_is_seen_again_counts_its_newest_figures_once() -> None:
    made = CountSample(K)
    assert made.add(7, SessionCounts(1, 2, 1))
    assert made.add(7, SessionCounts(1, 5, 2, 2))
    assert not made.add(7, SessionCounts(1, 3, 1))
    assert made.totals == SampleTotals(sessions=1, agents=1, calls=5, failures=2, sessions_ended=1, sessions_failed=1)


def flooded(honest: int, lies: int, k: int = 64) -> CountSample:
    """Sessions of ten honest agents that ended badly, and those of one that says that they ended well."""
    rows = [
        (stable_hash(f"h{agent}/{n}"), SessionCounts(agent, 1, 1, BADLY)) for agent in range(10) for n in range(honest)
    ]
    rows += [(stable_hash(f"l/{n}"), SessionCounts(77, 1, 1, WELL)) for n in range(lies)]
    return sample(rows, k)


@given(entries)
def test_an_agent_has_more_sessions_than_its_turn_only_where_no_other_lacks_one(rows: list[Row]) -> None:
    made, known = sample(rows), dict(rows)
    of_agent, kept = Counter(each.agent for each in known.values()), Counter(each.agent for each in made.seen)
    most = max(kept.values(), default=0)
    for agent, sessions in of_agent.items():
        assert kept[agent] >= min(sessions, (most - 1) // CountSample.turn * CountSample.turn)


@for_each("lies", 200, 5_000)
def test_many_sessions_of_one_agent_push_out_none_of_others(lies: int) -> None:
    made = flooded(1, lies)
    assert Counter(each.agent for each in made.seen) == {77: 54} | dict.fromkeys(range(10), 1)
    assert made.totals.agents == 11
    assert made.totals.sessions == pytest.approx(lies + 10, rel=0.5)
    assert (made.totals.sessions_ended, made.totals.sessions_failed) == (11, 10)
    # What is erased of the liar leaves the others as they are.
    made.discard([session for session, each in made.kept.items() if each.agent == 77])
    assert len(made) == 64 and made.totals == SampleTotals(10, 10, 10, 10, 10, 10)


@for_each("agents, each", (1, 1_000), (20, 100), (64, 50), (300, 20))
def test_sessions_of_many_agents_are_estimated_without_bias(agents: int, each: int) -> None:
    errors = []
    for seed in range(20):
        made = CountSample(64)
        for agent in range(agents):
            for n in range(each):
                made.add(stable_hash(f"{seed}/{agent}/{n}"), SessionCounts(agent, 2, 1))
        errors.append(made.totals.sessions / (agents * each) - 1)
        assert made.totals.calls == pytest.approx(2 * made.totals.sessions, abs=2)
    assert abs(sum(errors) / len(errors)) < 0.12
    assert sum(map(abs, errors)) / len(errors) < 0.25


def test_no_agent_alone_says_what_comes_of_sending_a_call_again() -> None:
    rows = [(n + 1, SessionCounts(1, 2, 2, 0, 1)) for n in range(100)]
    rows += [(n + 1_000, SessionCounts(2, 2, 1, 0, 2 + seconds)) for n, seconds in enumerate((5, 30, 9))]
    rows += [(n + 2_000, SessionCounts(3, 2, 1)) for n in range(5)]
    assert sample(rows, 256).resends == Resends(AGENT_RESENDS + 3, 3, 1, 9), "one agent says that it fails"
    assert sample(rows[-5:], 256).resends is None


def again(agent: int, outcome: int, count: int) -> list[Row]:
    return [(agent * 1_000 + n, SessionCounts(agent, 2, 1, 0, outcome)) for n in range(count)]


@for_each("sessions", 1, 3, 100)
def test_one_agent_hides_no_failure_that_came_again_for_three(sessions: int) -> None:
    honest = [row for agent in (1, 2, 3) for row in again(agent, 1, 6)]
    alone = again(9, 2 + 600, sessions)
    assert sample([*honest, *alone], 256).resends == Resends(18, 0, 3, 0)
    assert sample([*honest[:12], *alone], 256).resends == Resends(
        12 + (kept := min(sessions, AGENT_RESENDS)), kept, 2, 600
    )
    second = again(8, 2 + 600, 1)
    assert sample([*honest, *alone, *second], 256).resends == Resends(19 + kept, 1 + kept, 3, 600)


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
