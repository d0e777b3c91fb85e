from random import Random

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.document import ArgumentForms
from fleetlore.testing.sessions import call, trajectory
from models.calls.forms import AGENT_SESSIONS, KEPT_FORMS, LEAST_SESSIONS, FormRecords


def forms(values: list[object], agents: int = 5, error: str | None = None) -> tuple[ArgumentForms, ...]:
    """What sessions teach of which each made one call."""
    records = FormRecords()
    for number, value in enumerate(values):
        step = call("get_order", orjson.dumps({"order": value}).decode(), "an order", error)
        records.learn(trajectory(step, session=f"s{number}", agent=f"a{number % agents}"))
    return records.said()


ORDERS: list[object] = [f"#W{1_000_000 + 7919 * number}" for number in range(20)]


def test_an_argument_is_written_as_in_the_calls_that_worked() -> None:
    [found] = forms(ORDERS)
    assert found == ArgumentForms("get_order", "order", ("#a9999999",), ("#W9999999",), 20, 5)


def test_what_the_values_do_not_share_is_not_kept() -> None:
    [found] = forms([f"{name}_{number}999" for number, name in enumerate(["mia", "ivan"] * 8, 10)])
    assert found.shown == ("a_99999",)
    [found] = forms(["mia_3668"] * 20)  # too few values to tell what they share
    assert found.shown == ("a_9999",)


def test_calls_that_failed_teach_no_form() -> None:
    assert forms(ORDERS, error="order not found") == ()


def test_one_agent_or_a_few_sessions_teach_no_form() -> None:
    assert forms(ORDERS, agents=1) == ()
    assert forms(ORDERS[: LEAST_SESSIONS - 1]) == ()
    [found] = forms(ORDERS * 5, agents=2)
    assert found.sessions == 2 * AGENT_SESSIONS


def test_an_argument_that_is_written_freely_has_no_form() -> None:
    random = Random(0)
    texts: list[object] = ["-".join("x1"[random.randrange(2)] for _ in range(9)) for _ in range(3 * KEPT_FORMS)]
    assert forms(texts, agents=100) == ()
    assert forms(["a longer sentence, which somebody wrote, about an order, freely"] * 20) == ()


def test_words_and_addresses_have_no_form() -> None:
    cities: list[object] = ["Denver", "New York", "Seattle", "San Jose", "Austin", "Fort Worth"] * 4
    assert forms(cities) == () == forms([f"{number} Oak Street" for number in range(100, 124)])
    assert forms([f"mia{number}@example.com" for number in range(100, 124)]) == ()
    assert forms([f"{number} " for number in range(100, 124)]) == ()


@given(st.lists(st.sampled_from([*ORDERS[:3], "#123", [], ["1"], 5, None, "free text " * 9]), max_size=40))
def test_forms_are_of_the_calls_and_each_once(values: list[object]) -> None:
    for found in forms(values):
        assert len(found.forms) == len(found.shown) == len(set(found.forms))
        assert found.agents <= 5 and found.sessions <= len(values)
