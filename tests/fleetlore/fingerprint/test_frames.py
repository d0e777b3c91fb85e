"""Frames around the line of an error text that names the failure."""

import json
import unicodedata
import warnings
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.frames import MAX_MESSAGE, FrameReader, excerpt, head_line
from fleetlore.fingerprint.template_rules import FRAMES, Frame
from tests.cpu import costs_less_than
from tests.error_texts import any_text
from tests.rows import for_each

FAILURES = (
    "jq: command not found",
    "ModuleNotFoundError: No module named 'yaml'",
    "error[E0432]: unresolved import `tokio`",
    'ERROR:  column "prise" does not exist',
    "fatal: not a git repository",
    "第12行有语法错误",
    "Größe »Ä« ist ungültig",
)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame.kind} {frame.pattern}")
def test_each_example_needs_its_row(frame: Frame) -> None:
    without = FrameReader(row for row in FRAMES if row is not frame)
    assert without.line(frame.example) != head_line(frame.example)


@given(
    st.sampled_from(FAILURES),
    st.lists(st.sampled_from(["Exit code 1", "Chunk ID: 3f9c21", "Wall time: 0.5 seconds", "Output:", "=====", "\t"])),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["NFC", "NFD"]),
    st.sampled_from(["{}", "\ufeff{}", "\x1b[1;31m{}\x1b[0m", "\t{}  ", "│ {}"]),
)
def test_what_surrounds_a_failure_does_not_change_it(
    failure: str, frames: list[str], end: str, form: str, around: str
) -> None:
    text = end.join([*frames, around.format(failure)])
    whole = unicodedata.normalize(form, text)
    plain, framed = (failure_of("sh", {}, None, each) for each in (failure, whole))
    assert framed == plain


@given(any_text)
@example("|")
def test_a_line_is_found_in_any_text(text: str) -> None:
    assert bool(head_line(text)) == bool(text.replace("\ufeff", "").strip()) or not text.isprintable()


def test_both_ends_of_a_long_text_are_read() -> None:
    log = "reading a part\n" * 20_000
    plain = failure_of("make", {}, None, "error: no space left for `a`")
    for text in (f"{log}error: no space left for `a`", f"error: no space left for `a`\n{log}"):
        assert len(excerpt(text)) == MAX_MESSAGE
        assert failure_of("make", {}, None, text) == plain


