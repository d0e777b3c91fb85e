from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.literals import names
from models.distil.call_diff import distance, masked_difference
from tests.rows import for_each


def said(failed: str, worked: str, known: str = "", named: str = "") -> str | None:
    found = masked_difference(failed, worked, names(known), names(named))
    return None if found is None else found.text


@for_each(
    "failed, worked, words",
    ("SELECT a FROM cars", "SELECT a FROM cars_data", "`cars` → `cars_data`"),
    ("tail -n 3 -a file", "tail -n 3 -v file", "`-a` → `-v`"),
    ("if a == b: print(1)", "if a != b: print(1)", "`==` → `!=`"),
    ("print(log(3))", "from math import log\nprint(log(3))", "add `from math import log`"),
    ("import os\nprint(log(3))", "import os\nfrom math import log\nprint(log(3))", "add `from math import log`"),
    ("select a from b", "select a from b limit 100", "`b` → `b limit <number>`"),
    ("a = 2 * pi", "a = 2 * math.pi", "`pi` → `math.pi`"),
    ("docker-compose up -d", "docker compose up -d", "`docker-compose` → `docker compose`"),
    ("a = 2 * math.pi", "a = 2 * pi", "`math.pi` → `pi`"),
    ("import os\nprint(pi)", "import os, math\nprint(pi)", "`os` → `os, math`"),
    ("SELECT a FROM b LIMIT 1 HAVING c", "SELECT a FROM b LIMIT 1", "drop `HAVING c`"),
    ("SELECT x FROM a JOIN b", "SELECT x FROM c JOIN d", "`a` → `c`, `b` → `d`"),
    ('{"a": "x", "b": 1}', '{"a": "x", "b": 2}', "`b=1` → `b=2`"),
    ('{"a": "x"}', '{"a": "x", "b": true}', "add `b=true`"),
    ('{"a": "x"}', '{"a": "x", "email": "ann@example.org"}', "add `email=<email>`"),
    ('{"a": "x", "b": null}', '{"a": "x"}', "drop `b=null`"),
    ('{"flag": "--fast"}', '{"flag": "--safe"}', "`flag=--fast` → `flag=--safe`"),
    ('{"command": "ls -z /tmp/x"}', '{"command": "ls -a /tmp/x"}', "`-z` → `-a`"),
    ("SELECT a FROM t WHERE b = 'Ann'", "SELECT c FROM t WHERE b = 'Bob'", "`a` → `c`"),
    # What cannot be shown: literals, and one change that is seen beside one that is not, as either may have helped.
    ("SELECT a FROM t WHERE b = 'Ann'", "SELECT a FROM t WHERE b = 'Bob'", None),
    ("SELECT a FROM t LIMIT 1000", "SELECT a FROM t LIMIT 2000", None),
    ("cat /home/ann/notes", "cat /home/bob/notes", None),
    ('{"email": "ann@example.org", "a": 1}', '{"email": "bob@example.org", "a": 1}', None),
    ('{"order_id": "#W1", "cabin": "business"}', '{"order_id": "#W2", "cabin": "economy"}', None),
    ("a b c d e f g h i j k l", "a v c d w f g x i j y l", None),
    # White space, where nothing else was changed.
    ("if a:\n  b()\n\tc()\n", "if a:\n  b()\n  c()\n", "`⇥c()⏎` → `··c()⏎`"),
    ("return  x", "return x", "`return··x` → `return x`"),
)
def test_a_change_in_words(failed: str, worked: str, words: str | None) -> None:
    assert words is None or (distance(failed, worked) or 0) > 0
    assert said(failed, worked) == words


def test_what_the_reader_knows_is_no_literal() -> None:
    assert said("f('big one')", "g('big one')") == "`f` → `g`"
    assert said("f('big one')", "f(x, 7)", known="no such 'big one'") == "`'big one'` → `x, 7`"


