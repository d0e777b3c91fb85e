"""Decide which words of others a model may read: the only way from lore to a model's context.

Reading is not authorship: agents that met the same text are readers of one author. Words are shown under these
conditions.

error      The asker's own call and error hold them too, or a quorum received the text from a tool of the closed world.
class      It consists of `_CLASS_WORDS`, or the conditions of an error hold.
call       A quorum of principals made it with that string and it worked (three if it could do harm), or the asker's own
           error or results name all its values.
name       A quorum used it, or the asker holds all its words.
person     A person that the operator vouches for wrote it. It is told as written, without marks of a chat.

A person may also approve an item. A proposed item waits for that (`FLEETLORE_REVIEW`). A text of others opens no tag,
mark or link (`clean`). Only the quorum stops instructions in plain words.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from html import unescape
from itertools import groupby
from typing import Literal, NamedTuple
from unicodedata import lookup, normalize
from urllib.parse import unquote

from fleetlore.wire.lore import MemoryItem
from fleetlore.words import WORD, parts_of

__all__ = ["INVISIBLE", "PROVEN", "Tip", "all_of", "as_written", "clean", "mark_in", "renamed"]

# Principals that must have made a potentially harmful call.
PROVEN = 3
_LEFT_OUT = "…"
_UNNAMED = "an error"
_UNSAID = re.compile(rf"(?:: (?:{_LEFT_OUT}|{_UNNAMED}))++(?=[.)])")
# Classes of these words alone do not say what is wrong.
_VAGUE_WORDS = frozenset(
    """
    api call client database error exception http https operational process programming request response runtime server
    service sql tool value
    """.split()  # noqa: SIM905
)
# Fewer known words between unknown ones are no part of a sentence.
_LEAST_RUN = 2
_STATUS = re.compile(r"(?:http|errno|exit|code|signal|sqlstate)_?(?:E[A-Z]{2,12}|(?=\w*\d)[0-9A-Z]{1,8})", re.ASCII)
# A class with other words may be a sentence.
_CLASS_WORDS = frozenset(
    """
    access already api argument arguments arithmetic assertion attribute auth authentication authorization bad broken
    buffer call called certificate child client closed code command config configuration conflict connect connection
    constraint data database decode denied deprecated division does duplicate empty encode encoding end eof error
    exceeded exception exist exists exit expired failed failure file floating foreign format forbidden found gateway
    group http https id import index input integrity interface internal interrupt interrupted invalid io is iteration
    json key keyboard limit load lookup memory missing module name network no not null of open operational os
    output overflow parameter parse parser path permission pipe point process programming protocol proxy query rate
    read recursion reference refused request requests required reset response runtime schema server service socket sql
    ssl status stop such syntax system table tab time timed timeout tls token too tool type unauthorized unavailable
    unbound undefined unexpected unicode unique unknown unprocessable unreachable unsupported url usage user validation
    value version warning write xml zero
    """.split()  # noqa: SIM905
)
_MAX_CLASS_WORDS = 4

_MAX_CONTENT = 800
_BAR = "  | "
# Control characters except line breaks and tabs, half surrogate pairs, and what displays may omit.
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc"
    r"\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# A word may hide an opening bracket as an escape of HTML, URLs or a programming language, which a model reads alike.
_WORD = re.compile(r"(?:N\{[\w -]{1,80}\}|\S)+", re.IGNORECASE)
_ESCAPE = re.compile(
    r"(?<!\\)\\+(?:u\{0*([\da-f]{1,6})\}|u(?:0{4})?([\da-f]{4})|x([\da-f]{2})|([0-3][0-7]{2}|[4-7][0-7])"
    r"|N\{([\w -]{1,80})\})"
    # Bytes of UTF-8, whole characters alone: the rest may come out of another escape.
    r"|%[0-7][\da-f]|%[cd][\da-f]%[89ab][\da-f]|%e[\da-f](?:%[89ab][\da-f]){2}|%f[0-7](?:%[89ab][\da-f]){3}",
    re.IGNORECASE,
)
_ESCAPING = re.compile(r"[&%\\]")
# A text that is escaped more often is not read.
_MAX_ROUNDS = 8
_ANGLES = "<\uff1c\ufe64\u02c2\u2329\u276c\u276e\u2770\u27e8\u27ea\u29fc\u3008\u226a"
_SQUARES = "[\uff3b\ufe47\u3010\u3014\u3016\u3018\u301a\u2772", "]\uff3d\ufe48\u3011\u3015\u3017\u3019\u301b\u2773"
_BRACKETS = str.maketrans(
    dict.fromkeys(_ANGLES, "‹") | dict.fromkeys(_SQUARES[0], "⟦") | dict.fromkeys(_SQUARES[1], "⟧")
)
# Brackets of code that open no tag, mark or link: `[data-test=save]`, `['a', "b"]`, `[0]`, `[a-z_]`, `a <= b`.
_PLAIN = r"[ -;=?-Z\\^-~]"
_VALUE = rf"(?:'(?:(?!'){_PLAIN})*+'|\"(?:(?!\"){_PLAIN})*+\"|-?\d[\d.]*+|:)(?:, ?)?"
_CODE = re.compile(
    rf"(\[(?:@?[a-z][\w-]*+[~|^$*]?={_PLAIN}*+|(?:{_VALUE})*+|\^?(?:a-z|A-Z|0-9|[_\d.-])++)\]"
    r"(?!\s*[(:\u207d\u208d\ufe13\ufe35\ufe55\ufe59\uff08\uff1a])|<(?=[=>]|\d++(?![\w>])| [\w'\"(][^>\n]*+(?!>)))",
    re.ASCII,
)
# Marks of our fence and of chat templates.
_MARK = re.compile(
    r"</?\s*(?:fleet-memory|s>|(?:bos|eos|system|user|assistant|human|tool|function|instruct|think|(?:start|end)_of)"
    r"[\w-]*>)|<\|\w+|<</?sys|\[/?(?:inst|sys|gmask|available_tools|tool_)\w*\]",
    re.IGNORECASE,
)

# An error or a field (the environment wrote them), the class of an error, a call or a part of one, a name of a place,
# or a person's hint.
Sort = Literal["error", "class", "call", "name", "person"]


class Quote(NamedTuple):
    """Words of others in a tip. `agents`: principals whose calls worked with it, or that met the error. `brings`:
    values in the call that are new to the asker.
    """

    text: str
    agents: int
    sort: Sort
    danger: bool = False
    brings: tuple[str, ...] = ()


class Reader(NamedTuple):
    """The session that is shown a tip. `own`: lower-case words of its call, last error and tools. `seen`: lower-case
    names in its results. `closed`: whether its call goes to the closed world.
    """

    own: frozenset[str] = frozenset()
    error: str = ""
    seen: Collection[str] = ()
    quorum: int = 2
    closed: bool = False


Part = str | Quote


class Tip(NamedTuple):
    """One thing that may be shown. Only `tell` makes its text.

    Attributes:
        id: from a bounded set. Outcomes name it, and the holdout draws by it.
        key: a session is shown each key once, and an empty key each time.
        kind: failure without names.
        rejected: lower-case names in the call that the failure is about.
        brings: names or parts of a call to use.
        chance: P(the call fails), 0..1, of a warning before a call.
        sure: whether the call may be held.
        agents: number that back its least backed string.
        call: arguments to send instead.
        pattern: class-level id of the failure.
        tried: whether the holdout applies to it.
    """

    id: str
    source: str
    parts: tuple[Part, ...]
    key: str = ""
    kind: str = ""
    rejected: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    chance: float | None = None
    sure: bool = False
    agents: int = 0
    call: object = None
    item: MemoryItem | None = None
    pattern: str | None = None
    tried: bool = True
    text: str = ""

    @property
    def quotes(self) -> list[Quote]:
        return [part for part in self.parts if isinstance(part, Quote)]


def tell(tip: Tip, reader: Reader, vouched: bool | None = None) -> Tip | None:
    """Return the tip with its text, or None if a part may not be shown."""
    shown = []
    vague: list[bool] = []
    for part in tip.parts:
        text = _allowed(part, reader, vouched) if isinstance(part, Quote) else part
        if text is None:
            return None
        if isinstance(part, Quote) and part.sort == "class":
            vague.append(text == _UNNAMED or _VAGUE_WORDS.issuperset(parts_of(text)))
        elif isinstance(part, Quote) and part.sort == "error":
            vague.append(text == _LEFT_OUT)
        shown.append(text)
    if vague and all(vague) and tip.pattern is not None and tip.chance is not None and not tip.rejected:
        return None
    quotes = tip.quotes
    agents = min([quote.agents for quote in quotes], default=tip.agents)
    text = "".join(shown)
    text = as_written(text) if any(quote.sort == "person" for quote in quotes) else clean(_UNSAID.sub("", text))
    # With other brackets it would be another call.
    if any(quote.brings and quote.text not in text for quote in quotes):
        return None
    return tip._replace(text=text, agents=agents)


def _allowed(quote: Quote, reader: Reader, vouched: bool | None) -> str | None:
    text = quote.text
    is_enough = quote.agents >= (PROVEN if quote.danger else reader.quorum) if vouched is None else vouched
    match quote.sort:
        case "person":
            return text
        case "call":
            return text if is_enough or (quote.brings and all(_names(reader, each) for each in quote.brings)) else None
        case "name":
            return text if is_enough or _is_held(text, reader.own) else None
    if is_enough and reader.closed:
        return text
    if quote.sort == "class":
        return text if _is_class(text) or _is_held(text, reader.own) else _UNNAMED
    return _held(text, reader.own)


def _names(reader: Reader, part: str) -> bool:
    name, is_value, value = part.partition("=")
    value = value if is_value and name.isidentifier() else part
    if value.lower() in reader.seen:
        return True
    return bool(_words(value)) and re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", reader.error) is not None


def _is_class(text: str) -> bool:
    words = parts_of(text)
    known = 0 < len(words) <= _MAX_CLASS_WORDS and _CLASS_WORDS.issuperset(words)
    return _STATUS.fullmatch(text) is not None or (known and text.replace("_", "").replace(".", "").isalpha())


def _held(text: str, own: frozenset[str]) -> str:
    kept: list[str] = []
    for is_held, tokens in groupby(text.split(), lambda token: _is_held(token, own)):
        run = list(tokens)
        if is_held and (len(run) >= _LEAST_RUN or len(run) == len(text.split())):
            kept += run
        elif kept[-1:] != [_LEFT_OUT]:
            kept.append(_LEFT_OUT)
    # Few words between gaps say nothing.
    gaps = kept.count(_LEFT_OUT)
    return " ".join(kept) if gaps <= 1 or len(kept) > 3 * gaps else _LEFT_OUT


def _is_held(token: str, own: frozenset[str]) -> bool:
    words = _words(token)
    return bool(words) and own.issuperset(words)


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(text.lower()))


def renamed(tip: Tip, recorded: re.Pattern[str], names: Mapping[str, str]) -> Tip:
    """Return a tip with its reader's names of tools, by recorded name."""
    return tip._replace(text=recorded.sub(lambda found: names[found[0]], tip.text))


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Return text from elsewhere that cannot leave its place: bounded, each further line behind a bar. Tags, marks of
    chat templates and links begin with `<` or `[`, which become characters that no normalisation turns back, except in
    `_CODE`.
    """
    return _placed(_closed(_WORD.sub(_opened, _visible(text))))


def mark_in(text: str) -> str:
    """Return the first mark of a chat in a person's text, or ""."""
    found = _MARK.search(normalize("NFKC", text))
    return found[0] if found else ""


