from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.places import Ended, PlaceNames, Places


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


def test_the_place_that_an_error_told_stands_before_what_words_say() -> None:
    context = CallContext("which customers have invoices and no refunds")
    context.record(MadeCall("sql", "select * from client"), "Table 'warehouse.client' doesn't exist", "E")
    assert PLACES.recognise(context) == Places({}).recognise(context) == "warehouse"


def test_a_goal_that_is_mostly_about_something_else_is_at_no_known_place() -> None:
    goal = "customers invoices flights airports runways gates luggage crews fuel weather delays tickets"
    assert PLACES.recognise(CallContext(goal)) is None


def test_a_goal_between_two_places_is_not_decided() -> None:
    assert PLACES.recognise(CallContext("customers of animals")) is None


def test_without_places_none_is_recognised() -> None:
    assert Places({}).recognise(CallContext("customers of the shop")) is None


def test_names_are_counted_by_how_calls_with_them_ended() -> None:
    place = PlaceNames(5, {"a": Ended(2, 0), "b": Ended(0, 2), "c": Ended(1, 1), "d": Ended(1, 9)})
    assert place.counts(["a", "b", "c", "d", "e"]) == (2, 1, 2, 1)