@for_each(
    "masked",
    *("fy2025_q3", "app_log_20240101", "'other one'", "50", "me@corp.example.com"),
    # Within a longer name.
    *("shop.fy2025_q3", "logs/app_20240101/notes", "app:20240101", "web-7f9c8d6b5-x2z9q", "data-20240101.log"),
)
def test_a_placeholder_is_no_name_that_works(masked: str) -> None:
    """An agent that sends `<id>` as the name of a table fails once more."""
    assert said("select a from sales", f"select a from {masked}", known="no such table: sales") is None
    assert said("select a from sales", f"select a from {masked}", named="sales") is None
    assert said("a(b, sales)", f"a({masked}, tax)") is None
    assert said(f"cat {masked} x", "cat notes x") is None


def test_the_placeholder_of_an_argument_is_no_value_that_works() -> None:
    known = "no such order_id 12345"
    assert said('{"a": 1, "order_id": 12345}', '{"b": 2, "order_id": 99999}', known=known) is None
    assert said('{"n": 44}', '{"m": 77}', known="44") == "add `m=<m>`, drop `n=44`", "the argument is named"


@for_each(
    "failed, worked, change",
    ("aws s3 ls --region eu-1", "aws s3 ls --region eu-central-1", "`eu-1` → `eu-central-1`"),
    ("select round(a, 2) from t", "select round(a::numeric, 2) from t", "`a` → `a::numeric`"),
    ('deploy {"n": 1}', 'deploy {"n": 1, "replicas": 3}', 'add `"replicas": 3`'),
    ("df.max(x)", "df.max(x, axis=1)", "add `axis=1`"),
    ("area = 2 * pi", "area = 2 * math.pi", "`pi` → `math.pi`"),
    ("make -j", "make -j -k=1", "`-j` → `-j -k=1`"),
    ("type C:\\a\\b.txt", "type C:\\a\\c\\b.txt", None),
    ("print(x)", "print(len(x))", None),
    ("a = v[1]", "a = v[1:100]", None),
    ("jq .", "& 'C:\\tools\\jq.exe' .", None),
    ("f(x, 2)", "f(x, 2, 'a b c')", None),
)
def test_a_change_is_cut_at_whole_words_and_values(failed: str, worked: str, change: str | None) -> None:
    assert said(failed, worked, known="missing field replicas") == change


@for_each(
    "failed, worked",
    ("SELECT a FROM cars", "SHOW TABLES"),
    ("get order 17", "get order 18"),
    ('{"order_id": "#W123"}', '{"order_id": "#W456"}'),
    ('{"id": 1}', '{"id": 2}'),
    ('{"a": "x", "b": "y", "c": "z"}', '{"a": "u", "b": "v", "c": "z"}'),
    ('{"a": 1}', '{"b": 1}'),
    ("one two three", ""),
)
def test_another_call_is_no_repair(failed: str, worked: str) -> None:
    assert distance(failed, worked) is None


@for_each(
    "failed, worked",
    ('{"url": "/v1/x?alice=1&b=2"}', '{"url": "/v1/x?robert=1&b=2"}'),
    ('{"rows": [{"ann": 1}]}', '{"rows": [{"bob": 1}]}'),
)
def test_a_key_within_a_value_is_a_field_only_if_the_error_names_it(failed: str, worked: str) -> None:
    assert said(failed, worked) is None
    assert said(failed, worked, named="alice ann") is not None


def test_the_nearer_call_has_the_smaller_distance() -> None:
    failed = "SELECT a FROM cars WHERE b = c"
    near, far = "SELECT a FROM cars_data WHERE b = c", "SELECT a FROM cars_data WHERE b IN (c)"
    assert (distance(failed, near) or 0) < (distance(failed, far) or 0)
    assert distance("x", "x") == distance('{"a":1,"b":2}', '{"b": 2, "a": 1}') == 0


TEXTS = st.one_of(
    st.text(max_size=60), st.sampled_from(["{", "{}", '{"a": NaN}', '{"a": {"b": [1]}}', "[1]", "\ud800", "a b c"])
)


@given(TEXTS, TEXTS)
def test_any_two_texts_can_be_compared(failed: str, worked: str) -> None:
    size = distance(failed, worked)
    assert size == distance(worked, failed)
    assert failed != worked or size == 0
    found = masked_difference(failed, worked)
    assert found is None or (found.text and failed != worked)
    assert found is None or found.was != found.now
