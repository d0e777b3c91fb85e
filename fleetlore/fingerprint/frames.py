"""Find the line of an error text that names the failure.

Programs wrap a failure in frames that say nothing about it: exit codes, stacks, progress, boxes, HTML, JSON. `FRAMES`
lists them, each with an example that needs it. A frame is removed only if something else is left.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from fleetlore.fingerprint.identity import has_phrase

__all__ = ["excerpt", "head_line"]

# Characters of a message. Longer ones are read at both ends, where programs say what went wrong.
MAX_MESSAGE = 8000
# Lines read from either end. Stacks and build logs repeat themselves in between.
_MAX_LINES = 32
_MAX_STRIPPED = 4
# Lines below the failure's in which its name may continue.
_MAX_BELOW = 5
# Objects in strings of objects are not nested deeper, and the first fields of an object name its error.
_MAX_DEPTH, _MAX_FIELDS = 3, 6


_Kind = Literal["strip", "drop", "sums", "mark", "names", "raises", "cause", "join", "more"]


class Frame(NamedTuple):
    """One kind of line.

    Attributes:
        kind: how a line that matches is read:
            `strip`: the match is removed from the line.
            `drop`: the line says nothing.
            `sums`: the line sums up what failed. The first one precedes all others.
            `mark`: the line behind the match names what failed. The first one precedes those below.
            `names`: the line names a failure. The first one counts.
            `raises`: the same, but the last one of a traceback counts.
            `cause`: the text behind the match, or the next line, caused the lines before.
            `join`: the line and the next name the failure. So does a line that ends with a colon, if it is one word, or
                a list or quoted name follows.
            `more`: a line below the failure's that continues its name.
        pattern: matched at the start of a line without its indentation.
        example: a text that is read differently without this row.
    """

    kind: _Kind
    pattern: str
    example: str


FRAMES = tuple(
    Frame(*row)
    for row in (
        # Coding agents and shells.
        ("drop", r"(?:Error: )?Exit [Cc]ode:? -?\d+$", "Exit code 1\nboom"),
        ("drop", r"Chunk ID: \w+$", "Chunk ID: 3f9c21\nboom"),
        ("drop", r"Wall time: [\d.]+ \w+$", "Wall time: 0.05 seconds\nboom"),
        ("drop", r"(?:\w+:? ){0,4}(?:exit(?:ed)?|failed)(?: with)?(?: exit)?(?: status| code):? -?\d+\W*$",
         "Process exited with code 127\nboom"),
        ("drop", r"\W*(?i:std(?:out|err)|(?:\w+ )?output|observation|errors?|details?)\W*$", "Output:\nboom"),
        ("drop", r"[$>] \S", "$ jq .\nboom"),
        ("strip", r"(?:MCP error -\d+: )?(?:Input validation error: )?Invalid arguments for tool \S+: (?=\S)",
         "MCP error -32602: Invalid arguments for tool f: boom"),
        ("strip", r"\W*(?:(?i:stderr|observation)|remote|Output)\W*:\s+", "stderr: boom"),
        ("drop", r"(?:Command|Directory): |[A-Z][\w ]+: (?:\((?:none|empty|root)\)|\d+)$",
         "Error: (none)\nboom"),
        ("drop", r"</?(?:returncode|output|metadata)\b|\[Below is the output|Command execut(?:ed|ion) ",
         "<returncode>127</returncode>\nboom"),
        ("cause", r"And got this output:$", "I ran this command:\njq .\nAnd got this output:\nboom"),
        # Boxes, bullets and rules.
        ("strip", r"[•│║|┃╭╰├└×✖✘✗❌⨯▶»]+[─>━═▶]*(?: |$)|x (?=[A-Z])|`-> ", "│ boom"),
        ("drop", r"[\W_]+$", "=====\nboom"),
        # Loggers and build tools put these in front of a line.
        ("strip", r"\[?\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z| ?[+-]\d\d:?\d\d"
         r"| UTC)?(?:: [A-Z]+/\w+)?\]?:?"
         r"(?:\s*+(?:[-|]\s*+)?(?:\[\d+\]|\[(?:ERROR|FATAL|CRITICAL|WARNING)\]|(?:ERROR|FATAL|CRITICAL"
         r"|WARNING)(?=:? [\w.:]+(?:: | - )| +[|-])"
         r"|[\w.]+(?:::\w+)*(?::\w+)?(?::\d+)?(?= - )|\w+(?:(?:\.|::)\w+)+:)){0,4}(?:\s+[-|](?=\s))?\s+",
         "2026-01-02T03:04:05Z boom"),
        ("strip", r"[EWF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.-]+:\d+\] ", "E0304 10:11:12.345678 31 main.go:98] boom"),
        ("strip", r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?: ", "Mar  4 10:11:12 a b[3]: boom"),
        ("strip", r"time=\S+ level=\w+ (?:\w+=\S+ ){0,4}(?:msg|error)=\"", 'time=10:11 level=error msg="boom"'),
        ("strip", r"[a-z][\w.-]*-\d+ +\| ", "worker-1  | boom"),
        ("strip", r"=+> ", "====> boom"),
        ("strip", r"#\d+ (?:\d+\.\d+ |(?=ERROR))", "#12 0.345 boom"),
        ("strip", r"\[(?:ERROR|FATAL|error)\]\s+|##\[error\]\s*", "[ERROR] boom"),
        ("strip", r"(?:\w+\.)?(?:ERROR|FAILED|FATAL|CRITICAL)(?: \[[\w.]+\] |(?<=\.ERROR): |(?<=FAILED): "
         r"|\t(?:Fatal error\t)?)",
         "FAILED: boom"),
        ("strip", r"(?:\{ )?\[(?=\w*Error(?: \[\w+\])?: )|\{ (?=\w*Error: )"
         r"|\*\* (?=\([\w.]+Error\) )", "[Error: boom] {\n  errno: -2\n}"),
        ("strip", r"npm (?:ERR!|error)(?: |$)", 'npm ERR! Missing script: "x"'),
        ("strip", r"(?:ERROR: )?(?:target \S+: )?failed to solve: |docker: (?=Error)", "docker: Error: no such image"),
        ("strip", r"\d\d:\d\d:\d\d +", "12:00:01  boom"),
        ("strip", r"\S+:\d+:in [`'][^`']*': ", "/w/a.rb:1:in `require': cannot load such file -- nokogiri"),
        ("strip", r"notarget (?=[A-Z])|e: (?=\S+:)|! (?!\[)|[\d. :kMG-]{20,}(?=curl: )",
         "! Undefined control sequence."),
        ("strip", r"\* (?!What went|Try|Get more|Where|Exception is)|what\(\): +|details = \"|<b>|\(node:\d+\) ",
         "what():  boom"),
        ("drop", r"404 Not Found - (?:GET|PUT) |(?:[\w.]+: )?<\w+ of RPC that terminated|terminate called "
         r"|For more information |status = StatusCode", "terminate called after it\nboom"),
        ("strip", r"Exception in thread \"[^\"]*\" ", 'Exception in thread "main" java.lang.StackOverflowError'),
        # Tracebacks of Python.
        ("mark", r"E {2,}", "==== FAILURES ====\nE   boom"),
        # Stacks of other languages.
        ("drop", r"goroutine \d+ \[|[a-z]\w+\.\w+\(|\w+Warning: ", "DeprecationWarning: old\nError: boom"),
        ("drop", r"at (?:(?:.*\s)?+[^\s:(]*+[:(]\S*\d\)?$|[\w.$<>/ ]+\()", "at main (/a.js:3:1)\nboom"),
        ("drop", r"(?:node:|file:/|/|[A-Z]:\\)[^\s:]*:\d+(?::\d+)?$", "node:internal/loader:1148\nboom"),
        ("drop", r"throw \w+;?$", "throw err;\nboom"),
        # Progress.
        ("drop", r"(?:Compiling|Checking|Downloading|Downloaded|Updating|Building|Blocking|Finished|Running|Fresh) \S",
         "Compiling app v0.1.0\nboom"),
        ("drop", r"on \S+ line \d+", "on main.tf line 5:\nboom"),
        ("drop", r"\d+: ", "5: port = x\nboom"),
        ("drop", r"make(?:\[\d+\])?: (?:\*\*\* \[|[EL]\w+ing |Nothing )", "make: Entering folder 'a'\nboom"),
        ("strip", r"make(?:\[\d+\])?: (?:\*\*\* )?(?!\*|[EL]\w+ing |Nothing )", "make: cc: Command not found"),
        ("drop", r"(?:Error: )?#{1,4} [\w./-]+$", "# example.com/app\nboom"),
        ("drop", r"\[?(?:INFO|DEBUG)\b|COMPILATION ERROR|Tests run: ", "[INFO] Compiling 3 files\nboom"),
        ("drop", r"-- |==> |== Comp", "-- Detecting a compiler\nboom"),
        ("drop", r"(?:Using|Resolved|Prepared|Audited|Solving|Installing|Retrying|Found|Examining|Channels:?) ?",
         "Using Python 3.12.1 environment at: .venv\nboom"),
        ("drop", r"@ |(?:[A-Z']+ ){3}", "@ WARNING: HOST KEY HAS CHANGED! @\nboom"),
        ("drop", r"Host key for |/\S+ -\S|\d+ of \d+ ", "1 of 1 ERROR creating table\nboom"),
        ("drop", r"The current \w+ SDK version|pub get failed|description\W*$|Description\W*$",
         "The current Dart SDK version is 3.2.0.\nboom"),
        ("drop", r"(?:Fetching|Resolving|Loading|Updating|Running with|Command line|vite v\d|✓) ?",
         "Fetching gems\nboom"),
        ("drop", r"(?:Encountered an error|Received exception from|FAIL) ?", "Encountered an error:\nboom"),
        # Failures that only say that something within them failed.
        ("drop", r"(?i:(?:error:? )?command failed\b)|[\w.+/-]+: error: .*\bexit (?:code|status)\b",
         "Error: command failed: jq\nboom"),
        ("drop", r"(?:[\w.]+: )?Cmd\('\w+'\) failed due to|cmdline: ",
         "git.exc.GitCommandError: Cmd('git') failed due to: exit code(128)\nstderr: 'boom'"),
        ("drop", r"Msg \d+, Level \d+", "Msg 208, Level 16, State 1\nboom"),
        ("drop", r"fatal: Could not read from remote repository",
         "fatal: Could not read from remote repository.\nboom"),
        # Lines that name a failure.
        ("sums", r"(?:FAILED \S+::|ERROR \S+\.py - )", "E   assert 3 == 4\nFAILED a.py::test_b - assert 3 == 4"),
        ("sums", r"--- FAIL: ", "=== RUN TestA\nerror: x\n--- FAIL: TestA"),
        ("sums", r"! \[(?:remote )?rejected\]", "error: x\n! [rejected] main -> main (fetch first)"),
        ("names", r"(?:(?:[A-Z]:)?[^\s:(]++[:(]\d+(?:[:,]\d+)?\)?:? (?:- )?)?(?:fatal )?error(?:\[\w+\]| [A-Z]+\d+)?: ",
         "boom\na.c:5:3: error: expected ';'"),
        ("names", r"E: ", "boom\nE: gpg fails"),
        ("names", r"(?:ERR_)[A-Z_\d]+ +(?=\w)", "boom\nERR_PNPM_FETCH  GET x"),
        ("mark", r"\d+:\d+ +error +", "/a.js\n9:8  error  'x' is not used  no-unused-vars"),
        ("names", r"CMake Error\b|\*\* \(", "boom\nCMake Error at CMakeLists.txt:6 (find_package):"),
        ("names", r"(?:ERROR|FATAL|PANIC|Fatal|fatal|panic|Error|abort)\b.{0,40}?: ", "boom\nfatal: no"),
        ("raises", r"[A-Za-z_][\w.]*+(?=:|$)(?:(?<=Error)|(?<=Exception)|(?<=Warning)|(?<=Interrupt)|(?<=Exit)"
         r"|(?<=Timeout)|(?<=Iteration))",
         "boom\nValueError: one"),
        ("raises", r"(?:[a-z_]\w*+\.)++[A-Z]\w*+(?:$|: )", "boom\ndocker.errors.NotFound: one"),
        # Lines that lead to others.
        ("cause", r"(?:The |Raw |HTTP )*(?:[Rr]esponse|[Ss]erver) (?:body|text|message|said|content|responded with): ?",
         "x.ApiException: (404)\nReason: Not Found\nHTTP response body: no such pod"),
        ("cause", r"(?:Code: \d+\. Errors"
         r"|(?:\S+: )?\d+ errors? occurred):", "Error of an API\nCode: 403. Errors:\nboom"),
        ("drop", r"\S.* could not be resolved to an installable set|Problem \d+$|- Installation request ",
         "Your requirements could not be resolved to an installable set of packages.\nboom"),
        ("cause", r"\d+\) [\w\\]+::\w+$", "There was 1 failure:\n1) UserTest::testActive\nboom"),
        ("cause", r"(?:\[?Caused by:?|-+> (?=\S+(?:Exception|Error)))\s*", "one\nCaused by: two"),
        ("join", r"thread '[^']*' (?:\(\d+\) )?panicked at ", "thread 'main' panicked at a.rs:5:27:\nboom"),
        ("join", r"Error (?:executing|calling|invoking) .{0,500}:$", "Error executing tool x:\nboom"),
        ("join", r"(?:.{0,200}: )?\d+ validation errors? for ", "1 validation error for Order\nsize\nField required"),
        ("join", r"\S+:\d+:\d+: (?:fatal )?error:(?: \[[\w-]+\])?$|Warning, treated as error:$|.*\b\w+(?:Error"
         r"|Exception):$",
         "a.hs:3:1: error: [GHC-1]\nboom"),
        ("join", r"CMake Error at .*:$", "CMake Error at CMakeLists.txt:6 (find_package):\nno Clp"),
        ("join", r"(?:[\w.]+: )?(?:\([\w.]+\) )?(?:\d+ \(\w+\): )?(?:[0-9a-f-]{36}: )?SQL compilation error:",
         "SQL compilation error:\nObject 'A' does not exist"),
        ("more", r"symbol *: ", "a.java:3: error: cannot find symbol\n  f();\n  symbol:   method f()"),
        ("join", r"Error: [A-Z][a-z]+(?: [a-z]+){1,6}$", "Error: Unsupported argument\nNo argument named \"x\"."),
    )
)  # fmt: skip

_QUOTES = {"'": "‘’‚", '"': "“”„«»"}
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TAG = re.compile(r"<[^<>]*>")
_TAGGED = re.compile(r"<(\w{1,40})>([^<].*)</\1>", re.S)
_HTML = re.compile(r"<(?:!doctype html|html)\b", re.I)
_TITLE = re.compile(r"<(title|h1|pre)\b[^>]*>(.*?)</\1>", re.I | re.S)
_EMPTY_TITLE = re.compile(r"\W*(?:error|bad request)?\W*", re.I)
_TRACEBACK = ("Traceback (most recent call last)", "During handling of the above", 'File "')
_EXCEPTION = re.compile(r"(?:Exception in thread \"[^\"]*\" )?((?:[A-Za-z_$][\w$]*\.)*[A-Z]\w*(?:Error|Exception))\b")
# Only lines with a colon or wide blanks, with a sign in front, or of one word name a failure.
_MAY_SPEAK = re.compile(r"[^:]*:|[^\w\s]|\S+(?:$|  )").match
# A line that is only a name; the next says what is wrong.
_LISTED = re.compile(r"[-*•] \S|[\"'`]|Because ").match
# A line that says what was tried and not why it failed.
_OUTER = re.compile(r"(?:[\w.]+: )*(?:Failed|Could not|Unable) (?:to )?[^:]*$").match
_ONLY_A_NAME = re.compile(r"[\w.\[\]]+")

# Fields of an error that a program printed as an object: its code, where it is, and its words.
_CODES = frozenset({"status_code", "statuscode", "code", "status", "type", "reason", "error_code", "title", "error"})
_NAMES = frozenset({"loc", "path", "field", "property", "parameter", "pointer", "argument"})
_WORDS = frozenset(
    {"message", "msg", "detail", "details", "desc", "errmsg", "error_description", "error_message", "errormessage"}
    | {"description", "str"}
)
_FIELDS = _CODES | _NAMES | _WORDS | {"errors"}
_OUTPUTS = ("stderr", "output", "aggregated_output", "stdout")
# Objects as JSON, Python, JavaScript, Ruby and Go print them, perhaps cut off. A string of a field is no key.
_OBJECT = re.compile(
    r"(?:(?P<quote>[\"']?)(?P<name>[A-Za-z_][\w.-]*)(?P=quote)\s*(?:=>|[:=])\s*)?+"
    r"(?:[bu]?\"(?P<double>(?:[^\"\\]|\\.)*+)(?:\"|$)|[bu]?'(?P<single>(?:[^'\\]|\\.)*+)(?:'|$)"
    r"|[\[(](?P<list>[^\[\](){}]+)[\])]|(?P<open>[{\[(])|(?P<close>[}\])])"
    r"|(?P<bare>-?\d+|[A-Z][A-Z_]+)(?![\w.])|[\w.-]++)",
    re.S,
)
_ESCAPED, _ESCAPES = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S), {"n": "\n", "r": "\r", "t": "\t"}
_ITEM = re.compile(r"[^\s,'\"][^,'\"]*")
# Where an object begins in a line, and the status before it, which its fields repeat.
_EMBEDDED = re.compile(
    r"(?:[:>-] |\d |\n)(?:b?['\"])?(?=\{ ?['\"]|\[\{ ?['\"])|(?<=\w)(?=[{(]\w+=[^{}()]*\b(?:str|message)=[\"'])"
)
# `{ Error: no such table` is an error of JavaScript, with its fields behind its stack.
_RAISED = re.compile(r"\{ \[?\w*[Ee]rror: [^'\"{\[]").match
_LIST_BEFORE = re.compile(r"\[\s*$")
_STATUS_BEFORE = re.compile(
    r"(?:\b(?:API )?Error(?: code)?[: ]+|\b(?:HTTP|status(?: code)?)[: ]+)?\b[1-5]\d\d(?: [A-Z]\w+)*[\s:-]+$", re.I
)


def excerpt(message: str) -> str:
    """The read part of a message: both ends if it is longer than `MAX_MESSAGE`."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]}\n{message[1 - MAX_MESSAGE // 2 :]}"


