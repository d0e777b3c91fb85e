"""One failure has one form, whatever framework handed it over; and different codes and names have different ones."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.normal_form import MAX_CLASS, normal_form
from tests.error_texts import any_text
from tests.rows import for_each

Door = Callable[[str, str], tuple[str, str]]

_TRACEBACK = 'Traceback (most recent call last):\n  File "tool.py", line 3, in call\n    run()\n'
# How frameworks hand over an exception: from its class and its text to `error.type` and the message.
DOORS: dict[str, Door] = {
    "type": lambda name, text: (name, text),
    "type with its package": lambda name, text: (f"builtins.{name}", text),
    "type, class in the text too": lambda name, text: (name, f"{name}: {text}"),
    "no type": lambda name, text: ("", f"{name}: {text}"),
    "_OTHER": lambda name, text: ("_OTHER", f"{name}: {text}"),
    "ToolError": lambda name, text: ("ToolError", f"{name}: {text}"),
    "tool_error": lambda name, text: ("tool_error", f"{name}: {text}"),
    "ToolException in the text": lambda name, text: ("", f"langchain_core.tools.ToolException: {name}: {text}"),
    "package in the text": lambda name, text: ("Exception", f"shop.errors.{name}: {text}"),
    "in brackets": lambda name, text: ("", f"(sqlite3.{name}) {text}"),
    "Error: in front": lambda name, text: ("", f"Error: {name}: {text}"),
    "sentence": lambda name, text: ("", f"Error executing tool query: {name}: {text}"),
    "sentence with arguments": lambda name, text: (
        "tool_error",
        f"Error invoking tool 'query' with kwargs {{'a': 1}} with error:\n {name}: {text}\n Please fix the error.",
    ),
    "traceback": lambda name, text: ("", f"{_TRACEBACK}{name}: {text}"),
    "traceback and tool_error": lambda name, text: ("tool_error", f"{_TRACEBACK}{name}: {text}"),
    "traceback and type": lambda name, text: (name, f"{_TRACEBACK}{name}: {text}"),
    "cause before it": lambda name, text: (
        "",
        f"{_TRACEBACK}OSError: first\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{_TRACEBACK}{name}: {text}",
    ),
}
_names = st.sampled_from(["KeyError", "ValueError", "OperationalError", "TimeoutError", "ConnectTimeout"])
_texts = st.one_of(
    st.sampled_from(
        [
            "'x'",
            "no such table: cars",
            "503 Service Unavailable",
            "[Errno 2] No such file or directory: 'a.txt'",
            "Command 'ls /x' returned non-zero exit status 2.",
            "bad value: 3 (expected 4)",
        ]
    ),
    st.text("abcdefgh 123_'", min_size=1, max_size=40).map(lambda text: f"saw {text}".strip()),
)


@pytest.mark.parametrize("door", DOORS)
@given(name=_names, text=_texts)
def test_one_failure_is_one_pattern_whatever_the_door(door: str, name: str, text: str) -> None:
    plain = failure_of("query", "{}", name, text)
    assert plain.error_class == name
    assert failure_of("query", "{}", *DOORS[door](name, text)) == plain


@for_each(
    "said, template",
    ("warehouse berlin was renamed to ber-one", "warehouse berlin was renamed to ber-one"),
    ("Unknown warehouse of the shop", "unknown warehouse of the shop"),
    ("no 'x' here any more", "no 'x' here any more"),
    ("no 'x' and no \"y\" here", "no 'x' and no \"y\" here"),
    ("no such order\nsee the list", "no such order"),
    ("price", "'price'"),
    ("Net-Price", "'net-price'"),
)
def test_the_text_of_a_key_error_keeps_its_words_whatever_the_door(said: str, template: str) -> None:
    quoted = repr(said)
    plain = failure_of("query", "{}", "KeyError", quoted)
    assert (plain.error_class, plain.template) == ("KeyError", template)
    for door in DOORS.values():
        assert failure_of("query", "{}", *door("KeyError", quoted)) == plain
    assert failure_of("query", "{}", "ToolError", f"KeyError({quoted})") == plain
    if " " in said:  # as the agent says it, and a traceback of a subclass
        assert failure_of("query", "{}", "KeyError", said) == plain
        assert failure_of("query", "{}", "", f"{_TRACEBACK}shop.GoneError: {quoted}").template == template


@for_each("line", "'first name' or 'last name'", "'no end to this", "it's John's")
def test_quotes_that_are_not_on_both_sides_of_one_text_stay(line: str) -> None:
    assert normal_form("ValueError", line).template == normal_form("ValueError", f"so {line}").template[3:]


@for_each(
    "one, other",
    ("订单１２３不存在", "订单４５６不存在"),
    ("الطلب ١٢٣ غير موجود", "الطلب ٤٥٦ غير موجود"),
    ("१२३ नहीं मिला", "789 नहीं मिला"),
)
def test_digits_of_every_script_are_masked(one: str, other: str) -> None:
    assert normal_form("", one) == normal_form("", other)


def test_a_type_that_is_no_wrapper_stays() -> None:
    found = normal_form("RuntimeError", "ValueError: x")
    assert (found.error_class, found.template) == ("RuntimeError", "valueerror: x")
    assert normal_form("404", "Not Found").error_class == "http_404"


@for_each(
    "message, error_class",
    ("HTTP 404 for /x", "http_404"),
    ("status 503 Service Unavailable", "http_503"),
    ("status code: 429", "http_429"),
    ("404 Not Found", "http_404"),
    ("errno 13", "errno_13"),
    ("[Errno 13] permission denied", "errno_13"),
    ("returned non-zero exit status 2.", "exit_2"),
    ("Error: Table 'cars' doesn't exist", "table_doesnt_exist"),
    ("Error: Table 'cars' doesn’t exist", "table_doesnt_exist"),
    ("", "error"),
    ("sh: foo: exit status 101", "exit_101"),
    ("Process finished with status 137", "exit_137"),
    ("returncode 1: boom", "exit_1"),
    ("returncode 124: boom", "exit_124"),
    ("exit_code=2", "exit_2"),
    ('{"exitCode": 3}', "exit_3"),
    ("Failed with status code 1", "exit_1"),
)
def test_an_error_without_a_type_is_classed_by_its_code_or_its_first_words(message: str, error_class: str) -> None:
    assert normal_form("", message).error_class == error_class


_EXITS, _STATUSES = (-64, -9, -1, 0, 1, 2, 13, 101, 126, 127, 137, 139, 143, 255), (400, 401, 403, 404, 409, 500, 503)


@for_each("form", "No matches found for {} in /repo/src/x.py", 'No matches found for "{}" in src/', "No match for {}")
def test_what_was_searched_for_in_vain_is_the_failure(form: str) -> None:
    sought = ("parse_config", "def parse(", "self.x == 3", "utils.py", "12:30")
    assert len({failure_of("search", "", None, form.format(each)).class_ for each in sought}) == len(sought)
    elsewhere = form.replace("/repo/src/x.py", "/repo/lib/y.py")
    assert failure_of("search", "", None, form.format("a")) == failure_of("search", "", None, elsewhere.format("a"))


@for_each(
    "message",
    "HTTP 503",
    "status code 429",
    "connection timed out",
    "Read timed out.",
    "TooManyRequests",
    "the service is temporarily unavailable, try again",
    "502 Bad Gateway",
    '{"type": "overloaded_error", "message": "Overloaded"}',
    "Temporary failure in name resolution",
    "socket.gaierror: temporary error",
    "The outage is temporary",
    "HTTPError: 429 Client Error: Too Many Requests for url: https://a.example/b: slow down a little",
    "connect ETIMEDOUT 10.0.0.1:443",
    "socket hang up",
    "getaddrinfo EAI_AGAIN registry.npmjs.org",
)
def test_weather_is_transient(message: str) -> None:
    assert normal_form("", message).transient


@for_each(
    "message",
    "HTTP 404",
    "permission denied",
    "no such file",
    "429 apples",
    "wrong, try again",
    "Command timed out after 30 seconds",
    "tac: failed to create temporary file '/x/tacAbc': Read-only file system",
    "CREATE TEMPORARY TABLE is not allowed here",
    "f() got an unexpected keyword argument 'request_timeout'",
    "unrecognized option '--rate-limit'",
    "call of overloaded 'f(int)' is ambiguous",
    "no matching overloaded function found",
    "KeyError: 'connection_timeout'",
    'Error calling tool \'x\' with args {"note": "status 502 seen"}: division by zero',
    "error in status 503 test: undefined variable x in this file",
    "502 GET handlers are registered but none matches",
)
def test_what_stays_is_not_transient(message: str) -> None:
    assert not normal_form("", message).transient


@given(st.none() | _names | any_text, any_text)
def test_a_form_taken_again_is_the_same(error_type: str | None, message: str) -> None:
    """What the stream keeps of a failed call is its class and its text."""
    found = normal_form(error_type or "", message)
    assert 0 < len(found.error_class) <= MAX_CLASS
    again = normal_form(found.error_class, message)
    assert again == normal_form(again.error_class, message)


def test_a_status_in_brackets_that_never_closes_is_read_at_once() -> None:
    began = time.process_time()
    normal_form("", f"[400 {'A' * 26}")
    assert time.process_time() - began < 0.5
