from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.document import OldValue, old_value_key
from fleetlore.calls.model import CallModel
from fleetlore.wire.trajectory import Trajectory
from models.calls import evidence
from models.calls.evidence import Fleet, OldValues, Who
from models.calls.training import train
from tests.build import call, trajectory

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


def test_what_is_no_second_attempt_replaces_nothing() -> None:
    def parted(failed: str, worked: str) -> list[Trajectory]:
        calls = call("run", failed, "", ERROR), call("run", worked)
        return [trajectory(*calls, session=agent, agent=agent) for agent in "ab"]

    many = "{" + ",".join(f'"n{number}":{number}' for number in range(4)) + "}"
    assert learned(parted(many, '{"other":1}')) == ()
    assert [each.key for each in learned(parted('{"query":"select type"}', '{"query":"select kind"}'))] == [
        old_value_key("run", "query=select type")
    ]
    assert learned(parted("select type", "select kind")) == (), "a word of a text is no argument"


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