class FrameReader:
    def __init__(self, frames: Iterable[Frame]) -> None:
        patterns: defaultdict[_Kind, list[str]] = defaultdict(list)
        for frame in frames:
            patterns[frame.kind].append(frame.pattern)
        joined = {kind: "|".join(patterns[kind]) or r"(?!)" for kind in get_args(_Kind)}
        self._strip, self._drop, self._join, self._cause = (
            re.compile(joined[kind]).match for kind in ("strip", "drop", "join", "cause")
        )
        self._mark, self._more = re.compile(joined["mark"]).match, re.compile(joined["more"]).match
        speaking = ("sums", "mark", "cause", "names", "raises")
        self._speaks = re.compile("|".join(f"(?P<{kind}>{joined[kind]})" for kind in speaking)).match

    def line(self, message: str) -> str:
        """The line that names the failure, with what it leads to; "" for an empty message."""
        text = _unpacked(_plain(message))
        raw = text.splitlines()
        if len(raw) > 2 * _MAX_LINES:
            raw = raw[:_MAX_LINES] + raw[-_MAX_LINES:]
        lines = [line for each in raw if (line := self._stripped(each))]
        if len(lines) < 2:
            return self._joined(lines, 0) if lines else " ".join(text.split())
        found = [
            (match.lastgroup, place)
            for place, line in enumerate(lines)
            if _MAY_SPEAK(line) and (match := self._speaks(line))
        ]
        cause = next((place for kind, place in reversed(found) if kind == "cause"), -1)
        is_traceback = any(map(text.__contains__, _TRACEBACK))
        place = self._place(lines, found, is_traceback=is_traceback)
        line = self._caused(lines, place, cause) if cause >= place else self._joined(lines, place)
        names = self._speaks(line) and line[-1] != ":" and line.count(" ") > 2 and not _OUTER(line)
        if is_traceback or names or has_phrase(line):
            return line
        return next((each for each in lines if has_phrase(each) and not self._drop(each)), line)

    def _stripped(self, line: str) -> str:
        line = line.strip().rstrip(" │┃║")
        for _ in range(_MAX_STRIPPED):
            if (match := self._strip(line)) is None:
                break
            line = line[match.end() :].lstrip()
            if match.group().endswith('"'):
                line = line.removesuffix('"')
        return line

    def _place(self, lines: list[str], found: list[tuple[str | None, int]], *, is_traceback: bool) -> int:
        for wanted in ("sums", "mark"):
            for kind, place in found:
                if kind == wanted:
                    return place
        if is_traceback:
            return next((place for kind, place in reversed(found) if kind == "raises"), len(lines) - 1)
        for kind, place in found:
            if kind != "cause" and not self._drop(lines[place]):
                return place
        return next((place for place, line in enumerate(lines) if not self._drop(line)), 0)

    def _joined(self, lines: list[str], place: int) -> str:
        if mark := self._mark(lines[place]):
            return lines[place][mark.end() :]
        line, below = lines[place], lines[place + 1 : place + 1 + _MAX_BELOW]
        joins = self._join(line) is not None
        if joins or line.endswith(":"):
            following = [each for each in below if not self._drop(each)]
            if joins or (following and (" " not in line or _LISTED(following[0]))):
                if following[1:] and _ONLY_A_NAME.fullmatch(following[0]):
                    return ": ".join((line.rstrip(":"), *following[:2]))
                return " ".join((line, *following[:1]))
        return " ".join((line, *filter(self._more, below)))

    def _caused(self, lines: list[str], place: int, cause: int) -> str:
        match = self._cause(lines[cause])
        root = lines[cause][match.end() :] if match else ""
        if not root:
            root = self._joined(lines, cause + 1) if cause + 1 < len(lines) else lines[place]
        outer = _EXCEPTION.match(lines[place])
        return f"{outer[1]}: {root}" if outer else root


