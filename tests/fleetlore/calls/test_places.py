from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.places import Ended, PlaceNames, Places, nearest, structure, unknown
from tests.rows import for_each

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
    assert structure(known, "the concert's year", "select age from singer")[0][0] == "singer", "what the call names"


@given(st.dictionaries(st.text("abcdef_", min_size=1, max_size=20), st.lists(st.text("abc_", min_size=1), max_size=30)))
def test_a_structure_fits(members: dict[str, list[str]]) -> None:
    known = PlaceNames(9, {}, members={owner: tuple(of) for owner, of in members.items()})
    found = structure(known, "a b c", most_chars=200)
    assert len("\n".join(f"{owner}({', '.join(of)})" for owner, of in found)) <= 200


@for_each(
    "rejected, names, expected",
    ("cites", ["cite", "paper"], "cite"),
    ("countrys", ["country"], "country"),
    ("countries", ["country"], "country"),
    ("publications", ["domain_publication", "publication_keyword"], None),
    ("stadiums", ["stadium", "stadium_id"], "stadium"),
    ("custId", ["cust_id"], "cust_id"),
    ("sb_cust_ids", ["sbCustId"], "sbCustId"),
    ("customer_adress", ["customer_address"], "customer_address"),
    ("date", ["data"], None),
    ("state", ["stats"], None),
    ("name", ["name"], None),
    ("transactons", ["transaction", "transactions"], "transactions"),
    ("total_a", ["total_b", "total_c"], None),  # several are as near
    ("local", ["total"], None),
    ("classes", ["class"], "class"),
)
def test_one_name_is_near_or_none_is(rejected: str, names: list[str], expected: str | None) -> None:
    known = PlaceNames(9, {name: Ended(2, 0) for name in names})
    assert nearest(rejected, known) == expected
    assert nearest(rejected, PlaceNames(9, {name: Ended(1, 2) for name in names})) is None, "they mostly fail"


def test_a_member_of_what_the_call_names_is_near_where_it_has_all_parts_of_a_name() -> None:
    known = PlaceNames(9, {}, members=MEMBERS)
    assert nearest("stadium", known, "select stadium from concert") == "stadium_id"
    assert nearest("name", known, "select name from concert") is None  # it has none
    assert nearest("id", known, "select 1 from concert") is None  # two have that part
    assert nearest("stadium", known, "select stadium from singer") is None


@for_each("rejected", "Maker", "maker", "MAKER")
def test_no_name_replaces_itself(rejected: str) -> None:
    known = PlaceNames(9, {"maker": Ended(2, 3)}, members={"car_makers": ("Id", "Maker", "FullName")})
    assert nearest(rejected, known, f"select {rejected} from car_makers") is None


@for_each(
    "call, named, expected",
    ("SELECT s.age, s.height FROM singer AS s", [], ["height"]),
    ("SELECT s.age FROM singers s WHERE s.Born > 1990", ["singers"], ["singers", "Born"]),
    ("SELECT 'tall' FROM singer WHERE NAME LIKE \"a b\"", [], []),  # words in quotes and in capitals
    ("SELECT upper(name) AS big FROM singer ORDER BY big", [], []),
    ("WITH old AS (SELECT name FROM singer) SELECT name FROM old", [], []),
    ("SELECT references FROM singer", ["references"], ["references"]),  # a word of queries, but the error names it
    ("SELECT t1.age FROM singer AS t1", ["t1"], []),
)
def test_names_that_a_place_has_not_are_found_in_a_call(call: str, named: list[str], expected: list[str]) -> None:
    assert unknown(call, PlaceNames(9, {}, members=MEMBERS), named) == expected


def names(*good: str, bad: tuple[str, ...] = (), words: tuple[str, ...] = ()) -> PlaceNames:
    known = {name: Ended(3, 0) for name in good} | {name: Ended(0, 3) for name in bad}
    return PlaceNames(10, known, words)


PLACES = Places(
    {
        "shop": names("customers", "orders", "invoices", "refunds", words=("customer", "invoice")),
        "zoo": names("animals", "keepers", "cages", "feedings", words=("animal", "lion")),
        "race": names("drivers", "circuits", "laps", "pitstops", words=("driver", "race")),
    }
    | {f"other{number}": names(f"thing{number}") for number in range(9)}
)


def test_a_goal_in_the_words_of_a_place_is_recognised() -> None:
    assert PLACES.recognise(CallContext("which customers have invoices and no refunds")) == "shop"


def test_a_call_that_worked_tells_the_place() -> None:
    context = CallContext("how many")
    assert PLACES.recognise(context) is None
    context.record(MadeCall("sql", "select count(*) from animals join keepers join cages"), "7")
    assert PLACES.recognise(context) == "zoo"


def test_a_goal_that_is_mostly_about_something_else_is_at_no_known_place() -> None:
    goal = "customers invoices flights airports runways gates luggage crews fuel weather delays tickets"
    assert PLACES.recognise(CallContext(goal)) is None


def test_a_goal_between_two_places_is_not_decided() -> None:
    assert PLACES.recognise(CallContext("customers of animals")) is None
    assert Places({}).recognise(CallContext("customers of the shop")) is None


def test_names_are_counted_by_how_calls_with_them_ended() -> None:
    place = PlaceNames(5, {"a": Ended(2, 0), "b": Ended(0, 2), "c": Ended(1, 1), "d": Ended(1, 9)})
    assert place.counts(["a", "b", "c", "d", "e"]) == (2, 1, 2, 1)
