from __future__ import annotations

from fleetlore.calls.card import MOST, card, like
from fleetlore.calls.places import Ended, PlaceNames, Places


def place(**names: tuple[int, int]) -> PlaceNames:
    return PlaceNames(9, {name: Ended(*ended) for name, ended in names.items()})


def test_names_like_the_goal_come_before_those_that_worked_more() -> None:
    known = place(car_makers=(3, 0), countries=(3, 0), stadium=(5, 0))
    assert card(known, "How many makers does the country have?", "select 1 from cars") == [
        "countries",
        "car_makers",
        "stadium",
    ]


def test_what_fails_there_and_what_the_session_knows_is_left_out() -> None:
    known = place(cars=(1, 9), cars_data=(2, 0), model=(4, 0))
    assert card(known, "cars", "", {"model"}) == ["cars_data"]


def test_a_card_is_short_and_its_order_is_one() -> None:
    known = place(**{f"{letter}{other}": (1, 0) for letter in "abcdefgh" for other in "abcdefgh"})
    found = card(known, "", "")
    assert found == sorted(known.names)[:MOST]


def test_what_works_everywhere_comes_last_and_takes_few_places() -> None:
    general = {f"show{letter}": (9, 0) for letter in "abcdef"}
    places = Places({f"shop{number}": place(**general, **{f"table{number}": (1, 0)}) for number in range(5)})
    assert card(places["shop3"], "", "") == ["showe", "showf", "table3", "showa", "showb", "showc", "showd"]
    assert card(places["shop3"], "", "", set(general)) == ["table3"]


def test_names_like_a_rejected_one_are_other_names() -> None:
    assert like(place(make=(9, 0), car_make=(3, 0), model=(1, 0)), ["make"]) == ["car_make"]