def _plain(message: str) -> str:
    if not message.isascii():
        message = unicodedata.normalize("NFC", message).replace("\ufeff", "")
        for plain, others in _QUOTES.items():
            for other in others:  # `str.translate` looks up every character, which is 60 times slower
                message = message.replace(other, plain)
    return _ANSI.sub("", message) if "\x1b" in message else message


def _unpacked(text: str) -> str:
    text = text.strip()
    if tagged := _TAGGED.fullmatch(text):
        return tagged[2].strip()
    if _RAISED(text):
        return text
    start = 0 if text[:1] in ("{", "[") else text.find("{\n")
    if start < 0 and ("{" in text or "=" in text) and (embedded := _EMBEDDED.search(text)):
        start = embedded.end()
    if start < 0:
        return _without_html(text) if "<" in text else text
    found, end = _said_by(text, start)
    if not found:
        return text
    before, behind = _STATUS_BEFORE.sub("", _LIST_BEFORE.sub("", text[:start])), text[end:]
    if before[-1:] in ("'", '"'):
        before, behind = before[:-1].removesuffix("b"), behind[1:]
    return f"{before}{found}{behind}"


def _said_by(text: str, start: int, depth: int = 0) -> tuple[str, int]:
    """What the object at a place of a text says, and where it ends; "" if it says nothing."""
    codes: list[str] = []
    words: list[str] = []
    outputs: dict[str, str] = {}
    level, end = 0, len(text)
    for match in _OBJECT.finditer(text, start):
        level += (match["open"] is not None) - (match["close"] is not None)
        if level <= 0:
            end = match.end()
            break
        name = (match["name"] or "").lower()
        if name not in _FIELDS and name not in _OUTPUTS:
            continue
        value = match["double"] or match["single"] or match["bare"] or ""
        if "\\" in value:
            value = _ESCAPED.sub(_unescaped, value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if depth < _MAX_DEPTH and value[:1] in ("{", "["):
            value = _said_by(value, 0, depth + 1)[0] or value
        if match["list"]:
            value = f"'{'.'.join(_ITEM.findall(match['list']))}'"
        if name in _OUTPUTS:
            outputs[name] = value
        elif value and value not in codes and value not in words and len(codes) + len(words) < _MAX_FIELDS:
            to = codes if name in _CODES else words
            to.insert(0 if name in _NAMES else len(to), value)
    if not words and (output := next((each for key in _OUTPUTS if (each := outputs.get(key, "")).strip()), "")):
        return output, end
    return ": ".join((*codes, " ".join(words)) if words else codes), end


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


def _without_html(text: str) -> str:
    page = _HTML.search(text)
    if page is None:
        return text
    titles = [" ".join(_TAG.sub(" ", match[2]).split()) for match in _TITLE.finditer(text, page.start())]
    said = next((title for title in titles if title and not _EMPTY_TITLE.fullmatch(title)), "")
    return text[: page.start()] + (said or " ".join(_TAG.sub(" ", text[page.start() :]).split()))


# The form of an error and the names that it mentions both read its head line.
head_line = lru_cache(maxsize=256)(FrameReader(FRAMES).line)
