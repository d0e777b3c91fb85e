"""The state of a pattern: merging commutes and can be repeated, and it fits a field of the store however much it has
seen.
"""

import random
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.wire.lore import PATTERN_LEVELS, Level, Pattern
from fleetlore.wire.stats import stable_hash
from models.memory.bottom_k import SessionCounts
from models.memory.pattern_parts import Timeline
from models.memory.pattern_state import DAY_SECONDS, PATTERN_SESSIONS, PatternState, Subject
from tests.rows import for_each

FIELD_BYTES = 65_535
TIME = 1_760_000_000.0

Row = tuple[int, SessionCounts, float, float, Subject]
row = st.tuples(
    st.integers(1, 30),
    st.builds(
        lambda agent, worked, failed, ended: SessionCounts(agent, worked + failed, failed, ended),
        st.integers(0, 5),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 2),
    ),
    st.floats(TIME, TIME + 60 * DAY_SECONDS),
    st.floats(TIME, TIME + 60 * DAY_SECONDS),
    # The subject of an error with a code: one id in any words.
    st.builds(
        lambda template, transient: Subject("id", "class", "bash", "OSError", template, transient=transient),
        st.sampled_from(["", "[errno 2] no such file", "[errno 2] datei fehlt"]),
        st.booleans(),
    ),
)
levels = st.sampled_from(["tool", "family", "class", "exact", "call"])


def state(level: Level, rows: Iterable[tuple[Any, ...]], transient: bool = False) -> PatternState:
    made = PatternState(Subject("id", level, "bash", "OSError", transient=transient))
    for row in rows:
        add(made, row)
    return made


def add(made: PatternState, row: tuple[Any, ...]) -> bool:
    *seen, subject = row if len(row) == 5 else (*row, made.subject)
    # The words of the health of a tool or a call follow from its id.
    words = replace(subject, level=made.subject.level) if made.subject.level in PATTERN_LEVELS else made.subject
    return made.add(*seen, words)


@given(levels, st.booleans(), st.lists(row, max_size=12), st.randoms(use_true_random=False))
def test_order_and_repetition_leave_no_trace_and_a_state_that_is_read_back_goes_on(
    level: Level, transient: bool, rows: list[Row], rng: random.Random
) -> None:
    once, half = state(level, rows, transient), len(rows) // 2
    mixed = rows + rows[:half]
    rng.shuffle(mixed)
    before = state(level, mixed[:half], transient)
    restored = PatternState.restore(before.to_pattern("t").to_json().decode(), before.state_json())
    for row in mixed[half:]:
        add(restored, row)
    assert restored.state_json() == once.state_json() and not any([add(once, row) for row in rows])
    pattern = restored.to_pattern("t")
    assert pattern == once.to_pattern("t")
    assert Pattern.from_json(pattern.to_json()) == pattern
    hash(Pattern.from_json(pattern.to_json()))


@given(levels, st.booleans(), st.lists(row, max_size=12), st.lists(row, max_size=12))
def test_two_states_join_to_that_of_all_observations(
    level: Level, transient: bool, some: list[Row], others: list[Row]
) -> None:
    joined = state(level, some, transient)
    joined.join(state(level, others, transient))
    assert joined.state_json() == state(level, some + others, transient).state_json()
    assert joined.to_pattern("t") == state(level, some + others, transient).to_pattern("t")


@for_each("level", "tool", "class")
def test_full_states_join_to_that_of_all_observations(level: Level) -> None:
    rng = random.Random(1)
    rows = [
        (rng.randrange(2**52), SessionCounts(rng.randrange(9), 2, 1), TIME + hour, TIME + hour)
        for hour in range(0, 3_000_000, 1_000)
    ]
    joined = state(level, rows[::2])
    joined.join(state(level, rows[1::2]))
    assert joined.state_json() == state(level, rows).state_json()


