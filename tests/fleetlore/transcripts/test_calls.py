"""Every result goes to the call that it answers, however the ids of a turn are chosen, and no call is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.transcripts.calls import OpenCalls, Verdict, verdict_of
from tests.cpu import costs_less_than
from tests.rows import for_each

TOOLS = ("search", "book", "pay")
# How the makers of logs choose the ids of a turn's calls.
SCHEMES = {
    "unique": lambda turn, number, tool: f"call_{turn}_{number}",
    "of the turn": lambda turn, number, tool: f"call_{number}",
    "none": lambda turn, number, tool: "",
    "one for all": lambda turn, number, tool: "0",
    "the tool's": lambda turn, number, tool: tool,
}
turns = st.lists(st.lists(st.sampled_from(TOOLS), max_size=5), max_size=5)


@given(turns, st.sampled_from(sorted(SCHEMES)), st.booleans())
def test_results_in_order_answer_their_calls(turns: list[list[str]], scheme: str, named: bool) -> None:
    left: list[object] = []
    calls = OpenCalls[tuple[int, int]](left.append)
    for turn, tools in enumerate(turns):
        ids = [SCHEMES[scheme](turn, number, tool) for number, tool in enumerate(tools)]
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            calls.add(id, tool, (turn, number))
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            assert calls.pop(id, tool if named else "") == (turn, number)
    assert not left and not len(calls)


@given(turns, st.sampled_from(sorted(SCHEMES)), st.data())
def test_an_interrupted_turn_takes_no_later_result(turns: list[list[str]], scheme: str, data: st.DataObject) -> None:
    left: list[tuple[int, int]] = []
    calls = OpenCalls[tuple[int, int]](left.append)
    answered = 0
    for turn, tools in enumerate(turns):
        calls.end_turn()
        ids = [SCHEMES[scheme](turn, number, tool) for number, tool in enumerate(tools)]
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            calls.add(id, tool, (turn, number))
        for number in range(data.draw(st.integers(0, len(tools)))):
            assert calls.pop(ids[number], tools[number] if scheme == "none" else "") is not None
            answered += 1
    calls.close()
    assert answered + len(left) == sum(map(len, turns)) and len(set(left)) == len(left)


def test_a_result_names_its_tool_where_ids_do_not_help() -> None:
    calls = OpenCalls[str](lambda call: None)
    for tool in TOOLS:
        calls.add("", tool, tool)
    assert [calls.pop("", "pay"), calls.pop("book"), calls.pop("call_of_the_server")] == ["pay", "book", "search"]


def test_the_oldest_call_is_left_when_there_are_too_many() -> None:
    left: list[int] = []
    calls = OpenCalls[int](left.append, limit=2)
    for number in range(4):
        calls.add(str(number), "search", number)
    assert left == [0, 1] and calls.pop("3") == 3 and calls.pop("0") is None


NEVER_MADE = [
    "<tool_use_error>Cancelled: parallel tool call Bash(cd /srv && make test) errored</tool_use_error>",
    "<tool_use_error>Sibling tool call errored</tool_use_error>",
    "Claude requested permissions to write to /srv/app/x.py, but you haven't granted it yet.",
    "Permission to use Bash has been denied because Claude Code is running in don't ask mode.",
    "Permission for this action was denied by the auto mode classifier.",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "The user doesn't want to take this action right now. STOP what you are doing.",
    "[Request interrupted by user for tool use]",
    "The user wants to clarify these questions.",
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
    "Permission to use Bash has been auto-denied in dontAsk mode.",
    "Permission to edit /srv/app/x.py has been denied.",
    "This Bash command contains multiple operations. The following parts require approval: git push",
    "ls in '/tmp' was blocked. For security, Claude Code may only list files in the allowed working directories",
    "<tool_use_error>Error: Streaming fallback - tool execution discarded</tool_use_error>",
    "Tool permission request failed: AbortError: Tool permission stream closed before response received",
    "[Tool result missing due to internal error]",
    "user cancelled MCP tool call",
    "Tool call cancelled by user.",
    "Skipping tool [write_to_file] due to user rejecting a previous tool.",
    "The user has declined to run this tool. DO NOT attempt to call this tool again.",
    "Action has been rejected by the user! Waiting for further user input.",
    "The user chose to skip the tool call, they want to proceed without running it",
    "The tool call is rejected by the user. User feedback: not today",
    "Tool call send with id call_1 was cancelled - another message came in before it could be completed.",
    "Tool not executed - a final result was already processed.",
    "Permission denied and could not request permission from user",
    "The user rejected this tool call. User feedback: not today",
    "Permission to run tool denied by user",
    "Operation 'vim x' is not supported by this environment.",
    "MCP tool cancelled by user",
    "[System: Tool execution skipped/interrupted by user. No result provided for tool 'book'.]",
    "Error: request to call tool denied. User reason: not today",
    "Tool call was not approved by the user",
    "Error: Tool call invocation was rejected by user.",
]


@for_each("marked", True, None)
@for_each("text", *NEVER_MADE)
def test_a_call_that_was_never_made_says_nothing_of_its_tool(text: str, marked: bool | None) -> None:
    assert verdict_of(text, marked) == Verdict(None if marked is None else text, made=False)
    for failed in (
        {"isError": True, "content": [{"type": "text", "text": text}]},
        {"error": text},
        {"error": {"message": text}},
    ):
        assert not verdict_of(failed).made and not verdict_of(json.dumps(failed, indent=1)).made


@for_each(
    "result, marked", ("aborted", True), ({"error": "aborted"}, None), ('{"isError": true, "content": "aborted"}', None)
)
def test_an_error_that_says_aborted_is_a_failure_of_its_tool(result: object, marked: bool | None) -> None:
    verdict = verdict_of(result, marked)
    assert verdict.made and verdict.error is not None and "aborted" in verdict.error


@for_each(
    "text",
    "Permission denied: /etc/shadow",
    "Permission to access the bucket has been denied by the server",
    "User rejected the invitation",
    "The user doesn't exist",
    "ERROR: permission denied for table users",
    "Exit code 2\nls: cannot access 'src': No such file or directory",
    "Cancelled: the order was cancelled by the shop",
    "aborted: 3 of 5 jobs failed",
    "Error: aborted",
    "Permission to read the bucket has been denied.",
    "Operation cancelled by user",
    "tool cancelled by user 4711",
    "Action rejected: insufficient funds",
    "Transaction rejected by user",
    "Tool execution failed: cancelled by the server",
    "The tool call log of 3 May: The user has declined to run this tool",
    '{"error": "the job was cancelled by user ann"}',
    '{"status": "denied", "message": "the card was declined"}',
)
def test_an_error_of_the_tool_is_one(text: str) -> None:
    assert verdict_of(text, True) == Verdict(text)


MCP = {"content": [{"type": "text", "text": "no rule"}], "isError": True}
FAILED = [
    ({"response": {"result": MCP}}, "no rule"),
    ({"is_error": True, "content": "no rule"}, "no rule"),
    ({"lc": 1, "type": "constructor", "kwargs": {"content": "no rule", "status": "error"}}, "no rule"),
    ({"output": "no rule", "metadata": {"exit_code": 2, "duration_seconds": 0.1}}, "no rule"),
    ({"stdout": "", "stderr": "no rule", "exitCode": -1}, "no rule"),
    ([{"type": "input_text", "text": "Error: no rule"}], "Error: no rule"),
    ({"type": "bash_code_execution_result", "stdout": "", "stderr": "no rule", "return_code": 1}, "no rule"),
    ({"stdout": "", "stderr": "no rule", "exit_status": 2}, "no rule"),
    ({"stdout": "", "stderr": "no rule", "code": 2}, "no rule"),
    ({"stdout": "no rule", "stderr": "", "outcome": {"type": "timeout"}}, "no rule"),
]


@for_each(
    "result, marked, verdict",
    ("aborted", None, Verdict(made=False)),
    ('{"status": "denied", "message": "The user denied this operation."}', None, Verdict(made=False)),
    ([{"type": "input_text", "text": "Exit code: 1\nOutput:\nno"}], None, Verdict("Exit code: 1\nOutput:\nno")),
    ([{"json": {"error": "no rule"}}], None, Verdict('{"error":"no rule"}')),
    ([{"stdout": "", "stderr": "no rule", "outcome": {"exit_code": 2}}], None, Verdict("no rule")),
    ({"exit_code": 2, "output": "x"}, False, Verdict("x")),
    ('{"exit_code": 2, "output": "x"}', False, Verdict()),  # a command printed it
    ('{"error": "no rule"}', None, Verdict('{"error": "no rule"}')),
    ('{"error": "no rule"}', False, Verdict()),  # its maker says that the call worked
    ('{"status": "error", "error": {"code": 5}}', None, Verdict('{"status": "error", "error": {"code": 5}}')),
)
def test_a_result_counts_with_what_its_maker_says(result: object, marked: bool | None, verdict: Verdict) -> None:
    assert verdict_of(result, marked) == verdict


@for_each("result, error", *FAILED)
@for_each("form", "value", "JSON", "indented")
def test_a_result_says_that_it_failed(result: object, error: str, form: str) -> None:
    given = result if form == "value" else json.dumps(result, indent=2 if form == "indented" else None)
    assert verdict_of(given) == Verdict(error)


@for_each(
    "text",
    "content='no rule' name='f' tool_call_id='c' status='error'",
    "meta=None content=[TextContent(type='text', text='no rule')] structuredContent=None isError=True",
    "CallToolResult(_meta=None, content=[TextContent(type='text', text=\"no rule\")], isError=True)",
)
def test_a_result_that_python_wrote_says_that_it_failed(text: str) -> None:
    assert verdict_of(text) == Verdict("no rule")
    assert verdict_of(text.replace("isError=True", "isError=False").replace("'error'", "'success'")) == Verdict()


ERRORS = (
    "Error code: 404 - {'error': 'no such model'}",
    "ERROR 1064 (42000): You have an error in your SQL syntax",
    "Error from server (NotFound): pods not found",
    "Error executing tool search: no rule",
    "Error in library(x) : there is no package called 'x'",
    "error: pathspec 'x' did not match",
    "KeyError",
    "Exception: no rule",
    "Uncaught TypeError: x is not a function",
    "Unhandled exception. System.IO.IOException: no rule",
    "panic: runtime error: index out of range [3] with length 3",
    "thread 'main' panicked at src/main.rs:2:5:\nno rule",
    "error[E0425]: cannot find value `x` in this scope",
    "error TS2304: Cannot find name 'x'.",
    "npm ERR! code E404",
    "PHP Fatal error:  Uncaught Error: no rule",
    "java.lang.NullPointerException\n\tat a.B.c(B.java:1)",
    'Exception in thread "main" java.lang.X',
    "An error occurred (NoSuchKey) when calling the GetObject operation: no such key",
    "<tool_use_error>String to replace not found in file.</tool_use_error>",
    "MCP error -32602: no such tool",
    "Input validation error: 'q' is a required property",
    "1 validation error for Booking\nday\n  Field required",
    "Unknown tool: book",
    "bash: foo: command not found",
    "zsh: command not found: foo",
    "bash: -c: line 1: syntax error near unexpected token `('",
    "'foo' is not recognized as an internal or external command",
    ' \n{"data": null, "errors": [{"message": "no rule"}]}',
    '{"success": false, "reason": "no rule"}',
    '{"status": "ERROR", "message": "no rule"}',
    '{"status": "failed", "message": "no rule"}',
    '{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no rule"}',
    '{"statusCode": 404, "body": "no rule"}',
    '{"errorMessage": "no rule", "errorType": "KeyError", "requestId": "", "stackTrace": []}',
    '{"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}',
    "The command 'make\tx' was cancelled because it took more than 30 seconds. Please try another.",
    "Your bash command contained syntax errors and was NOT executed.",
    "fatal: not a git repository (or any of the parent directories): .git",
    "Tool execution failed: no rule",
    "Command failed with exit code 1: git push",
    "apply_patch verification failed: Failed to find expected lines in /srv/a",
    "unsupported call: shel",
    "failed to parse function arguments: missing field `command`",
    "command timed out after 1000 milliseconds\nx",
    "ls: cannot access 'x': No such file or directory\n",
    "find: '/root': Permission denied\nfind: '/srv/a b': Permission denied",
    "git@example.org: Permission denied (publickey).",
    "cut: option requires an argument -- 'd'\nTry 'cut --help' for more information.",
    "run.sh: line 3: cd: /srv: Not a directory",
)


FRAMES = (
    "exitcode: 1 (execution failed)\nCode output: no rule",
    "Exit code: -1\nWall time: 3 seconds\nOutput:\n",
    "Chunk ID: 3f9c\r\nWall time: 0.1 seconds\r\nProcess exited with code 2\r\nOutput:\r\nno rule",
    "<returncode>2</returncode>\n<output>\nno rule\n</output>",
    "Command executed in terminal  within working directory '/srv'. Exit code: 2\nOutput:\nno rule",
    "no rule\n[The command completed with exit code 2.]\n[Current working directory: /srv]\n"
    "[Python interpreter: /usr/bin/python]\n[Command finished with exit code 2]",
    "no rule\n<exited with exit code 2>",
    "Command: x\nDirectory: (root)\nOutput: no rule\nError: (none)\nExit Code: 2\nSignal: (none)\nPGID: 7",
)


@for_each(
    "text",
    "Traceback (most recent call last):\n  …\nKeyError: 'x'",
    "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: x (1 sub-exception)",
    *ERRORS,
    *FRAMES,
)
def test_a_text_that_begins_as_an_error_is_one(text: str) -> None:
    for dressed in (text, f"\ufeff{text}", f"\x1b[1;31m{text}\x1b[0m"):
        assert verdict_of(dressed) == Verdict(text)


WORKED: list[object] = [None, "", 3, [1], [MCP["content"]], {}, {"error": None}, {"error": ""}, {"isError": False}]
WORKED += [{"status": "ok"}, {"items": [MCP]}, "Error.tsx\nError.css", "Errors are described on page 3"]
WORKED += [
    '{"log": {"error": "x"}}',
    '{"error',
    '{"error": null, "rows": 3}',
    {"mean": 3.2, "error": 0.05},
    "The log says Error: x",
    "Error handling in Go: a guide",
    "Error rate 0.1%",
    "Error log for app (last 10 lines):\nx",
    "Error in medicine: a review",
    "Error: none",
    "ERROR: 0\nWARNING: 2",
    "Error: 0.1 %",
    "Exception handling in Python",
    "npm errors and their meaning",
    "An error occurred in 3 of 500 jobs",
    "The user doesn't want to receive marketing mails.",
    "Permission to use Photos has been denied by customer 4",
    "Action rejected by user 4711",
    '{"success": false}',
    '{"data": {"rows": 3}, "errors": [{"message": "x"}]}',
    '{"errors": [{"message": "line 3"}], "warnings": []}',
    "Exit code: 1 means that no line was found",
    "find: '/root': Permission denied\n/srv/a",
    "ls: x: No such file or directory\n" * 4,
    "Permission denied",
    "invalid option: none",
    "from ci.log:\nstep 3: Process exited with code 1\nretried, all green",
    "Chunk ID: 3f9c\nProcess exited with code 0\nOutput:\nci.log: Process exited with code 1",
    '{"output": "Error: x", "metadata": {"exit_code": 0}}',
    {"exit_code": 0, "stdout": "x"},
    {"status": "failed", "order": 7, "message": "x"},
    {"status": 404, "message": "Not Found", "rows": []},
    {"code": 1, "name": "x"},
    {"errorMessage": None, "errorType": None, "rows": 3},
    {"errorMessage": "shown under an empty form", "field": "name"},
    "<returncode>0</returncode>\n<output>\n<exited with exit code 2>\n</output>",
    "ci.log: <exited with exit code 2>\n<exited with exit code 0>",
    "[The command completed with exit code 2.]\n[Command finished with exit code 0]",
    {"jobs": [{"exit_code": 1}]},
    [{"exit_code": 1}, {"outcome": "lost", "error": ""}],
    [{"type": "text", "text": "3 lines"}],
]


@for_each("result", *WORKED)
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


@for_each("id", "same", "")
def test_calls_of_one_turn_are_paired_in_linear_time(id: str) -> None:
    def pair() -> None:
        calls = OpenCalls[int](lambda call: None)
        for number in range(20_000):
            calls.add(id, "bash", number)
        assert [calls.pop(id, "bash") for _ in range(20_000)] == list(range(20_000))

    assert costs_less_than(0.8, pair)
