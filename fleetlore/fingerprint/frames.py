"""Find the line of an error text that names the failure.

Programs wrap a failure in frames that say nothing about it: exit codes, stacks, progress, boxes, HTML, JSON.
`template_rules.FRAMES` lists them. A frame is removed only if something else is left.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import get_args

from fleetlore.fingerprint.identity import has_phrase, says_failure
from fleetlore.fingerprint.template_rules import FRAMES, Frame, FrameKind

__all__ = ["excerpt", "head_line", "unescaped"]

# Characters of a message. Longer ones are read at both ends, where programs say what went wrong.
MAX_MESSAGE = 8000
# Lines read from either end. Stacks and build logs repeat themselves in between.
_MAX_LINES = 32
_MAX_STRIPPED = 4
# Lines below the failure's in which its name may continue.
_MAX_BELOW = 5
# Objects in strings of objects are not nested deeper, and the first fields of an object name its error.
_MAX_DEPTH, _MAX_FIELDS = 3, 6

_SIGNS = {"'": "‘’‚", '"': ("« ", " »", "«\xa0", "\xa0»", "«\u202f", "\u202f»", *"“”„«»")}
_SIGNS |= {". ": "。", ", ": "，", ": ": "：", " (": "（", ") ": "）"}
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MARKED = re.compile(r"(?<![\w'\"])b(?=['\"])")  # bytes of Python
# Escaped line breaks, but not `C:\\new`.
_ESCAPED_BREAK = re.compile(r"(?<=[.;)\]}>'\"])(?:\\r)?\\n|\\n(?=\\n|\s)")
_LAST_ESCAPES = re.compile(r"(?<!\\[nrt])(?:\\[nrt])++(?=['\"])")
_TAG = re.compile(r"<[^<>]*>")
_TAGGED = re.compile(r"<(\w{1,40})>([^<].*)</\1>", re.S)
_HTML = re.compile(r"<(?:!doctype html|html)\b", re.I)
_TITLE = re.compile(r"<(title|h1|pre)\b[^>]*>(.*?)</\1>", re.I | re.S)
_EMPTY_TITLE = re.compile(r"\W*(?:error|bad request)?\W*", re.I)
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|During handling of the above|File \"[^\"\n]*\", line \d+(?:, in |\s*$)", re.M
).search
_EXCEPTION = re.compile(r"(?:Exception in thread \"[^\"]*\" )?((?:[A-Za-z_$][\w$]*\.)*[A-Z]\w*(?:Error|Exception))\b")
# Only lines with a colon or wide blanks, with a sign in front, or of one word name a failure.
_MAY_SPEAK = re.compile(r"[^:]*:|[^\w\s]|\S+(?:$|  )").match
# A line that is only a name; the next says what is wrong.
_LISTED = re.compile(r"[-*•] \S|--\w|[\"'`]|Because ").match
_LISTED_BELOW = re.compile(r":\n\s*[*•] (?=\S)")
# A line that says what was tried and not why it failed.
_OUTER = re.compile(
    r"(?:[\w.]+: )*(?:Failed|Could not|Unable) (?!asserting)[^:]*:?$"
    r"|(?:A request|Build|Compilation|Locking)\b[^:]* failed[.!]?$"
).match
_TYPED = re.compile(r"(?:(?:Runtime)?[Ee]rror: |Exception: |ERROR: )+").match
_ONLY_A_NAME = re.compile(r"[\w.\[\]]+")

# Fields of an error that a program printed as an object.
_CODES = frozenset({"status_code", "statuscode", "code", "status", "type", "reason", "error_code", "title", "error"})
_NAMES = frozenset({"loc", "path", "field", "property", "parameter", "pointer", "argument"})
_WORDS = frozenset({"message", "msg", "detail", "details", "desc", "errmsg", "description", "str", "text"})
_WORDS |= {"error_description", "error_message", "errormessage", "errormessages", "information", "cause"}
_EMPTY_CODES = frozenset({"", "error", "failed", "failure", "text"})
_FIELDS = _CODES | _NAMES | _WORDS | {"errors"}
_BY_FIELD = frozenset({"errors", "field_errors", "fielderrors"})
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
# The beginning of an object in a line, and the status before it, which its fields repeat.
_EMBEDDED = re.compile(
    r"(?<!args )(?<!arguments )(?<!input )(?<!params )(?<!parameters )"
    r"(?:(?<=\s)|(?<=\s['\"])|(?<=\sb['\"]))(?=\{ ?['\"]|\[ ?\{ ?['\"])|(?<=[:\[])(?=\{\")"
)
_PRINTED = re.compile(r"(?<=\w)(?= ?[{(] ?\w+[=:][^{}()]*\b(?:str|message)[=:] ?[\"'])")
# `{ Error: no such table` is an error of JavaScript, with its fields behind its stack.
_RAISED = re.compile(r"\{ \[?\w*[Ee]rror: [^'\"{\[]").match
# `[ERROR]` is no list.
_BEGINS = re.compile(r"\{|\[\s*(?:[\[{'\"]|$)").match
_LIST_BEFORE = re.compile(r"\[(?=\w*\s*$)\s*")
_STATUS_BEFORE = re.compile(
    r"(?:(?:Error - )?\b(?:Request failed|Got response) with )?"
    r"(?:\b(?:API )?Error(?: code)?[: ]+|\b(?:HTTP|status(?: code)?)[: ]+|\b[A-Z]+ /\S* -> )?"
    r"\b[1-5]\d\d(?:[: ]+[A-Z]\w+)*(?: for url: \S+)?[\s:.—-]+$",
    re.I,
)


def excerpt(message: str) -> str:
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]}\n{message[1 - MAX_MESSAGE // 2 :]}"


class FrameReader:
    def __init__(self, frames: Iterable[Frame]) -> None:
        patterns: defaultdict[FrameKind, list[str]] = defaultdict(list)
        for frame in frames:
            patterns[frame.kind].append(frame.pattern)
        joined = {kind: "|".join(patterns[kind]) or r"(?!)" for kind in get_args(FrameKind)}
        self._strip, self._drop, self._join, self._cause = (
            re.compile(joined[kind]).match for kind in ("strip", "drop", "join", "cause")
        )
        self._mark, self._more, self._field, self._peel = (
            re.compile(joined[kind]).match for kind in ("mark", "more", "field", "peel")
        )
        speaking = ("sums", "mark", "cause", "names", "raises")
        self._speaks = re.compile("|".join(f"(?P<{kind}>{joined[kind]})" for kind in speaking)).match

    def line(self, message: str) -> str:
        """The line that names the failure, with what it leads to; "" for an empty message."""
        text = _plain(message)
        if "\n" in text and (peeled := self._peel(text)):
            text = text[peeled.end() :]
        text = _unpacked(text)
        if ":\n" in text:
            text = _LISTED_BELOW.sub(": ", text)
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
        is_traceback = _TRACEBACK(text) is not None
        place = self._place(lines, found, is_traceback=is_traceback)
        typed = _TYPED(lines[place]) if is_traceback and place + 1 < len(lines) else None
        if typed and self._drop(inner := self._stripped(lines[place][typed.end() :])):
            return self.line("\n".join((inner, *lines[place + 1 :])))
        line = self._caused(lines, place, cause) if cause >= place else self._joined(lines, place)
        names = self._speaks(line) and line[-1] != ":" and line.count(" ") > 2 and not _OUTER(line)
        raised = is_traceback and any(kind == "raises" for kind, _ in found)
        if raised or names or has_phrase(line):
            return line
        phrased = [each for each, said in enumerate(lines) if has_phrase(said)]
        others = [each for each in phrased if not self._says_nothing(lines[each])]
        if not others and cause < place and not (says_failure(line) or self._speaks(line)):
            others = [each for each, said in enumerate(lines) if says_failure(said) and not self._says_nothing(said)]
        if not others and _OUTER(line):
            others = [each for each in range(place + 1, len(lines)) if not self._says_nothing(lines[each])]
        others = others or (phrased if self._says_nothing(line) else [])
        return self._joined(lines, others[0]) if others else line

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
            named = [place for kind, place in found if kind == "names"] or [len(lines) - 1]
            return next((place for kind, place in reversed(found) if kind == "raises"), named[0])
        for kind, place in found:
            if kind != "cause" and not self._says_nothing(lines[place]):
                return place
        spoken = [place for kind, place in found if kind != "cause"] or [0]
        return next((place for place, line in enumerate(lines) if not self._says_nothing(line)), spoken[0])

    def _says_nothing(self, line: str) -> bool:
        return bool(self._drop(line) or ((typed := _TYPED(line)) and self._drop(line, typed.end())))

    def _joined(self, lines: list[str], place: int) -> str:
        if mark := self._mark(lines[place]):
            return lines[place][mark.end() :]
        line, below = lines[place], lines[place + 1 : place + 1 + _MAX_BELOW]
        if not below:
            return line
        joins = self._join(line) is not None
        if joins or line.endswith(":"):
            following = [each for each in below if not self._drop(each)]
            if joins or (following and (" " not in line or _LISTED(following[0]))):
                if following[1:] and _ONLY_A_NAME.fullmatch(following[0]):
                    return ": ".join((line.rstrip(":"), *following[:2]))
                return " ".join((line, *following[:1]))
        fields = [f"'{field[1]}'" for each in below[:1] if (field := self._field(each))]
        return " ".join((*fields, line, *filter(self._more, below)))

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
        for plain, others in _SIGNS.items():
            for other in others:  # `str.translate` looks up every character, which is 60 times slower
                message = message.replace(other, plain)
    if "\\" in message:
        message = _LAST_ESCAPES.sub("", message)
        if "\n" not in message and message[:1] not in "{[":
            message = _ESCAPED_BREAK.sub("\n", message)
    if "b'" in message or 'b"' in message or "'`" in message:
        message = _MARKED.sub("", message.replace("'`", "'").replace("`'", "'"))
    return _ANSI.sub("", message) if "\x1b" in message else message


def _unpacked(text: str, depth: int = 0) -> str:
    text = text.strip()
    if tagged := _TAGGED.fullmatch(text):
        text = tagged[2].strip()
    if _RAISED(text):
        return text
    start = 0 if _BEGINS(text) else text.find("{\n")
    if start < 0 and "{" in text and (embedded := _EMBEDDED.search(text)):
        start = embedded.end()
    if start < 0 and ("message" in text or "str=" in text) and (printed := _PRINTED.search(text)):
        start = printed.end()
    if start < 0:
        return _without_html(text) if "<" in text else text
    found, end = _said_by(text, start, depth)
    while not found:
        if (embedded := _EMBEDDED.search(text, end)) is None:
            return text
        start = embedded.end()
        found, end = _said_by(text, start, depth)
    before, behind = _STATUS_BEFORE.sub("", _LIST_BEFORE.sub("", text[:start])), text[end:]
    if before[-1:] in ("'", '"'):
        before, behind = before[:-1].removesuffix("b"), behind[1:]
    joint = ": " if before[-1:].isalnum() else ""
    return f"{before}{joint}{found}{behind}"


def _said_by(text: str, start: int, depth: int) -> tuple[str, int]:
    codes: list[str] = []
    names: list[str] = []
    words: dict[str, int] = {}  # with the depth of each
    outputs: dict[str, str] = {}
    around: list[str] = []
    end = len(text)
    for match in _OBJECT.finditer(text, start):
        name = (match["name"] or "").lower()
        if match["open"]:
            around.append(name)
        elif match["close"] and around:
            around.pop()
        if not around:
            end = match.end()
            break
        # `{"errors": {"price": "must be positive"}}`
        by_field = around[-1] in _BY_FIELD and name not in _FIELDS and (match["double"] or match["list"])
        if by_field:
            names.append(f"'{name}'")
            name = "message"
        if name not in _FIELDS and name not in _OUTPUTS:
            continue
        value = match["double"] or match["single"] or match["bare"] or ""
        if "\\" in value:
            value = unescaped(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if depth < _MAX_DEPTH and ("{" in value or value[:1] == "["):
            value = _unpacked(value, depth + 1)
        if match["list"] and name in _WORDS:
            value = match["list"].strip("\"' \r\n\t")
        elif match["list"]:
            value = f"'{'.'.join(_ITEM.findall(match['list']))}'"
        if "\n" in value.strip():
            value = head_line(value)
        if name in _OUTPUTS:
            outputs[name] = value
        elif value.lower() in _EMPTY_CODES or len(codes) + len(names) + len(words) >= _MAX_FIELDS:
            continue
        elif name in _WORDS:
            words.setdefault(value, len(around))
        elif value not in (*codes, *names):
            (codes if name in _CODES else names).append(value)
    if not words and (output := next((each for key in _OUTPUTS if (each := outputs.get(key, "")).strip()), "")):
        return output, end
    # The inner words say why.
    said = " ".join((*names, ". ".join(each.rstrip(".") for each in sorted(words, key=lambda each: -words[each]))))
    return ": ".join((*codes, said) if said else codes), end


def unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda each: chr(int(each[1][1:], 16)) if each[1][1:] else _ESCAPES.get(each[1], each[1]), text)


def _without_html(text: str) -> str:
    page = _HTML.search(text)
    if page is None:
        return text
    titles = [" ".join(_TAG.sub(" ", match[2]).split()) for match in _TITLE.finditer(text, page.start())]
    said = next((title for title in titles if title and not _EMPTY_TITLE.fullmatch(title)), "")
    return text[: page.start()] + (said or " ".join(_TAG.sub(" ", text[page.start() :]).split()))


# The form of an error and the names that it mentions both read its head line.
head_line = lru_cache(maxsize=256)(FrameReader(FRAMES).line)