@for_each("level", "tool", "family", "class", "exact", "call")
@for_each("transient", False, True)
def test_what_is_stored_and_sent_stays_small(level: Level, transient: bool) -> None:
    rng = random.Random(1)
    rows = []
    for _ in range(2_000):
        start = TIME + rng.random() * 40 * DAY_SECONDS
        seen = SessionCounts(rng.randrange(2**51, 2**52), 512, 512, 2)
        template = "" if level == "family" else chr(rng.randrange(32)) * 240
        words = Subject("id", level, "bash", "\0" * 128, template, transient=transient)
        rows.append((rng.randrange(2**51, 2**52), seen, start, start + 5, words))
    made = state(level, rows, transient)
    assert len(made.state_json().encode()) <= FIELD_BYTES
    assert len(made.to_pattern("t").to_json()) <= 4_000


def test_the_last_sight_is_known_of_a_session_that_is_not_kept() -> None:
    made = state("class", [(n, SessionCounts(n, 1, 1), TIME, TIME) for n in range(PATTERN_SESSIONS)])
    assert made.add(2**52 - 1, SessionCounts(7, 1, 1), TIME + 50, TIME + 60)
    assert made.to_pattern("t").last_seen == TIME + 60
    assert not made.add(2**52 - 1, SessionCounts(7, 1, 1), TIME + 50, TIME + 60)


def test_transient_errors_count_the_agents_of_the_last_two_minutes() -> None:
    start = TIME - TIME % 60
    rows = [
        (n, SessionCounts(agent, 1, 1), start, start + minute * 60 + 1)
        for n, (agent, minute) in enumerate([(1, 0), (2, 0), (3, 6), (4, 7), (4, 7), (5, 7)])
    ]
    assert state("class", rows, transient=True).to_pattern("t").agents_lately == 3
    assert state("class", rows).to_pattern("t").agents_lately == 0


@for_each("delay", 0, 120 * 15)
@for_each("honest_first", False, True)
def test_one_agent_with_the_smallest_ids_hides_no_outage_of_others(delay: int, honest_first: bool) -> None:
    """`delay`: seconds after which it sends all of its invented failures, or 0 if it sends each at its time."""
    start = int(TIME - TIME % 15)
    alone = [(n, SessionCounts(9, 1, 1), start + n // 2 * 15, start + n // 2 * 15) for n in range(240)]
    others = [(2**40 + n, SessionCounts(n, 1, 1), start + 1770 - n, start + 1770 + n) for n in range(8)]
    made = PatternState(Subject("id", "class", "bash", "OSError", transient=True))
    for _ in range(2):
        for rows in (others, alone) if honest_first else (alone, others):
            for session, counts, first, last in rows:
                arrived = max(last, start + delay) if counts.agent == 9 else last
                made.add(session, counts, first, last, arrived=arrived)
    found = made.to_pattern("t")
    assert found.agents_lately >= 3 and found.outages[0][2] >= 3


@for_each("level", "tool", "call")
def test_one_agent_hides_by_no_number_of_calls_that_most_calls_fail(level: Level) -> None:
    hour = TIME - TIME % 3600
    failing = [(n, SessionCounts(n, 3, 2), hour + n, hour + n) for n in range(8)]
    works = [(99 + n, SessionCounts(9, 400, 0), hour + n, hour + n) for n in range(30)]
    ahead = [(200, SessionCounts(9, 400, 0), hour + 3700, hour + 3700)]
    for rows in (failing, [*works, *failing], [*failing, *works, *ahead]):
        calls, failures = state(level, rows).to_pattern("t").balanced
        assert failures == 16 and calls == 24 + 3 * (rows is not failing)
    assert state("class", failing).to_pattern("t").balanced == ()
    assert state(level, works[:2]).to_pattern("t").balanced == (800, 0), "one agent alone counts whole"


def test_outages_that_several_agents_met_are_kept_first() -> None:
    shared = [(n, SessionCounts(n, 1, 1), TIME, TIME) for n in range(2)]
    alone = [(9 + n, SessionCounts(9, 1, 1), TIME + n * 300, TIME + n * 300) for n in range(1, 12)]
    found = state("class", [*shared, *alone], transient=True).to_pattern("t").outages
    assert [agents for *_, agents in found] == [1] * 7 + [2]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 99)), max_size=12))
