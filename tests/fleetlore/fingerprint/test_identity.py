"""The kind of a failure and the names that it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.identity import words_of
from fleetlore.fingerprint.normal_form import normal_form
from fleetlore.fingerprint.wordings import PHRASES, Phrase, PhraseBook
from tests.rows import for_each


def class_of(text: str, error_type: str | None = None) -> str:
    return failure_of("tool", {}, error_type, text).class_


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.wordings)
def test_each_example_needs_its_row(phrase: Phrase) -> None:
    words = words_of(phrase.example)
    assert phrase.kind in [kind for _, _, kind in PhraseBook(PHRASES).found(words)]
    without = PhraseBook(row for row in PHRASES if row is not phrase)
    assert phrase.kind not in [kind for _, _, kind in without.found(words)]


# Texts of one failure: other sentences around it, other wordings, another language's type of error.
SAME = {
    "a prefix": ("Table 'shop.orders' does not exist", "Query 17 failed: line 7:6: Table 'shop.orders' does not exist"),
    "a label": ("Task ran out of memory on its node", "(raylet) Task ran out of memory on its node"),
    "another wording": ("Unknown column 'prise'", "column 'prise' cannot be resolved", "no such column: 'prise'"),
    "a contraction": ("Couldn't find package 'left-pad'", "could not find package 'left-pad'"),
    "a message in quotes": (
        "unconfigured table orders_by_day",
        'InvalidRequest: code=2200 [Invalid query] message="unconfigured table orders_by_day"',
    ),
    "an accepted release": ("Unable to find the pod `Lottie`", "Unable to find the pod `Lottie (~> 0.4.12)`"),
    "a query in quotes": (
        "You have an error in your SQL syntax; use the right syntax near 'FROM cars' at line 1",
        "You have an error in your SQL syntax; use the right syntax near 'a != 'Blue Rose Beetle'' at line 1",
        "You have an error in your SQL syntax; use the right syntax near 'x (SELECT a FROM b c) y' at line 1",
    ),
    "an errno": (
        "OSError: [Errno 28] No space left on device",
        "npm ERR! ENOSPC: no space left on device, write",
        "cp: error writing '/backup/db.tar': No space left on device",
    ),
    "a refused connection": (
        "connect ECONNREFUSED 127.0.0.1:5432",
        "dial tcp 127.0.0.1:9092: connect: connection refused",
        "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Connection refused",
    ),
    "a signal": ("Process completed with exit code 139", "Segmentation fault (core dumped)", "Segmentation fault: 11"),
    "a lone code": ("Error: An API error occurred: not_in_channel", '{"ok":false,"error":"not_in_channel"}'),
    "an explanation behind it": (
        "Attribute `price` is not filterable. Available filterable attributes patterns are: `genre`.",
        "Attribute `price` is not filterable. This index does not have configured filterable attributes.",
    ),
    "the place of it": ("`total` not defined", "`total` not defined in `Main`"),
}


@pytest.mark.parametrize("texts", SAME.values(), ids=SAME)
def test_one_failure_is_one_pattern_in_each_of_its_sentences(texts: tuple[str, ...]) -> None:
    assert len({class_of(text) for text in texts}) == 1


DIFFERENT = (
    ("f() missing 1 required positional argument: 'x'", "f() got an unexpected keyword argument 'x'"),
    ("'NoneType' object is not subscriptable", "'NoneType' object is not iterable"),
    ("Unknown column 'prise'", "Unknown column 'total'"),
    ("Unknown column 'name'", "Unknown table 'name'"),
    ("table 'orders' already exists", "table 'orders' does not exist"),
    ("permission denied for relation orders", "permission denied for relation users"),
    ("UNIQUE constraint failed: users.email", "UNIQUE constraint failed: users.id"),
    ("awk: line 1: syntax error near }", "sh: 1: syntax error near }"),
    ('exec: "bun": executable file not found in $PATH', 'exec: "tini": executable file not found in $PATH'),
    ("Missing C library: cairo", "Missing C library: crypto"),
    ('Class "App\\Order" not found', 'Class "App\\Refund" not found'),
    ("google/api/a.proto: File not found.", "google/api/b.proto: File not found."),
)


@for_each("texts", *DIFFERENT)
def test_other_kinds_and_other_names_are_other_patterns(texts: tuple[str, str]) -> None:
    one, other = map(class_of, texts)
    assert one != other


@for_each(
    "text",
    "KeyError: 'connection_timeout'",
    "connect() got an unexpected keyword argument 'connection_timeout'",
    'column "connection_timeout" does not exist',
    "no such table: connection_refused",
    "status 137 is not a known order status",
    "code 137 is not in the list of country codes",
    "error 134 unexpected token",
    "error 111 in row parser",
    "bucket name too long",
    "unknown host key algorithm",
    "No space left in namespace quota",
)
def test_names_and_other_numbers_are_no_codes_of_the_system(text: str) -> None:
    assert normal_form("", text).identity not in {phrase.kind for phrase in PHRASES if phrase.decides}


@for_each(
    "kind, text",
    ("killed", "Process exited with code 137 after 41.2 s"),
    ("killed", "exited (137)"),
    ("killed", "Command failed with status 137"),
    ("killed", "Worker with pid 14824 was terminated due to signal 9"),
    ("refused", "Error 111 connecting to localhost:6379. 111."),
    ("pipe", "java.io.IOException: Broken pipe (Write failed)"),
    ("no resolver", "getaddrinfo EAI_AGAIN registry.npmjs.org"),
    ("requests", "An error occurred (TooManyRequestsException) when calling the Invoke operation"),
    ("connect time", "dial tcp 10.0.0.8:5432: i/o timeout"),
)
def test_codes_of_the_system_are_found_in_each_wording(kind: str, text: str) -> None:
    assert normal_form("", text).identity == kind


@given(st.lists(st.sampled_from(["ERROR:", "boom:", "Query 7 failed:", "[worker]"]), max_size=3))
def test_a_prefix_does_not_change_the_failure(prefixes: list[str]) -> None:
    assert class_of(" ".join((*prefixes, "column 'prise' does not exist"))) == class_of("column 'prise' does not exist")
