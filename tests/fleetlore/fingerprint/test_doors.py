"""One failure is one pattern, whatever framework hands it over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    y\n'
CLASSES = st.sampled_from(["KeyError", "ValueError", "NoSuchTableError", "ModuleNotFoundError"])
TEXTS = st.sampled_from(["'x'", "no such table: cars", "No module named 'sympy'", "bad value"])


@given(CLASSES, TEXTS)
def test_a_failure_has_one_id_through_every_door(name: str, text: str) -> None:
    doors = [
        (name, text),
        (f"builtins.{name}", text),
        (name, f"{name}: {text}"),
        ("", f"{name}: {text}"),
        ("_OTHER", f"{name}: {text}"),
        ("ToolError", f"pkg.{name}: {text}"),
        ("tool_error", f"{TRACE}{name}: {text}"),
        (name, f"{TRACE}{name}: {text}"),
    ]
    assert len({failure_of("tool", {}, *door).class_ for door in doors}) == 1


@pytest.mark.parametrize(
    ("message", "error_class"),
    [
        ("command failed with exit status 127", "exit_127"),
        ("exited with code 2", "exit_2"),
        ("returncode 124: killed", "exit_124"),
        ("returncode -9: killed", "exit_-9"),
        ("HTTP status 404", "http_404"),
        ("status 503 Service Unavailable", "http_503"),
        ("[Errno 13] permission denied", "errno_13"),
    ],
)
def test_codes_are_kept_apart(message: str, error_class: str) -> None:
    assert failure_of("tool", {}, None, message).error_class == error_class


def test_what_was_looked_for_is_kept() -> None:
    one, other = (failure_of("grep", {}, "", f'No matches found for "{name}" in /a/b.py') for name in ("foo", "bar"))
    assert one.class_ != other.class_


@pytest.mark.parametrize(
    ("message", "transient"),
    [
        ("Command timed out after 30 seconds", False),
        ("execution timed out", False),
        ("connection timed out", True),
        ("504 Gateway Timeout", True),
        ("HTTP 503: Service Unavailable", True),
        ("rate limit exceeded", True),
    ],
)
def test_a_tool_that_takes_too_long_is_no_weather(message: str, transient: bool) -> None:
    assert failure_of("shell", {}, None, message).transient == transient