def test_the_last_agent_but_one_is_known_of_a_kind_of_call(calls: list[tuple[int, int]]) -> None:
    made = state("call", [(n, SessionCounts(agent, 1, 0), TIME, TIME + t) for n, (agent, t) in enumerate(calls)])
    newest = sorted({agent: max(t for each, t in calls if each == agent) for agent, _ in calls}.values())
    assert made.to_pattern("t").last_but_one == (TIME + newest[-2] if len(newest) > 1 else 0.0)


def test_outages_are_runs_of_failures_with_no_long_gap_in_any_order() -> None:
    start = int(TIME - TIME % 15)
    times = [(1, 0, 100), (2, 60, 290), (1, 900, 900), (3, 1000, 1140), (4, 1210, 1210)]
    rows = [
        (n, SessionCounts(agent, 1, 1), start + first, start + last) for n, (agent, first, last) in enumerate(times)
    ]
    expected = ((start + 990, 165, 3), (start + 60, 45, 2))
    for level in ("class", "exact"):
        for order in (rows, rows[::-1]):
            made = state(level, order, transient=True)
            assert made.to_pattern("t").outages == expected
            assert PatternState.restore(made.to_pattern("t").to_json().decode(), made.state_json()) == made
    assert state("class", rows).to_pattern("t").outages == ()
    made.discard([3, 4])
    assert made.to_pattern("t").outages == ((start + 900, 15, 1), (start + 60, 45, 2)), "what is erased leaves no trace"


@for_each("sessions, estimated", (72, ()), (300, ("all",)), (500, ("all", "hours", "days")))
def test_one_period_has_one_figure_or_is_called_an_estimate(sessions: int, estimated: tuple[str, ...]) -> None:
    rows = [
        (stable_hash(f"s{n}"), SessionCounts(stable_hash(f"a{n % 4}"), 3, int(n % 12 < 7)), TIME, TIME + 9)
        for n in range(sessions)
    ]
    pattern = state("tool", rows).to_pattern("t")
    assert pattern.estimated == estimated
    exact = sessions * 3, sum(seen.failures for _, seen, *_ in rows)
    for name, figures in {
        "all": (pattern.calls, pattern.failures), "hours": pattern.hours[0][1:], "days": pattern.days[0][1:]
    }.items():  # fmt: skip
        assert (figures == exact) or name in estimated


HOUR = 3600.0

seen = st.builds(SessionCounts, st.integers(0, 5), st.integers(1, 20), st.integers(0, 20), st.integers(0, 2))
entries = st.lists(st.tuples(st.integers(1, 40), seen, st.floats(0, 40 * HOUR)), max_size=40)


def timeline(rows: list[tuple[int, SessionCounts, float]]) -> Timeline:
    made = Timeline(HOUR, 5, 20)
    for row in rows:
        made.add(*row)
    return made


@given(entries)
def test_a_timeline_reads_back_from_its_rows(rows: list[tuple[int, SessionCounts, float]]) -> None:
    made, restored = timeline(rows), Timeline(HOUR, 5, 20)
    restored.restore(made.to_rows(), made.k)
    assert restored == made
    assert len(made.samples) <= 5 and sum(len(sample.kept) for sample in made.samples.values()) <= 20
    assert deepcopy(made).periods == made.periods


def test_periods_share_the_room_evenly_and_what_is_gone_makes_no_estimate_exact() -> None:
    made = Timeline(HOUR, 4, 40)
    for session in range(39):
        made.add(session, SessionCounts(session, 2, 1), HOUR)
    assert made.periods == ((1, 78, 39),) and not made.is_estimated, "a young one counts exactly"
    made.add(100, SessionCounts(100, 2, 1), 2 * HOUR)
    assert [len(made.samples[hour].kept) for hour in (1, 2)] == [20, 1] and made.is_estimated
    assert made.discard({100}) and list(made.samples) == [1]
    restored = Timeline(HOUR, 4, 40)
    restored.restore(made.to_rows(), made.k)
    for each in (made, restored):
        assert each.is_estimated
        each.add(39, SessionCounts(39, 2, 1), HOUR)
        assert len(each.samples[1].kept) == 20
