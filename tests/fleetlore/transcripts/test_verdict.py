"""Whether a call worked, failed or was never made."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.transcripts.calls import Verdict, verdict_of
from tests.rows import for_each

NEVER_MADE = [
    "<tool_use_error>Cancelled: parallel tool call Bash(cd /srv && make test) errored</tool_use_error>",
    "<tool_use_error>Sibling tool call errored</tool_use_error>",
    "Claude requested permissions to use Bash, but you haven't granted it yet.",
    "Claude requested permissions to write to /srv/app/x.py, but you haven't granted it yet.",
    "Permission to use Bash has been denied because Claude Code is running in don't ask mode.",
    "Permission to use Bash with command rm -rf build has been denied.",
    "Permission for this action was denied by the auto mode classifier.",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "The user doesn't want to take this action right now. STOP what you are doing.",
    "[Request interrupted by user for tool use]",
    "PreToolUse:Bash hook error: [check.sh]: not on a Friday",
    "Bash operation blocked by hook:\n- not on a Friday",
    "exec command rejected by user",
    "patch rejected by user",
    "user rejected MCP tool call",
    "aborted by user after 5.2s",
    "[Operation Cancelled] Reason: User did not allow tool call",
    "The user denied this operation.",
    "The user rejected permission to use this specific tool call.",
    "User rejected the tool call for `book` with id call_1",
    "Tool execution aborted",
    "Tool execution was not approved.",
    "The tool call was denied.",
]


@for_each("marked", [True, None])
@for_each("text", NEVER_MADE)
def test_a_call_that_was_never_made_says_nothing_of_its_tool(text: str, marked: bool | None) -> None:
    assert verdict_of(text, marked) == Verdict(None if marked is None else text, made=False)
    assert not verdict_of({"isError": True, "content": [{"type": "text", "text": text}]}).made


@for_each(
    "text",
    [
        "Permission denied: /etc/shadow",
        "Permission to access the bucket has been denied by the server",
        "User rejected the invitation",
        "The user doesn't exist",
        "ERROR: permission denied for table users",
        "Exit code 2\nls: cannot access 'src': No such file or directory",
        "Cancelled: the order was cancelled by the shop",
    ],
)
def test_an_error_of_the_tool_is_one(text: str) -> None:
    assert verdict_of(text, True) == Verdict(text)


MCP = {"content": [{"type": "text", "text": "no rule"}], "isError": True}
FAILED = [
    (MCP, "no rule"),
    ({"result": MCP}, "no rule"),
    ({"response": {"result": MCP}}, "no rule"),
    ({"is_error": True, "content": "no rule"}, "no rule"),
    ({"status": "error", "content": "no rule", "tool_call_id": "c"}, "no rule"),
    ({"lc": 1, "type": "constructor", "kwargs": {"content": "no rule", "status": "error"}}, "no rule"),
]


@for_each("result, error", FAILED)
@for_each("form", ["value", "JSON", "indented"])
def test_a_result_says_that_it_failed(result: object, error: str, form: str) -> None:
    given = result if form == "value" else json.dumps(result, indent=2 if form == "indented" else None)
    assert verdict_of(given) == Verdict(error)


@for_each(
    "text",
    [
        "content='no rule' name='f' tool_call_id='c' status='error'",
        "meta=None content=[TextContent(type='text', text='no rule')] structuredContent=None isError=True",
        "CallToolResult(_meta=None, content=[TextContent(type='text', text=\"no rule\")], isError=True)",
    ],
)
def test_a_result_that_python_wrote_says_that_it_failed(text: str) -> None:
    assert verdict_of(text) == Verdict("no rule")
    assert verdict_of(text.replace("isError=True", "isError=False").replace("'error'", "'success'")) == Verdict()


@for_each("text", ['{"error": "no rule"}', '{"rows": [], "status": "error", "error": {"code": 5}}'])
def test_json_with_an_error_is_kept_whole(text: str) -> None:
    assert verdict_of(text) == Verdict(text)
    assert verdict_of(text, False) == Verdict()  # its maker says that the call worked


ERRORS = ("sqlite3.OperationalError: no such table: cars", "Error: no such user", "bash: foo: command not found")


@for_each("text", ["Traceback (most recent call last):\n  …\nKeyError: 'x'", *ERRORS])
def test_a_text_that_begins_as_an_error_is_one(text: str) -> None:
    assert verdict_of(text) == Verdict(text)


WORKED: list[object] = [None, "", 3, [1], [MCP["content"]], {}, {"error": None}, {"error": ""}, {"isError": False}]
WORKED += [{"status": "ok"}, {"items": [MCP]}, "Error.tsx\nError.css", "Errors are described on page 3"]
WORKED += [
    '{"log": {"error": "x"}}',
    '{"error',
    '{"error": null, "rows": 3}',
    "The log says Error: x",
    "/bin/sh: 1: x: not found",
]


@for_each("result", WORKED)
def test_a_result_that_says_nothing_of_a_failure_worked(result: object) -> None:
    assert verdict_of(result) == Verdict()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["error", "result", "status"]), inner),
)


@given(json_values, st.sampled_from([None, True, False]))
def test_every_result_has_a_verdict_and_a_mark_of_failure_counts(result: object, marked: bool | None) -> None:
    for each in (result, json.dumps(result)):
        assert (verdict_of(each, marked).error is not None) or marked is not True
