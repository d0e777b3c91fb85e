from copy import deepcopy

from models.calls.evidence import AGENT_SESSIONS, Evidence, Facts, Fleet, Who


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


def test_a_copy_counts_for_itself_in_a_fleet_of_its_own() -> None:
    facts = Facts[str](fleet("a"), most=2)
    facts.count("one", Who("a", 1))
    copied = deepcopy(facts)
    for fact in ("two", "three"):
        copied.count(fact, Who("a", 1))
    assert list(facts) == ["one"] and list(copied) == ["two", "three"]
