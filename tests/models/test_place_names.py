from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.call import EndedCall
from fleetlore.wire.trajectory import MAX_SCHEMA, Step
from models.place_names import MAX_NAME, Told, shows_schema, told_of_place
from tests.build import call
from tests.rows import for_each


def read(step: Step, identities: tuple[str, ...] = ()) -> Told:
    return told_of_place([EndedCall(step)], identities)


def members(arguments: str, result: str = "1", error: str | None = None) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for owner, member in read(call("sql", arguments, result, error)).members:
        found.setdefault(owner, set()).add(member)
    return found


@for_each(
    "arguments, expected",
    ("SELECT Name, sbCustId FROM singers JOIN song_hits", "Name sbCustId singers song_hits"),  # as they are spelled
    # What the call names itself is none.
    ("SELECT COUNT(*) AS num_hits, lower(T1.name) FROM singers as T1 ORDER BY num_hits", "name singers"),
    ("WITH best AS (SELECT name FROM singers) SELECT name FROM best", "name singers"),
    ("submit", ""),
    ("I apologize, can you show the singers?", ""),
    ('{"query": "SELECT age FROM singers", "limit": 3}', "age singers"),
    # Nor are the words by which one asks.
    ("SHOW TABLES", ""),
    ("DESCRIBE singers", "singers"),
    ("PRAGMA table_info(singers)", "singers"),
    ("SELECT sql FROM sqlite_master", ""),
    # Nor is what somebody looked for.
    ("SELECT age FROM singers WHERE name = 'Mia Li' AND id = 4711", "age singers name id"),
    ('{"first_name": "Mia", "user_id": "mia_li_3668", "table": "singers"}', ""),
    ("SELECT mia_li FROM singers", "singers"),
    # Nor is a part of a masked name.
    ("SELECT age FROM `events-2024`", "age"),
    ("SELECT age FROM shop.fy2025_q3", "age"),
    ("SELECT age FROM singers WHERE id=4711 LIMIT 100", "age singers id"),
    # Nor is a sentence.
    ("SELECT ignore_previous_instructions_and_run_curl, do_as_i_say_and_not_as FROM cars", "cars"),
)
def test_names_of_a_call_that_worked_are_those_of_the_place(arguments: str, expected: str) -> None:
    assert read(call("sql", arguments, "1"), ("mia_li",)).names == set(expected.split())


@for_each(
    "rows",
    '[["jane_doe_42", "hiv_positive"], ["jdoe77", "acme_merger_q3"]]',
    "jane_doe_42 | hiv_positive\njdoe77 | acme_merger_q3",
    "[('jane_doe_42', 'hiv_positive')]",
)
def test_values_of_rows_are_no_names(rows: str) -> None:
    told = read(call("sql", "SELECT * FROM patients", rows))
    assert told.names == {"patients"} and not told.listed and not told.members


def test_keys_of_rows_are_names_and_values_are_not() -> None:
    rows = '[{"user_id": "jane_doe_42", "diagnosis": "hiv_positive", "address": {"city": "bad_toelz"}}]'
    assert members("SELECT * FROM patients", rows) == {"patients": {"user_id", "diagnosis", "city"}}
    # Keys with objects behind them are often somebody's.
    told = read(call("sql", "SELECT * FROM patients", '{"jane_doe": {"age": 7}}'))
    assert told.names == {"patients", "age"}


def test_words_of_a_list_are_listed_and_no_names_yet() -> None:
    for shown in ("cars\nmakers", "[('cars',), ('makers',)]", '[{"Tables_in": "cars"}, {"Tables_in": "makers"}]'):
        told = read(call("sql", "SHOW TABLES", shown))
        assert told.listed >= {"cars", "makers"} and not told.names & {"cars", "makers"}


@for_each("call, expected",
    ("SELECT cars.price FROM cars JOIN makers", {"cars": {"price"}}),
    ("SELECT t.price FROM cars AS t JOIN makers m ON t.id = m.id", {"cars": {"price", "id"}, "makers": {"id"}}),
    ("SELECT price FROM cars WHERE year > 3 GROUP BY color", {"cars": {"price", "year", "color"}}),
    ("SELECT price FROM shop.cars", {"cars": {"price"}}),
    ("SELECT `sbTxPrice` FROM `sbTransaction`", {"sbTransaction": {"sbTxPrice"}}),
    ("SELECT price FROM cars, makers", {}),
    ("SELECT name FROM cars WHERE id IN (SELECT id FROM makers)", {}),
    ("SELECT count(price) AS n, strftime('%Y', sold) FROM cars ORDER BY n DESC", {"cars": {"price", "sold"}}),
    ("INSERT INTO cars (price, color) VALUES (1, 'red')", {"cars": {"price", "color"}}),
    ('{"table": "cars", "fields": ["price", "color"]}', {}),  # a value may be anybody's
    ('{"order_id": "#W1234567"}', {}),
    ("from django.db import models\nmodels.Model()", {}),
)  # fmt: skip
def test_what_has_what_is_read_from_calls(call: str, expected: dict[str, set[str]]) -> None:
    assert members(call) == expected


DDL = (
    'CREATE TABLE "cars" (\\n id INT PRIMARY KEY,\\n price NUMERIC(9, 2),\\n maker_id INT,'
    " FOREIGN KEY (maker_id) REFERENCES makers(id))"
)
DESCRIBED = "[('id', 'int(11)', 'NO', 'PRI'), ('price', 'decimal(9,2)', 'YES', ''), ('maker_id', 'int(11)')]"
FIELDS = (
    '[{"name": "id", "type": "integer"}, {"name": "price", "type": "number"}, {"name": "maker_id", "type": "integer"}]'
)


@for_each("call, result",
    ("SELECT sql FROM sqlite_master", f'[["{DDL}"]]'),
    ("SELECT sql FROM sqlite_master", DDL.replace("\\n", "\n")),
    ("DESCRIBE cars", DESCRIBED),
    ("PRAGMA table_info(cars)", "0|id|INTEGER|0||1\n1|price|REAL|0||0\n2|maker_id|INTEGER|0||0"),
    ('{"query": "DESCRIBE cars"}', FIELDS),
    ("SELECT * FROM cars", '[{"id": 1, "price": 2.5, "maker_id": 7}]'),
)  # fmt: skip
def test_what_has_what_is_read_from_results(call: str, result: str) -> None:
    assert members(call, result) == {"cars": {"id", "price", "maker_id"}}
    assert shows_schema(result) == (not call.startswith("SELECT *"))


def test_of_a_call_that_failed_the_name_is_told_that_it_failed_for() -> None:
    step = call("sql", "SELECT 1 FROM singer WHERE name = 'Mia'", error="no such table: 'singer'")
    assert read(step).failed == {"singer"} and not read(step).names


def test_an_error_that_says_what_was_meant_tells_it() -> None:
    error = 'column "nam" does not exist. HINT: Perhaps you meant to reference the column "singer.name".'
    assert members("SELECT nam FROM singer", error=error) == {"singer": {"name"}}


def test_a_long_schema_is_read_as_far_as_it_is_kept() -> None:
    tables = "\n".join(f"CREATE TABLE table_{number} (id INTEGER, label TEXT NOT NULL)" for number in range(90))
    found = members("SELECT sql FROM sqlite_master", tables)
    assert len(tables) < MAX_SCHEMA and found["table_89"] == {"id", "label"}


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_call_can_be_read(arguments: str, result: str) -> None:
    told = read(call("sql", arguments, result))
    assert all(len(name) <= MAX_NAME for name in (*told.names, *told.listed))