def as_written(text: str) -> str:
    return clean(text) if mark_in(text) else _placed(_visible(text))


def _visible(text: str) -> str:
    return INVISIBLE.sub("", text[: 2 * _MAX_CONTENT]).strip()


def _placed(plain: str) -> str:
    if len(plain) > _MAX_CONTENT:
        whole, _, part = plain[:_MAX_CONTENT].rpartition("\n")
        plain = f"{whole or part}…"
    return plain.replace("\n", f"\n{_BAR}")


def _closed(text: str) -> str:
    parts = _CODE.split(text)  # each second one is code
    return "".join([each if place % 2 else each.translate(_BRACKETS) for place, each in enumerate(parts)])


def _opened(word: re.Match[str]) -> str:
    shown = word[0]
    before, text = "", normalize("NFKC", shown)
    if not _ESCAPING.search(text):
        return shown
    for _ in range(_MAX_ROUNDS):
        before, text = text, unescape(_ESCAPE.sub(_unescaped, text))
        text = INVISIBLE.sub("", normalize("NFKC", text))
        if text == before:
            break
    else:
        return _ESCAPING.sub("", text)
    return text if _openings(text) > _openings(shown) else shown


def _unescaped(escape: re.Match[str]) -> str:
    octal, name = escape[4], escape[5]
    if escape[0].startswith("%"):
        return unquote(escape[0])
    try:
        return lookup(name) if name else chr(int(octal, 8) if octal else int(escape[escape.lastindex or 0], 16))
    except (KeyError, ValueError):  # no such character
        return escape[0]


def _openings(text: str) -> int:
    return sum(map(text.count, _ANGLES + _SQUARES[0]))


def all_of(parts: Iterable[Part]) -> str:
    """Return ungated text, for operators."""
    return "".join(part.text if isinstance(part, Quote) else part for part in parts)
