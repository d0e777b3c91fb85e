from __future__ import annotations

import orjson
import pytest

from fleetlore.advice.before_call import need_tip
from fleetlore.advice.gate import all_of
from fleetlore.calls.context import values_of
from fleetlore.calls.document import EQUAL, Document, Need
from fleetlore.calls.model import CallModel
from fleetlore.calls.quantities import KnownQuantities
from fleetlore.wire.trajectory import Trajectory
from models.calls.training import train
from tests.build import call, trajectory

ERROR = "Error: payment amounts do not add up to the total price"


def book(number: int, *, right: bool = True, agents: int = 3, fails: bool | None = None) -> Trajectory:
    """A trip is paid in two parts, which must add up to its price."""
    price = 100 + 7 * number
    parts = [{"id": "card", "amount": 40}, {"id": "gift", "amount": price - (40 if right else 41)}]
    fails = not right if fails is None else fails
    trip = f"trip_{number}"
    return trajectory(
        call("get_trip", orjson.dumps({"trip": trip}).decode(), orjson.dumps({"trip": trip, "price": price}).decode()),
        call("pay", orjson.dumps({"trip": trip, "parts": parts}).decode(), "paid", ERROR if fails else None),
        session=f"s{number}", agent=f"a{number % agents}", goal=f"pay {number}", ended=float(number),
    )  # fmt: skip


SESSIONS = [book(number, right=number % 4 > 0) for number in range(30)]


def needs(sessions: list[Trajectory]) -> list[Need]:
    return [each for each in Document.from_bytes(train(sessions).weights).needs if each.field == EQUAL]


def test_a_sum_that_must_match_is_learned_and_a_call_that_violates_it_told() -> None:
    (need,) = needs(SESSIONS)
    assert (need.tool, need.argument, need.value) == ("pay", "sum(parts.amount)", "trip.price")
    assert (need.failed, need.held, need.agents) == (8, 8, 3)
    model, known = CallModel(Document.from_bytes(train(SESSIONS).weights)), KnownQuantities()
    known.record('{"trip": "trip_x", "price": 60}')

    def pay(amount: int) -> str:
        return orjson.dumps(
            {"trip": "trip_x", "parts": [{"id": "c", "amount": 40}, {"id": "g", "amount": amount}]}
        ).decode()

    assert model.need("pay", (), known.of(values_of(pay(20)))) is None
    assert model.need("pay", (), known.of(values_of(pay(30)))) == need
    assert model.need("pay", (), {}) is None
    assert (
        all_of(need_tip(need).parts) == "Make `sum(parts.amount)` equal to `trip.price`: pay fails where they differ."
    )


def test_what_works_unequal_too_and_one_agents_calls_teach_nothing() -> None:
    assert needs([book(number, right=number % 3 > 0, fails=False) for number in range(30)]) == []
    other = trajectory(call("look", "{}"), session="other", agent="another")
    assert needs([*(book(number, right=number % 3 > 0, agents=1) for number in range(30)), other]) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"ids": ["a", "b"], "new_ids": []}, {"len(ids)": 2.0, "len(new_ids)": 0.0}),
        ({"order": "#W77", "n": 3}, {"order": "#W77", "n": 3.0, "len(order.items)": 2.0, "order.user": "mia"}),
        ({"flag": True, "none": None, "text": "x" * 99}, {}),
    ],
)
def test_quantities_of_a_call(arguments: dict[str, object], expected: dict[str, object]) -> None:
    known = KnownQuantities()
    known.record('{"order": "#W77", "items": [1, 2], "user": "mia"}')
    assert known.of(arguments) == expected
