"""What is enough to be said of calls: evidence of agents, and warnings that are heeded."""

from random import Random

import pytest

from models.calls.evidence import AGENT_SESSIONS, Evidence, Facts, Fleet, Who
from models.calls.gate import Foreseen, Trial, thresholds


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


def test_in_a_fleet_of_one_owner_and_name_two_goals_stand_for_two_agents() -> None:
    met = Evidence(fleet("a", quorum=1))
    met.add(Who("a", 1))
    assert not met.is_enough
    met.add(Who("a", 2))
    assert met.is_enough


def test_sessions_are_no_principals_where_a_quorum_is_several() -> None:
    met = Evidence(fleet("a"))
    for goal in range(9):
        met.add(Who("a", goal))
    assert (met.agents, met.is_enough) == (1, False)
    met = Evidence(fleet("a", "b", quorum=3))
    met.add(Who("a", 1))
    met.add(Who("b", 1))
    assert not met.is_enough


def test_facts_met_the_longest_ago_are_forgotten_first() -> None:
    facts = Facts[str](fleet("a"), most=2)
    for fact in ("one", "two", "one", "three"):
        facts.count(fact, Who("a", 1))
    assert list(facts) == ["one", "three"] and facts["one"].sessions == 2


def foreseen(chances: list[float], seed: int = 0, true: bool = True) -> list[Foreseen]:
    random = Random(seed)
    return [
        Foreseen(number, "s", 0, "sql", "first", fails, random.random() < (fails if true else 0.3))
        for number, fails in enumerate(chances)
    ]


@pytest.mark.parametrize("chances", [[n / 1000 for n in range(1000)], [0.95] * 500, [1.0] * 10], ids=str)
def test_all_calls_above_one_level_are_warned_of(chances: list[float]) -> None:
    """Also if nearly all calls fail, as after a failure at a database, and if few calls are known."""
    calls = foreseen(chances)
    (found,) = thresholds({("sql", "first"): calls}, {})
    warned = [call for call in calls if call.fails >= found.least]
    assert found.least == 0.7
    assert (found.calls, found.failed) == (len(warned), sum(call.failed for call in warned))


def test_a_tool_none_of_whose_calls_was_above_the_level_has_it_too() -> None:
    (found,) = thresholds({("sql", "first"): foreseen([0.1] * 50)}, {})
    assert (found.least, found.calls, found.failed) == (0.7, 0, 0)


def test_a_model_that_tells_nothing_warns_of_nothing() -> None:
    assert thresholds({("sql", "first"): foreseen([n / 1000 for n in range(1000)], true=False)}, {}) == ()


@pytest.mark.parametrize(
    ("trial", "in_vain"),
    [
        (Trial(400, 100, 19, 0), False),  # too few were withheld
        (Trial(400, 380, 20, 2), True),  # it harms
        (Trial(400, 100, 60, 40), False),  # it helps
        (Trial(400, 200, 60, 30), False),  # not known yet
        (Trial(4000, 2000, 200, 100), True),  # many trials and no effect
    ],
)
def test_warnings_that_do_not_lift_are_not_said_again(trial: Trial, in_vain: bool) -> None:
    calls = {("sql", "first"): foreseen([number / 1000 for number in range(1000)])}
    assert (thresholds(calls, {("sql", "first"): trial}) == ()) == in_vain


def test_a_trial_counts_calls_by_arm() -> None:
    trial = Trial()
    for shown, failed in ((True, True), (True, False), (False, True)):
        trial.add(shown=shown, failed=failed)
    assert trial == Trial(2, 1, 1, 1)