_FIELD = "Error executing tool order: 1 validation error for orderArguments\n{}\n  Field required [type=missing]"
SAME = {
    "psql and its drivers": (
        ("", 'ERROR:  column "prise" does not exist\nLINE 1: SELECT prise'),
        ("", 'psql:/tmp/q.sql:3: ERROR:  column "prise" does not exist\nLINE 1: SELECT prise'),
        ("UndefinedColumn", 'column "prise" does not exist\nLINE 1: SELECT prise\n               ^'),
        ("psycopg2.errors.UndefinedColumn", 'column "prise" does not exist\nLINE 1: SELECT prise'),
        ("ProgrammingError", '(psycopg2.errors.UndefinedColumn) column "prise" does not exist\nLINE 1: x\n\n[SQL: x]'),
        ("", 'asyncpg.exceptions.UndefinedColumnError: column "prise" does not exist'),
        ("", 'pq: column "prise" does not exist'),
    ),
    "mysql and its drivers": (
        ("", "ERROR 1054 (42S22) at line 1: Unknown column 'prise' in 'field list'"),
        ("OperationalError", "(1054, \"Unknown column 'prise' in 'field list'\")"),
        ("", "(pymysql.err.OperationalError) (1054, \"Unknown column 'prise' in 'field list'\")"),
        ("ProgrammingError", "1054 (42S22): Unknown column 'prise' in 'field list'"),
        ("", "Error 1054 (42S22): Unknown column 'prise' in 'field list'"),
        ("", "java.sql.SQLSyntaxErrorException: Unknown column 'prise' in 'field list'"),
        ("", "SQLSTATE[42S22]: Column not found: 1054 Unknown column 'prise' in 'field list'"),
    ),
    "a page and its words": (
        ("", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center>nginx</center>"),
        ("", "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><hr></body></html>"),
    ),
    "what is wrong by field, in lists": (
        ("", '{"errors":{"email":["has already been taken"]}}'),
        ("", 'HTTP 422\n{\n  "errors": {\n    "email": [\n      "has already been taken"\n    ]\n  }\n}'),
    ),
    "a code of a compiler": (
        ("", "src/a.tsx(3,22): error TS2304: Cannot find name 'useCart'."),
        ("", "ERROR in ./app/b.tsx 8:0-31\nTS2304: Cannot find name 'useCart'."),
    ),
    "signs of Chinese": (
        ("", "无法将“iwr”项识别为名称。请检查拼写，然后重试。"),
        ("", "无法将“iwr”项识别为名称。请检查拼写。"),
    ),
    "OpenSSL and what calls it": (
        ("", "1407:error:0B080074:x509 certificate routines:X509_check_private_key:key values mismatch:x509.c:299:"),
        ("", 'nginx: [emerg] key("/a") failed (SSL: error:05800074:x509 certificate routines::key values mismatch)'),
    ),
    "SQLite and its drivers": (
        ("", "sqlite3.OperationalError: no such column: guild"),
        ("", "Error: in prepare, no such column: guild (1)"),
        ("", "Parse error: no such column: guild\n  SELECT guild FROM t;\n         ^--- error here"),
        ("", "SqliteError: no such column: guild\n    at Database.prepare (/w/better-sqlite3/lib/wrappers.js:5:21)"),
    ),
    "an object as JavaScript prints it, as bytes, in a string of another and cut off": (
        ("", "{\n  status: {\n    error: 'missing field `vectors` at line 1 column 60'\n  },\n  time: 0\n}"),
        ("", 'q.Unexpected: 400 (Bad Request)\nRaw response content:\nb\'{"error":"missing field `vectors`"}\''),
        ("", '{"error": {"message": "{\\"error\\": \\"missing field `vectors`\\"}"}}'),
        ("", '{"ok": false, "error": "missing field `vectors`'),
    ),
    "what was tried, and on the next line why it failed": (
        ("", "Error: Failed to launch the browser!\n/a/chrome: error: libnss3.so: cannot open shared object file"),
        ("", "/a/chrome: error: libnss3.so: cannot open shared object file"),
    ),
    "one language and another": (
        ("FileNotFoundError", "[WinError 2] 系统找不到指定的文件。: 'C:\\\\a\\\\b.txt'"),
        ("FileNotFoundError", "[WinError 2] The system cannot find the file specified: 'D:\\\\c.txt'"),
    ),
    "Oracle in one language and another": (
        ("", "ORA-00904: \"PRISE\": invalid identifier"),
        ("", "ORA-00904: \"PRISE\": 标识符无效"),
    ),
    "a compiler in one language and another": (
        ("", "Program.cs(3,9): error CS0103: The name 'foo' does not exist in the current context"),
        ("", "Program.cs(7,1): error CS0103: Der Name \"foo\" ist im aktuellen Kontext nicht vorhanden."),
    ),
    "one quoting and another": (
        ("", "main.c:11:3: error: unknown type name ‘FILE’"),
        ("", "main.c:9:1: error: unknown type name 'FILE'"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("texts", SAME.values(), ids=SAME)
def test_one_failure_is_one_pattern_in_each_of_its_wrappings(texts: tuple[tuple[str, str], ...]) -> None:
    found = {failure_of("run", {}, error_type, text).class_: text for error_type, text in texts}
    assert len(found) == 1, found


_ISSUE = (
    "MCP error -32602: Input validation error: Invalid arguments for tool order: [\n  {{\n"
    '    "code": "invalid_type",\n    "path": [\n      "{}"\n    ],\n    "message": "Required"\n  }}\n]'
)
DIFFERENT = (
    ("Exit code 1\nls: cannot access 'src': No such file or directory", "Exit code 1\ngrep: Unmatched [ or [^"),
    ("ORA-00904: \"PRISE\": invalid identifier", "ORA-00904: \"COST\": invalid identifier"),
    (
        "Exception in thread \"main\" java.lang.RuntimeException: no start\n\tat A.b(A.java:3)\nCaused by: "
        "java.net.ConnectException: Connection refused\n\t... 3 more",
        "Exception in thread \"main\" java.lang.RuntimeException: no start\n\tat A.b(A.java:3)\nCaused by: "
        "java.net.UnknownHostException: unknown host\n\t... 3 more",
    ),
    (
        "1 validation error for Order\nsize\n  Field required [type=missing, input_value={}, input_type=dict]",
        "1 validation error for Order\nname\n  Field required [type=missing, input_value={}, input_type=dict]",
    ),
    (_FIELD.format("address"), _FIELD.format("size")),
    (_ISSUE.format("address"), _ISSUE.format("size")),
    (
        "A.java:3: error: cannot find symbol\n  new Footer();\n  ^\n  symbol:   class Footer",
        "A.java:9: error: cannot find symbol\n  total();\n  ^\n  symbol:   method total()",
    ),
    (
        "PackagesNotFoundError: The following packages are not available:\n\n  - pytroch=2.1",
        "PackagesNotFoundError: The following packages are not available:\n\n  - nunpy=2.1",
    ),
    (
        "(AuthorizationFailed) The client 'a@b.example' is not allowed to perform action 'A.Net/nics/write'",
        "(AuthorizationFailed) The client 'a@b.example' is not allowed to perform action 'A.Net/nics/read'",
    ),
    ("a.c:3:10: fatal error: png.h: No such file or directory", "b.c:1:9: fatal error: z.h: No such file or directory"),
)  # fmt: skip


@for_each("texts", *DIFFERENT)
def test_different_failures_in_one_wrapping_are_different_patterns(texts: tuple[str, str]) -> None:
    one, other = (failure_of("run", {}, None, text) for text in texts)
    assert one.class_ != other.class_


def test_a_root_cause_keeps_the_class_of_what_it_caused() -> None:
    found = failure_of("run", {}, None, DIFFERENT[2][0])
    assert (found.error_class, found.template) == ("RuntimeException", "java.net.connectexception: connection refused")


def test_a_class_that_an_earlier_version_made_of_the_words_is_made_again() -> None:
    text = "Output:\nbash: line 1: jq: command not found"
    assert failure_of("run", {}, "output", text) == failure_of("run", {}, None, text)
    assert failure_of("run", {}, "rate_limited", "no more today").error_class == "rate_limited"


@for_each("text",
    "a" * 8_000 + ":", "Error: A" + " b" * 4_000, "Error calling tool " + "x" * 8_000,
    "Error calling tool x with arguments " + "{" * 8_000, "\\n" * 4_000, "Xx" + "A" * 50,
    "a_" * 300 + "!", "Z_:" * 660,
    "at " + ":" * 7_900 + "\nboom", "at main (/a.js" + ":1" * 3_900 + ":\nboom", "at " + "a(" * 3_900 + "\nboom",
    *(f"2026-01-02T03:04:05Z {blank * (7_900 // len(blank))}x y z w: q!" 
      for blank in (" ", " - ", " [1]", " a.b:", "\t")),
)  # fmt: skip
def test_no_frame_takes_long(text: str) -> None:
    assert costs_less_than(0.1, lambda: failure_of("run", {}, None, text))


@for_each("text",
    "{", "[", '{"error":', "{\n", "<html>", "<title>", "│ ", "a.b", "Caused by: ", "Caused by:\n", "a:1: ", "\x1b[",
    "\x1b]", "[a] ", "at ", "x\n", "=", "no ", "not found: ", "'a ", "(a b c d ", "(a b c d) ", "='a b ", "a.b/",
    "can't ", "='a b c' ", ":n't ", "not a ", "Error: ", "a.", "A", "no matches found for ", "(", "ValueError(",
    "exit with a non-zero exit status ", "/a", "a@", "1.", "0", "-1", "f", "a:", "~/", "a1", "'a", "[(", "C:\\a ",
    "<*> ", "x=1,", "to ", "command '", "{'error': '", "expected got ", "near `", "1x", "<a>",
    ": permission denied",
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    assert costs_less_than(0.1, lambda: failure_of("run", {}, None, text * (MAX_MESSAGE // len(text))))
    assert costs_less_than(0.1, lambda: failure_of("run", {}, None, "error: x " + text * (64_000 // len(text))))


@for_each("text",
    "{'error': {[1]: 2}}", "{'error': {{}}}", "{'error': {{'a': 1}: 'gone'}}", "{'error': {*[[]]}}",
    "{'a': " + "-" * 7_000 + "1}", "{'a': " + "[" * 3_000 + "}", "{'a': " + "9" * 5_000 + "}",
    "{'error': '\\d'}", "{'path': 'C:\\windows'}", "{'a': '\\x'}", "{'a': '\x00'}", "{'a': '\ud800'}",
)  # fmt: skip
@for_each("before", "", "boom: ")
def test_no_dictionary_of_python_that_cannot_be_read_raises_or_warns(text: str, before: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = warned = Mock()
        assert failure_of("run", {}, None, before + text).template
    assert not warned.called


# The output of a shell as coding agents frame it; # differs from call to call.
AGENTS = {
    "Claude Code": "Exit code {code}\n{error}",
    "Codex": "Chunk ID: 3f#c\nWall time: 0.0# seconds\nProcess exited with code {code}\nOutput:\n{error}",
    "Codex, JSON": '{{"output": {json}, "metadata": {{"exit_code": {code}, "duration_seconds": 0.#}}}}',
    "Gemini CLI": "Command: jq .\nDirectory: (root)\nStdout: (empty)\nStderr: {error}\nError: (none)\n"
    "Exit Code: {code}\nSignal: (none)\nProcess Group PGID: 471#",
    "Gemini CLI, newer": "Command: jq .\nDirectory: /w\nOutput: {error}\nError: (none)\nExit Code: {code}\nSignal: 0",
    "Copilot": "{error}\n<exited with exit code {code}>",
    "OpenHands": "{error}\n[The command completed with exit code {code}.]\n[Current working directory: /w/a#]",
    "OpenHands, long": "[Below is the output of the previous command.]\n{error}\n[Command finished with code {code}]",
    "aider": "I ran this command:\n\njq .\n\nAnd got this output:\n\n{error}",
    "SWE-agent": "OBSERVATION:\n{error}\n\n(Open file: n/a)\n(Current directory: /repo#)\nbash-$",
    "mini-SWE-agent": "<returncode>{code}</returncode>\n<output>\n{error}\n</output>",
    "Cursor": "Exit code: {code}\n\nCommand output:\n\n```\n{error}\n```",
    "Cursor, JSON": '{{"output": {json}, "exitCode": {code}, "durationMs": #}}',
    "Cline": "Command failed with exit code {code}.\nOutput:\n{error}",
    "Roo": "Command executed in terminal within working directory '/w/#'. Exit code: {code}\n"
    "Command execution was not successful, inspect the cause.\nOutput:\n{error}",
    "opencode": "{error}\n\n<metadata>\nexit code: {code}\n</metadata>",
}
SHELL_ERRORS = (
    ("/bin/bash: line 1: jq: command not found", 127),
    ("grep: Unmatched [, [^, [:, [., or [=", 2),
    (
        'Traceback (most recent call last):\n  File "/w/a.py", line 2, in <module>\n    import yaml\n'
        "ModuleNotFoundError: No module named 'yaml'",
        1,
    ),
)


@pytest.mark.parametrize("frame", AGENTS.values(), ids=AGENTS)
def test_the_frame_of_a_coding_agent_neither_joins_nor_splits_failures(frame: str) -> None:
    found = set()
    for error, code in SHELL_ERRORS:
        framed = frame.format(error=error, json=json.dumps(error), code=code)
        [one] = {failure_of("sh", {}, None, text).class_ for text in (error, *(framed.replace("#", n) for n in "12"))}
        found.add(one)
    assert len(found) == len(SHELL_ERRORS)
