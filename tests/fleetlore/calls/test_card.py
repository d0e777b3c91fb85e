from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.card import MOST, around, card, like, nearest, structure
from fleetlore.calls.places import Ended, PlaceNames


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


def test_names_like_a_rejected_one_are_other_names() -> None:
    assert like(place(make=(9, 0), car_make=(3, 0), model=(1, 0)), ["make"]) == ["car_make"]


def test_names_are_told_as_they_are_spelled() -> None:
    known = place(sbCustId=(3, 0))
    assert card(known, "", "") == ["sbCustId"] and nearest("sb_cust_ids", known) == "sbCustId"


MEMBERS = {
    "stadium": ("id", "name", "capacity"),
    "concert": ("id", "title", "stadium_id", "year"),
    "singer": ("id", "name", "age"),
}


def test_what_is_nearest_to_the_goal_comes_first_and_the_rest_as_it_fits() -> None:
    known = PlaceNames(9, {"singer": Ended(9, 0)}, members=MEMBERS)
    assert structure(known, "Which concerts were in 2014?")[0] == ("concert", MEMBERS["concert"])
    assert structure(known, "the greatest capacity")[0] == ("stadium", MEMBERS["stadium"])
    assert [owner for owner, _ in structure(known, "")] == ["singer", "concert", "stadium"]
    assert structure(known, "", "select 1 from stadiums")[0][0] == "stadium"
    assert [owner for owner, _ in structure(known, "concerts", most_chars=40)] == ["concert"]


@given(st.dictionaries(st.text("abcdef_", min_size=1, max_size=20), st.lists(st.text("abc_", min_size=1), max_size=30)))
def test_a_structure_fits(members: dict[str, list[str]]) -> None:
    known = PlaceNames(9, {}, members={owner: tuple(of) for owner, of in members.items()})
    found = structure(known, "a b c", most_chars=200)
    assert len("\n".join(f"{owner}({', '.join(of)})" for owner, of in found)) <= 200


@pytest.mark.parametrize(
    ("rejected", "names", "expected"),
    [
        ("cites", ["cite", "paper"], "cite"),
        ("countrys", ["country"], "country"),
        ("countries", ["country"], "country"),
        ("publications", ["domain_publication", "publication_keyword"], None),
        ("stadiums", ["stadium", "stadium_id"], "stadium"),
        ("custId", ["cust_id"], "cust_id"),
        ("customer_adress", ["customer_address"], "customer_address"),
        ("date", ["data"], None),
        ("state", ["stats"], None),
        ("name", ["name"], None),
        ("transactons", ["transaction", "transactions"], "transactions"),
        ("total_a", ["total_b", "total_c"], None),  # several are as near
        ("local", ["total"], None),
        ("classes", ["class"], "class"),
    ],
)
def test_one_name_is_near_or_none_is(rejected: str, names: list[str], expected: str | None) -> None:
    known = PlaceNames(9, {name: Ended(2, 0) for name in names})
    assert nearest(rejected, known) == expected


def test_a_name_that_mostly_fails_is_no_replacement() -> None:
    assert nearest("cites", place(cite=(1, 2))) is None


@given(st.text("abc_s", min_size=1, max_size=12), st.lists(st.text("abc_s", min_size=1, max_size=12), max_size=8))
def test_a_near_name_is_another_that_works_here(rejected: str, names: list[str]) -> None:
    found = nearest(rejected, PlaceNames(9, {name: Ended(2, 0) for name in names}))
    assert found is None or (found in names and found != rejected)


def test_around_a_name_is_what_it_has_or_what_has_it() -> None:
    known = PlaceNames(9, {"singer": Ended(9, 0), "stadium": Ended(2, 0)}, members=MEMBERS)
    assert around("Singer", known) == [("singer", MEMBERS["singer"])]
    assert [owner for owner, _ in around("name", known)] == ["singer", "stadium"]
