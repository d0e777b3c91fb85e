"""What is enough to be said of calls: evidence of agents, warnings that are heeded, and values that were replaced."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.document import OldValue, old_value_key
from fleetlore.calls.model import CallModel
from fleetlore.wire.trajectory import Trajectory
from models.calls import evidence
from models.calls.evidence import Facts, Fleet, OldValues, Who
from models.calls.gate import Foreseen, Trial, thresholds
from models.calls.training import train
from tests.build import call, trajectory
from tests.rows import for_each


def fleet(*agents: str, quorum: int = 2) -> Fleet:
    made = Fleet(quorum)
    made.agents.update(agents)
    return made


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


ERROR = "Error: mode is unknown"
FAST = old_value_key("run", "mode=fast")


def session(agent: str, *modes: tuple[str, bool], number: int = 0) -> Trajectory:
    """Calls of `run`, each with its mode and whether it failed."""
    calls = [call("run", f'{{"mode":"{mode}"}}', "ok", ERROR if failed else None) for mode, failed in modes]
    return trajectory(*calls, session=f"{agent}-{number}", agent=agent, goal=f"g{number}", ended=float(number))


def replaces(agent: str, number: int = 0) -> Trajectory:
    return session(agent, ("fast", True), ("quick", False), number=number)


def works(agent: str, number: int = 0) -> Trajectory:
    return session(agent, ("fast", False), number=number)


def learned(sessions: Sequence[Trajectory], quorum: int = 2) -> tuple[OldValue, ...]:
    records = OldValues(Fleet(quorum))
    for each in sessions:
        records.learn(Who.of(each), each.calls)
    return records.version()


def test_principals_count_once_a_side() -> None:
    assert learned([replaces("a"), replaces("a", 1)]) == ()
    taught = [replaces("a"), replaces("b"), replaces("b", 1)]
    assert learned(taught) == (OldValue(FAST, 2, 0),)
    used = [works("c", number) for number in range(9)]
    assert learned([*taught, *used, works("d")]) == (OldValue(FAST, 2, 2),)
    assert learned([*used, *taught]) == (OldValue(FAST, 2, 0),), "the tool may have changed since"
    assert learned([replaces("a"), *used, replaces("b")]) == (OldValue(FAST, 2, 0),)
    assert learned([replaces("a"), works("c")], quorum=1) == (OldValue(FAST, 1, 1),)
    both = session("c", ("fast", False), ("fast", True), ("quick", False))
    assert learned([replaces("a"), replaces("b"), both]) == (OldValue(FAST, 3, 0),), "its own replacement counts"


def test_a_value_that_nobody_replaces_any_more_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_KEPT_OLD", 3)
    taught = [session(agent, (f"m{mode}", True), ("quick", False), number=mode) for mode in range(9) for agent in "ab"]
    expected = {old_value_key("run", f"mode=m{mode}") for mode in (6, 7, 8)}
    assert {each.key for each in learned(taught)} == expected


_SESSIONS = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=24)


@given(_SESSIONS, st.lists(st.tuples(st.integers(0, 24), st.booleans()), max_size=12))
def test_one_more_principal_changes_each_count_by_one_at_most(
    honest: list[tuple[str, bool]], hostile: list[tuple[int, bool]]
) -> None:
    def made(found: list[tuple[str, bool]]) -> dict[int, OldValue]:
        sessions = [(replaces if is_taught else works)(who, number) for number, (who, is_taught) in enumerate(found)]
        return {each.key: each for each in learned(sessions)}

    attacked = list(honest)
    for place, is_taught in hostile:
        attacked.insert(min(place, len(attacked)), ("mallory", is_taught))
    before, after = made(honest), made(attacked)
    for part, known in before.items():
        assert known.replaced <= after[part].replaced <= known.replaced + 1


def test_a_version_of_the_model_holds_them_in_whatever_order_the_sessions_came() -> None:
    taught = [replaces("a"), replaces("b", 1), works("c", 2)]
    version = train(taught).weights
    assert train(taught[::-1]).weights == version
    model = CallModel.from_bytes(version)
    known = model.old_value("run", ["mode=fast"])
    assert known is not None and (known.replaced, known.works) == (2, 1)
    assert model.old_value("run", ["mode=fast", "mode=other"]) is None
