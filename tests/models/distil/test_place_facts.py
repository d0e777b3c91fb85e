from __future__ import annotations

from itertools import permutations
from typing import Any

from fleetlore.testing import sessions
from fleetlore.testing.sessions import call
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step
from models.calls.training import CallTraining
from models.distil.distiller import distil
from models.memory.item_state import ItemState
from models.memory.quality import is_junk

LIST = call("sql", "SHOW TABLES", "makers, cars_data")
USED = call("sql", "SELECT count(*) AS my_alias FROM cars_data", "[(406,)]")
REJECTED = call("sql", "SELECT count(*) FROM cars_data", error="Table 'shop.cars_data' doesn't exist")


def judgment(number: int, *steps: Step, place: str = "shop", **fields: Any) -> Judgment:
    values: dict[str, Any] = {
        "session": f"s{number}",
        "agent": f"a{number}",
        "goal": f"g{number}",
        "ended": 5.0 + number,
    }
    return sessions.judgment(*steps, label="abstained", source="none", place=place, **(values | fields))


def facts(*judged: Judgment) -> dict[str, MemoryItem]:
    states: dict[str, ItemState] = {}
    for each in judged:
        for candidate in distil(each):
            if candidate.kind == "place":
                states.setdefault(candidate.item_id, ItemState()).merge(candidate)
    made = [item for state in states.values() if (item := state.to_item()) is not None and is_junk(item) is None]
    return {item.title: item for item in made}


def test_what_results_show_at_a_stated_place_is_a_fact_once_two_goals_met_it() -> None:
    assert facts(judgment(0, LIST, USED)) == {}
    assert facts(judgment(0, LIST, USED, place=""), judgment(1, LIST, USED, place="")) == {}
    found = facts(judgment(0, LIST, USED), judgment(1, LIST, USED))
    assert set(found) == {"cars_data"}  # no alias that a query made up, no word of the language
    fact = found["cars_data"]
    assert (fact.place, fact.agents, fact.against) == ("shop", 2, 0)
    assert fact.content == "Works in calls of sql; shown by sql(SHOW TABLES)"
    other = facts(judgment(0, LIST, USED), judgment(1, LIST, USED, place="other"))
    assert other == {}


def test_a_fact_is_superseded_when_two_agents_meet_the_contrary_later_in_any_order_of_arrival() -> None:
    held = [judgment(number, LIST, USED) for number in range(4)]
    gone = [judgment(number, REJECTED) for number in (7, 8)]
    for order in permutations([*held[:2], *gone]):
        fact = facts(*order, *held)["cars_data"]
        assert fact.content.startswith("Rejected: ") and (fact.agents, fact.against) == (2, 4)
    # One agent alone takes nothing back, however often it says so.
    alone = [judgment(number, REJECTED, agent="a9") for number in (7, 8, 9)]
    assert facts(*held, *alone)["cars_data"].content.startswith("Works")


def test_the_call_model_counts_the_names_that_are_facts() -> None:
    training = CallTraining()
    judged = [judgment(0, LIST, USED), judgment(1, LIST, USED), judgment(2, REJECTED)]
    for each in judged:
        training.learn(each.trajectory)
    names = training._places.said(100)["shop"].names
    assert names["cars_data"] == (2, 1)
