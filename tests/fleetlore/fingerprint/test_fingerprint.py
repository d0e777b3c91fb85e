"""Failure patterns: what is masked, what is kept, and that any text at all gives one."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import (
    argument_shape,
    arguments_text,
    call_id,
    failure_of,
    pattern_id,
)
from tests.error_texts import any_text
from tests.rows import for_each


def test_three_levels_from_coarse_to_fine() -> None:
    call = {"command": "cat /etc/hosts"}
    first = failure_of("bash", call, "FileNotFoundError", "no file /a/b/c, line 3")
    other_template = failure_of("bash", call, "FileNotFoundError", "access denied to /a/b/c, line 3")
    other_shape = failure_of("bash", {"path": "x"}, "FileNotFoundError", "no file /d/e/f, line 4")
    assert first.family == other_template.family == other_shape.family
    assert first.class_ != other_template.class_
    assert first.class_ == other_shape.class_
    assert first.exact != other_shape.exact
    assert len({first.family, first.class_, first.exact}) == 3
    for other in (failure_of("sh", call, "FileNotFoundError", "x"), failure_of("bash", call, "OSError", "x")):
        assert other.family != first.family


def test_ids_do_not_change_between_releases() -> None:
    """What is stored must be found again: a change here needs a new `VERSION`."""
    failure = failure_of("bash", {"command": "ls /x/y"}, "OSError", "no file /x/y: 3")
    assert (failure.error_class, failure.template, failure.shape) == ("OSError", "no file", "command:text(ls)")
    assert pattern_id("family", "bash", "OSError") == failure.family
    assert pattern_id("class", "bash", "", "no file") == failure.class_


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4), any_text)
def test_agent_and_stream_agree_on_the_ids(arguments: dict[str, object], message: str) -> None:
    """The agent has an object; the stream reads it as an object, or as text with keys in any order."""
    assert call_id("t", arguments) == call_id("t", arguments_text(arguments))
    assert call_id("t", arguments) == call_id("t", orjson.dumps(arguments).decode())
    assert failure_of("t", arguments, None, message) == failure_of("t", orjson.dumps(arguments).decode(), None, message)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def cycle() -> list[object]:
    members: list[object] = []
    members.append(members)
    return members


@for_each(
    "arguments",
    {"n": 2**70, 1: "x"},
    {(1, 2): 3, None: 4, "a": 2**70},
    {"x": Unprintable()},
    {Unprintable(): 1},
    cycle(),
    {"s": "\ud800"},
    {"b": b"\xff", "set": {1}},
)
def test_arguments_that_are_no_json_have_an_id(arguments: object) -> None:
    assert call_id("t", arguments) == call_id("t", arguments_text(arguments))


@for_each(
    "arguments, shape",
    ("", ""),
    (None, ""),
    ({}, ""),
    ({"b": 1, "a": "x"}, "a:word,b:number"),
    ({"flag": "--force=yes"}, "flag:--force"),
    ({"path": "/a/b/c.txt"}, "path:path(.txt)"),
    ({"url": "https://a.example/b"}, "url:url(a.example)"),
    ({"sql": "SELECT 1 FROM x"}, "sql:text(select)"),
    ({"on": True, "off": None}, "off:none,on:true"),
    ({"many": ["a", "b"], "none": []}, "many:list[word],none:list[]"),
    ({"inner": {"b": 1, "a": 2}}, "inner:{a,b}"),
    ("ls -la /x", "text(ls)"),
    ("{broken", "word"),
    ([1, 2], "list[number]"),
)
def test_a_shape_names_keys_and_coarse_classes_and_never_values(arguments: object, shape: str) -> None:
    assert argument_shape(arguments) == shape


@for_each("url", "https://u:[redacted:url_password]@host/x", "http://[", "http://]", "ftp://[::g]/")
def test_a_url_that_no_parser_takes_has_a_shape_all_the_same(url: str) -> None:
    assert argument_shape({"url": url}).startswith("url:url(")
