"""Mask the literals of calls and errors: ids, names, addresses, paths, numbers and quoted texts become placeholders.

A literal belongs to one task or person. Other agents see its kind: `<order id>` after the argument's key, or `<email>`,
`<path>`, `<number>`, `<text>`. Words of a language, tool or schema, a tool's options and choices (`mode`, `table`), and
words `known` to the reader stay.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from fleetlore.fingerprint.fingerprint import parsed

# Options of tools are never longer.
_MAX_WORD = 32
_MAX_LABEL = 24
_REMEMBERED = 4096
# Only this much of a text is masked: longer texts are never shown in full.
_MAX_MASKED = 32 * 1024

# The forms of literals in a text. Bounds keep many unclosed quotes from taking quadratic time. Checking for a word
# boundary first, where nearly all begin, halves the time.
_STRING = (
    r"""[rbfuRBFU]{0,2}(?P<quote>\"{3}|'{3}|["'])"""
    r"""(?P<inner>(?:\\.|(?!(?P=quote))[^\\]){0,500}+)(?P=quote)(?!\w)"""
)
FILE = (
    r"(?:txt|csv|tsv|json|jsonl|ya?ml|toml|ini|cfg|html?|css|ipynb|py|js|ts|rb|go|rs|java|cpp|sh|sql|sqlite3?|md|pdf|"
    r"png|jpe?g|gif|svg|zip|tar|gz|tgz|docx?|xlsx?|xml|parquet|npy|pkl)"
)
# Names of schemas and programs with three digits or a year: `orders_2026`, `python311`; but not `user_812`.
_NAME_WITH_DIGITS = (
    r"(?!(?:req|request|usr|user|cust|customer|ord|order|item|ticket|case|run|job|task|msg|session|trace|id)_?\d)"
    r"(?:[A-Za-z]+_)*(?:[a-z]{2,}\d{3}|[A-Za-z]{2,}_(?:19[89]\d|20[0-4]\d)(?:_?(?:0[1-9]|1[0-2]))?)(?:_[A-Za-z]+)*\b"
)
_LITERAL = (
    r"(?P<pair>\"(?P<key>[^\"\\\n]{1,64})\"\s*:\s*\"(?P<value>(?:\\.|[^\"\\])*)\"?)"
    # Most words begin no literal.
    r"|(?<!\w)(?![A-Za-z_]+[\s(),;=\[\]<>*])(?:(?P<url>[a-z][a-z0-9+.-]{0,31}+://[^\s'\"<>)\]`]+)"
    r"|(?P<email>(?<![.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+)"
    rf"|(?P<string>{_STRING})|(?P<open>[\"'][^\"'\n]{{2,}}$)"
    r"|(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?\b|\d{1,2}:\d\d(?::\d\d)?\b)"
    r"|(?P<path>(?<![<)\].])(?:~|\.{1,2})?(?:/[\w.@+%-]+)+/?(?:::\w+)*"
    rf"|(?<![./@+-])(?=[\w/@+-]{{0,200}}+\.)[\w./@+-]{{1,200}}?\.{FILE}\b(?!\()(?:::\w+)*))"
    r"|(?P<id>\#(?=\w*\d)\w{2,}|(?<!\w)(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|(?=[0-9a-fA-F]{8})(?=\w*[a-fA-F])(?=\w*\d)[0-9a-fA-F]{8,}\b"
    rf"|(?!{_NAME_WITH_DIGITS})(?=[^\W\d]*+\d)\w*[A-Za-z_]\d{{3,}}\w*))"
    r"|(?P<number>(?<![\w.])\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?%?(?!\w))"
)
_LITERALS = re.compile(_LITERAL, re.MULTILINE)
# A flag and an operator are one token each.
_TOKENS = re.compile(
    rf"{_LITERAL}|(?P<word>(?<=\s)--?[A-Za-z][\w-]*|\w+|[-+*/%<>=!]=|\*\*|//|->|&&|\|\||[^\w\s])", re.MULTILINE
)
_NAMES = re.compile(r"[^\s'\"`(){}\[\],;:=<>]+|\w+")
# One plain word, as an option of a tool.
_OPTION = re.compile(r"[+-]{0,2}[a-z][a-z_+-]*(?:\.[a-z_]+)?")
# Keys of values that name a person, place or instance.
_IDENTITY = re.compile(
    r"(?:^|[_\W])(?:ids?|uuid|number|name|user|username|login|owner|customer|client|passenger|person|author|e?mail|"
    r"phone|address\d?|street|city|state|country|zip|postcode|account|card|payment|password|token|birth|dob|host|"
    r"domain|url|ip|date|time)s?$"
)
# Keys of a tool's own choices and resources. Other values may be free text or the name of somebody's thing.
_CHOICE = re.compile(
    r"(?:^|_)(?:action|agg|aggregat(?:e|ion)|algorithm|align(?:ment)?|arch|architecture|axis|backend|behaviou?r"
    r"|bucket|cabin|charset|class|cluster|codec|collection|colou?r|column|compression|currency|database|dataset|db"
    r"|delimiter|deployment|dialect|dimension|direction|driver|dtype|edition|encoding|engine|env|environment|field"
    r"|flag|fmt|format|freq|frequency|function|granularity|how|image|index|indexe|indice|interpolation|interval"
    r"|join|kind|lang|language|layout|level|locale|locator|method|metric|mode|model|namespace|op|operation|operator"
    r"|option|order|orient(?:ation)?|parser|period|platform|policy|position|priority|profile|protocol|quality|queue"
    r"|region|release|resolution|resource|runtime|schema|scheme|scope|selector|separator|service|severity|size|sort"
    r"|stage|status|strategy|style|table|theme|tier|timezone|topic|type|tz|unit|variant|verbosity|version|view"
    r"|visibility|zone|(?:group|order|sort)_?by)s?$"
)
# A selector by what a page shows may name somebody.
_VISIBLE = re.compile(r"\btext[=(]|\brole=")
_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])|[_\W]+")
# Keys of commands and programs, and what only those hold.
_CODE_KEY = re.compile(r"(?:^|_)(?:command|cmd|query|sql|code|script|program|expression|statement|diff|patch|regex)s?$")
_STATEMENT = re.compile(
    r"\s*(?:alter|create|desc|describe|drop|explain|pragma|select|delete\s+from|insert\s+into|update\s+\S+\s+set"
    r"|show\s+(?:columns|create|databases|full|index|tables)|with\s+\w+\s+as)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"[=(){};|$`\\]|(?:^|\s)--?\w|^[A-Z]{3,}\s|\n\s")


@lru_cache(maxsize=_REMEMBERED)
def names(text: str) -> frozenset[str]:
    """Return words, numbers and quoted texts in lower case, for `known`."""
    text = text[:_MAX_MASKED].casefold()
    quoted = [match["inner"] or match["value"] or "" for match in _LITERALS.finditer(text)]
    return frozenset(each.strip(".,!?") for each in (*_NAMES.findall(text), *quoted) if each)


@lru_cache(maxsize=_REMEMBERED)
def masked_text(text: str, known: frozenset[str] = frozenset()) -> str:
    return _LITERALS.sub(lambda match: _masked(match, known), text[:_MAX_MASKED])


def masked_tokens(text: str, known: frozenset[str] = frozenset()) -> list[tuple[int, int, str]]:
    """Return (start, end, masked text) of each token, in order."""
    return [(match.start(), match.end(), _masked(match, known)) for match in _TOKENS.finditer(text[:_MAX_MASKED])]


def masked_arguments(arguments: str) -> Any:
    """Return arguments with their literals masked: JSON if they are, or else text."""
    value = parsed(arguments)
    return masked_text(value) if isinstance(value, str) else masked_value("", value)


def masked_value(key: str, value: Any, known: Collection[str] = frozenset()) -> Any:
    """Equal elements of a list become one."""
    match value:
        case None | bool():
            return value
        case int() | float():
            small = isinstance(value, int) and abs(value) < 10 and not is_identity(key)
            return value if small or str(value) in known else _placeholder(key, "number")
        case str():
            return _masked_word(key, value, known)
        case list():
            inner = [masked_value(key.removesuffix("s"), each, known) for each in value]
            return [each for place, each in enumerate(inner) if each not in inner[:place]]
        case dict():
            words = frozenset(known)
            return {masked_text(name, words): masked_value(name, each, words) for name, each in value.items()}
    return _placeholder(key, "value")


@lru_cache(maxsize=_REMEMBERED)  # keys repeat
def is_identity(key: str) -> bool:
    return _IDENTITY.search(_JOINT.sub("_", key).casefold()) is not None


@lru_cache(maxsize=_REMEMBERED)
def is_choice(key: str, value: str) -> bool:
    is_shown = _CHOICE.search(_JOINT.sub("_", key).casefold()) is not None and not _VISIBLE.search(value)
    return is_shown or value[:1] in ("+", "-")


def is_code(key: str, value: str) -> bool:
    name = _JOINT.sub("_", key).casefold()
    if _CODE_KEY.search(name):
        # The text of a search is free.
        return not name.endswith("query") or _CODE.search(value) is not None or _STATEMENT.match(value) is not None
    return len(value.split()) > 1 and _CODE.search(value) is not None


def _masked_word(key: str, value: str, known: Collection[str]) -> str:
    if not value or value.casefold() in known:
        return value
    if len(value) <= _MAX_WORD and _OPTION.fullmatch(value) and is_choice(key, value):
        return value
    return masked_text(value, frozenset(known)) if is_code(key, value) else _placeholder(key, "text")


def _masked(match: re.Match[str], known: frozenset[str]) -> str:
    kind, text = match.lastgroup, match.group()
    if kind == "word":
        return text
    if match["pair"]:
        whole = _masked_word(match["key"], match["value"], known)
        return text if whole == match["value"] else f'"{match["key"]}":"{whole}"'
    if text.casefold() in known:
        return text
    if match["string"]:
        inner = match["inner"]
        if len(inner) <= 1 or inner.casefold() in known or not any(map(str.isalnum, inner)):
            return text
        return f"{match['quote']}<text>{match['quote']}"
    if match["open"]:
        return f"{text[0]}<text>"
    if match["number"] and len(text) == 1:
        return text
    return f"<{kind}>"


def _placeholder(key: str, kind: str) -> str:
    label = _JOINT.sub(" ", key.rstrip("0123456789")).strip().casefold()[:_MAX_LABEL]
    return f"<{label if label and not any(map(str.isdigit, label)) else kind}>"
