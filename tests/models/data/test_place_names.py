import orjson

from fleetlore.testing.sessions import call
from models.data.place_names import names_of_place


def names(arguments: str, result: str = "1", error: str | None = None) -> set[str]:
    return {name for name, _ in names_of_place([call("sql", arguments, result, error)])}


def test_names_of_a_call_that_worked_are_those_of_the_place() -> None:
    assert names("SELECT name FROM singers JOIN song_hits") == {"name", "singers", "join", "song_hits"} - {"join"}


def test_what_a_call_names_itself_is_no_name_of_the_place() -> None:
    call = "SELECT COUNT(*) AS num_hits, T1.name FROM singers as T1 ORDER BY num_hits"
    assert names(call) == {"name", "singers"}
    assert names("submit") == set()
    assert names("I apologize, can you show the singers?") == {"show", "singers"}


def test_what_qualifies_a_name_is_none_by_itself() -> None:
    assert names("SELECT singers.name FROM `music_1`.`singers`") == {"name", "singers"}


def test_what_somebody_looked_for_is_no_name_of_the_place() -> None:
    assert names("SELECT age FROM singers WHERE name = 'Mia Li' AND id = 4711") == {"age", "singers", "name", "id"}
    arguments = {"first_name": "Mia", "user_id": "mia_li_3668", "table": "singers"}
    assert names(orjson.dumps(arguments).decode()) == {"first_name", "user_id", "table", "singers"}


def test_ids_in_a_result_are_no_names_of_the_place() -> None:
    assert names("SHOW TABLES", "song_hits, player1, credit_card_9074831, mia_li_3668") >= {"song_hits", "player1"}
    assert not any("mia" in name or "card" in name for name in names("SHOW TABLES", "credit_card_9074831, mia_li_3668"))


def test_of_a_call_that_failed_the_name_is_told_that_it_failed_for() -> None:
    assert names("SELECT 1 FROM singer WHERE name = 'Mia'", error="no such table: 'singer'") == {"singer"}
