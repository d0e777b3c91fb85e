"""What is enough to be said of calls: evidence of agents, and warnings that are heeded."""

from random import Random

import pytest

from models.calls.evidence import AGENT_SESSIONS, Evidence, Facts, Fleet, Who
from models.calls.gate import Foreseen, Trial, thresholds
from tests.rows import for_each


def fleet(*agents: str, quorum: int = 2) -> Fleet:
    made = Fleet(quorum)
    made.agents.update(agents)
    return made


def test_of_one_agent_a_few_sessions_count_and_others_are_needed() -> None:
    met = Evidence(fleet("a", "b"))
    for _ in range(3 * AGENT_SESSIONS):
        met.add(Who("a", 1))
    assert (met.agents, met.sessions, met.is_enough) == (1, AGENT_SESSIONS, False)
    met.add(Who("b", 1))
    assert (met.agents, met.sessions, met.is_enough) == (2, AGENT_SESSIONS + 1, True)


@for_each(
    "quorum, met, is_enough",
    (1, [Who("a", 1)], False),
    (1, [Who("a", 1), Who("a", 2)], True),  # in a fleet of one owner and name, two goals stand for two agents
    (2, [Who("a", goal) for goal in range(9)], False),  # sessions are no principals
    (3, [Who("a", 1), Who("b", 1)], False),
)
def test_evidence_is_enough_from_a_quorum_of_principals_or_goals_of_one(
    quorum: int, met: list[Who], is_enough: bool
) -> None:
    evidence = Evidence(fleet(*{who.agent for who in met}, quorum=quorum))
    for who in met:
        evidence.add(who)
    assert evidence.is_enough is is_enough


def test_facts_met_the_longest_ago_are_forgotten_first() -> None:
    facts = Facts[str](fleet("a"), most=2)
    for fact in ("one", "two", "one", "three"):
        facts.count(fact, Who("a", 1))
    assert list(facts) == ["one", "three"] and facts["one"].sessions == 2


def test_a_principal_fills_no_bound_with_its_own_facts() -> None:
    facts = Facts[str](fleet("a", "b", "eve"), most=16)
    for agent in ("a", "b"):
        facts.count("of two", Who(agent, 1))
        for number in range(3):
            facts.count(f"{agent}{number}", Who(agent, 1))
    forgotten = [fact for number in range(50) for fact in facts.count(f"eve{number}", Who("eve", 1))]
    assert {fact for fact in facts if not fact.startswith("eve")} == {"of two", "a0", "a1", "a2", "b0", "b1", "b2"}
    assert all(fact.startswith("eve") for fact in forgotten) and "eve49" in facts and len(facts) <= 16


def test_what_several_principals_met_the_longest_ago_gives_way_at_last() -> None:
    facts = Facts[int](fleet("a", "b"), most=8)
    for fact in range(20):
        for agent in ("a", "b"):
            facts.count(fact, Who(agent, 1))
    assert list(facts)[-7:] == list(range(13, 20)) and len(facts) <= 8


def foreseen(chances: list[float], seed: int = 0, true: bool = True) -> list[Foreseen]:
    random = Random(seed)
    return [
        Foreseen(number, "s", 0, "sql", "first", fails, random.random() < (fails if true else 0.3))
        for number, fails in enumerate(chances)
    ]


@pytest.mark.parametrize("chances", [[n / 1000 for n in range(1000)], [0.95] * 500, [1.0] * 10, [0.1] * 50], ids=str)
def test_all_calls_above_one_level_are_warned_of(chances: list[float]) -> None:
    """Also if nearly all calls fail, as after a failure at a database, and if few or none are above the level."""
    calls = foreseen(chances)
    (found,) = thresholds({("sql", "first"): calls}, {})
    warned = [call for call in calls if call.fails >= found.least]
    assert found.least == 0.7
    assert (found.calls, found.failed) == (len(warned), sum(call.failed for call in warned))


def test_a_model_that_tells_nothing_warns_of_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([n / 1000 for n in range(1000)], true=False)}, {}) == ()


def trial(*agents: tuple[str, int, int, int, int], of: str = "abcdefgh") -> Trial:
    """By agent: calls with a warning and how many failed, calls whose warning was withheld and how many failed."""
    made = Trial(fleet(*of))
    for agent, shown, shown_failed, withheld, withheld_failed in agents:
        for is_shown, calls, failed in ((True, shown, shown_failed), (False, withheld, withheld_failed)):
            for number in range(calls):
                made.add(Who(agent, 1), shown=is_shown, failed=number < failed)
    return made


@for_each(
    "counts, in_vain",
    ((200, 50, 19, 0), False),  # too few were withheld
    ((200, 190, 20, 2), True),  # it harms
    ((200, 50, 60, 40), False),  # it helps
    ((200, 100, 60, 30), False),  # not known yet
    ((2000, 1000, 200, 100), True),  # many trials and no effect
)
def test_warnings_that_do_not_lift_are_not_said_again(counts: tuple[int, int, int, int], in_vain: bool) -> None:
    calls = {("sql", "first"): foreseen([number / 1000 for number in range(1000)])}
    for seen in (trial(("a", *counts), of="a"), trial(("a", *counts), ("b", *counts))):
        assert (thresholds(calls, {("sql", "first"): seen}) == ()) == in_vain


def test_no_principal_alone_ends_the_warnings_of_a_fleet() -> None:
    assert not trial(("eve", 2000, 2000, 2000, 0)).is_in_vain
    assert not trial(("eve", 2000, 2000, 2000, 0), *((agent, 30, 10, 30, 20) for agent in "abc")).is_in_vain
    assert trial(("eve", 2000, 2000, 2000, 0), *((agent, 30, 25, 30, 5) for agent in "abc")).is_in_vain
