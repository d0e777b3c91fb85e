"""Compare two calls: is the later one a repair of the earlier one, and what was changed?

Texts are compared as bags of tokens, JSON objects by keys and values. Every pair of calls needs `distance`, so it is
cheap; `masked_difference` describes the chosen pair.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import object_of
from fleetlore.fingerprint.literals import is_choice, is_code, is_identity, masked_text, masked_tokens, masked_value

__all__ = ["distance"]

_MAX_TOKENS = 300
_MAX_PAIRS = 40_000
# Share of words that two attempts at one thing share.
_RELATED = 0.5
_MAX_RUNS = 3
_MAX_SAID = 200
_MAX_VALUE = 48
_MAX_ROUTE = 80
_TELLING = 3

# A flag, a decimal and an operator are one token each.
_TOKEN = re.compile(r"(?<=\s)--?[A-Za-z][\w-]*|\d+\.\d+|\w+|[-+*/%<>=!]=|\*\*|//|->|[^\w\s]")
_MARKS = {" ": "·", "\t": "⇥", "\n": "⏎", "\r": "␍"}
# White space other than one blank between words.
_SPACE = re.compile(r"(?<!\S) +|\s{2,}|[^\S ]")
_DIGITS = re.compile(r"\d+")
# A URL without a query, or its path, without a number or code that names one thing.
_ROUTE = re.compile(r"(?P<host>https?://[\w.-]+(?::\d+)?)?(?P<path>(?:/(?:[A-Za-z][A-Za-z_-]*|v\d+(?:\.\d+)?))+)/?")
_VERSIONED_PATH = re.compile(r"/(?:v\d+(?:\.\d+)?|api)(?:/|$)")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_NUMERIC = re.compile(r"\d+(?:\.\d+)?")
# Such a value is the tool's: `gpt-4-0314`, `node:22-alpine`.
_VERSION_KEY = re.compile(r"(?:^|_)(?:model|engine|version|image|release|deployment)s?$")
_VERSION = re.compile(r"[A-Za-z][\w.:-]*")
_FIELD = re.compile(r"[A-Za-z_][\w-]*")
# A field's name within a text: of JSON, a query of a URL, a form or a keyword argument.
_parts_at_fields = lru_cache(512)(re.compile(r"(?<![\w./-])([A-Za-z_][\w-]*)(?=\\?[\"']?\s?[:=](?![=/]))").split)
# A masked literal, alone or as the value of an argument. No agent can send it.
_MASKED = re.compile(r"(?P<argument>[^=<>]+=)?['\"]?<[\w -]{1,24}>['\"]?")
_LITERAL = re.compile(r"<[a-z][\w -]{0,23}>")
# A masked literal within a longer name, such as `shop.<id>`. Quoted texts and slices of a program do not match.
_PARTLY_MASKED = re.compile(r"\w[.:/@-]?<(?:date|email|id|number|path|url)>|<(?:date|id|number|path)>[.:/@-]?\w")
# Names with the signs that join them, such as `eu-central-1` and `a::numeric`.
_JOINED = re.compile(r"\w+(?:(?:::|[-./:@])\w+)+")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_STRUCTURE = re.compile(r"[\s,;:(){}\[\]'\"`]+")
_MAX_DEPTH = 8
_IDENTITY = re.compile(r"(?:^|_|[a-z])(?:id|Id|ID|uuid|number|index|offset|page)s?$")


class _Text(NamedTuple):
    tokens: tuple[str, ...]
    bag: frozenset[str]
    words: frozenset[str]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Text:
    tokens = tuple(_TOKEN.findall(text)[:_MAX_TOKENS])
    bag = _bag(tokens)
    words = frozenset([token for token in bag if token[-1].isalnum() or token[-1] == "_"])
    return _Text(tokens, bag, words)


def _bag(tokens: tuple[str, ...]) -> frozenset[str]:
    counts = Counter(tokens)
    again = [f"{time} {token}" for token, count in counts.items() if count > 1 for time in range(2, count + 1)]
    return frozenset(counts).union(again)


@lru_cache(maxsize=4096)
def _values(text: str) -> dict[str, Any] | None:
    """Return arguments by name; a nested name is the path, joined by line breaks."""
    found = object_of(text)
    return None if found is None else dict(_flat(found))


def _flat(values: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and depth < _MAX_DEPTH:
            yield from _flat(value, f"{before}{key}\n", depth + 1)
        else:
            yield f"{before}{key}", value


def _name(key: str) -> str:
    return key.rpartition("\n")[2]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    counts, others = Counter(old), Counter(new)
    if sum(count * others[each] for each, count in counts.items()) > _MAX_PAIRS:
        return [("replace", 0, len(old), 0, len(new))]
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


@lru_cache(maxsize=4096)
def distance(failed: str, worked: str) -> int | None:
    """Tokens removed and added, or None if few words are shared or only numbers and ids differ."""
    if failed == worked:
        return 0
    old_values, new_values = _values(failed), _values(worked)
    if old_values is not None and new_values is not None:
        return _object_distance(old_values, new_values)
    old, new = _parsed(failed), _parsed(worked)
    if (_overlap(old, new) < _RELATED and not _renamed_within(failed, worked)) or _masked(failed) == _masked(worked):
        return None
    return _edited(old, new)


class Difference(NamedTuple):
    text: str
    was: tuple[str, ...]
    now: tuple[str, ...]
    value: tuple[str, Any, Any] | None = None


_Edit = tuple[str, str]  # what is gone, what came
_Words = frozenset[str]
_NO: _Words = frozenset()


@lru_cache(maxsize=4096)
def masked_difference(
    failed: str, worked: str, known: _Words = _NO, named: _Words = _NO, offered: _Words = _NO, one_value: bool = False
) -> Difference | None:
    """Return the change between two calls.

    None: they are alike once masked, too much was changed, or an argument's new value is not plain. `known`: words that
    are no literals to the reader. `named`: words that the error rejects; only their changes are shown. `offered`: words
    of an error that says what an argument may be. `one_value`: only one argument's value may differ, and no command or
    program.
    """
    old, new, of_error = _values(failed), _values(worked), known | named
    offered = offered.union(filter(str.isnumeric, known))
    if old is None or new is None:
        if one_value:
            return None
        changed_text = _difference(_text_edits(failed, worked, known, named))
        return changed_text or _difference(_renamed_within(failed, worked, of_error))
    changed = _changed(old, new)
    if len(changed) == 1 and (key := changed[0]) in old.keys() & new.keys() and not _are_code(key, old, new):
        found_value = _value_difference(key, old, new, offered)
        if found_value is not None or one_value:
            return found_value
        return _difference(_renamed_within(old[key], new[key], of_error))
    if one_value:
        return None  # comparing two texts is the slowest step
    renamed = _renamed(old, new, changed)
    edits: list[_Edit] = [(_name(was), _name(now)) for was, now in renamed.items()]
    for key in changed:
        if key in renamed or key in renamed.values():
            continue
        name = _name(key)
        if key in old and key in new and (within := _renamed_within(old[key], new[key], of_error)):
            found = within
        elif _are_code(key, old, new):
            found = _text_edits(old[key], new[key], known, named)
        else:
            both = (_text(masked_value(name, side[key], offered)) if key in side else None for side in (old, new))
            was, now = ("" if text is None else f"{name}={text}" for text in both)
            found = [(was, now)] if was != now else []
        if not found:
            return None  # the unseen change may have helped
        edits += found
    return _difference(edits)


def _difference(edits: Sequence[_Edit], value: tuple[str, Any, Any] | None = None) -> Difference | None:
    said = [f"`{was}` → `{now}`" if was and now else f"add `{now}`" if now else f"drop `{was}`" for was, now in edits]
    text = ", ".join(said)
    if not edits or len(edits) > _MAX_RUNS or len(text) > _MAX_SAID:
        return None
    if any(was == now or _names_nothing(was, now) or _names_nothing(now, was) for was, now in edits):
        return None
    if any(_is_torn(was, now) for was, now in edits):
        return None
    was, now = (tuple([each for each in side if each]) for side in zip(*edits, strict=True))
    return Difference(text, was, now, value)


def _names_nothing(part: str, other: str) -> bool:
    """Whether a part is a placeholder or holds one. An added or dropped argument has a name, whatever its value."""
    masked = _MASKED.fullmatch(part)
    if masked is None:
        named = _LITERAL.sub("", part)
        return _PARTLY_MASKED.search(part) is not None or (named != part and not any(map(str.isalpha, named)))
    return masked["argument"] is None or other != ""


def _is_torn(was: str, now: str) -> bool:
    """A change of brackets alone, or with only punctuation on one side."""
    opened = [[part.count(begin) - part.count(end) for begin, end in _BRACKETS] for part in (was, now)]
    return opened[0] != opened[1] or any(_STRUCTURE.fullmatch(part) for part in (was, now))


def _value_difference(key: str, old: Mapping[str, Any], new: Mapping[str, Any], offered: _Words) -> Difference | None:
    name, was, now = _name(key), old[key], new[key]
    is_offered = _text(now).casefold() in offered
    is_plain = not is_identity(name) and all(_is_plain(each, name, is_offered) for each in (was, now))
    if not is_plain and not _are_routes(was, now, old):
        return None
    return _difference([(f"{name}={_text(was)}", f"{name}={_text(now)}")], (name, was, now))


def _renamed(old: Mapping[str, Any], new: Mapping[str, Any], changed: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for was in changed:
        if was in new or not _is_field(was):
            continue
        beside = was.rpartition("\n")[0]
        came = (key for key in changed if key not in old and key.rpartition("\n")[0] == beside and _is_field(key))
        now = next((key for key in came if new[key] == old[was] and key not in found.values()), None)
        if now is not None:
            found[was] = now
    return found


def _renamed_within(failed: Any, worked: Any, of_error: frozenset[str] | None = None) -> list[_Edit]:
    """Return the fields of a text or list that another name replaced, if all else is equal. `of_error`: the error's
    words. It must name the old or the new field, because such a key may also be data.
    """
    old, new = (_parts_at_fields(_text(value)) for value in (failed, worked))
    if len(old) < 3 or old[::2] != new[::2]:
        return []
    edits = [pair for pair in dict.fromkeys(zip(old[1::2], new[1::2], strict=True)) if pair[0] != pair[1]]
    if of_error is not None and any(of_error.isdisjoint(map(str.lower, pair)) for pair in edits):
        return []
    return edits if all(_is_field(name) for pair in edits for name in pair) else []


def _is_field(key: str) -> bool:
    name = _name(key)
    return _FIELD.fullmatch(name) is not None and masked_text(name) == name


def _are_routes(old: Any, new: Any, call: Mapping[str, Any]) -> bool:
    if not (isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) <= _MAX_ROUTE):
        return False
    routes = [_ROUTE.fullmatch(each) for each in (old, new)]
    is_http = any(isinstance(each, str) and each.upper() in _METHODS for each in call.values())
    return all(
        each is not None and (is_http or each["host"] or _VERSIONED_PATH.search(each["path"])) for each in routes
    )


def is_route(value: Any) -> bool:
    return isinstance(value, str) and _ROUTE.fullmatch(value) is not None


def _is_plain(value: Any, key: str, is_offered: bool) -> bool:
    if isinstance(value, str):
        if _NUMERIC.fullmatch(value) or (_VERSION_KEY.search(key) and _VERSION.fullmatch(value)):
            return len(value) <= _MAX_VALUE
        if not is_offered and not is_choice(key, value):
            return False
        # A name that looks like a file's may be a setting: tar.gz, python3.12. So may Europe/Berlin.
        masked = masked_text(value)
        return 0 < len(value) <= _MAX_VALUE and (masked == value or (masked == "<path>" and "/" not in value))
    return isinstance(value, bool | int | float)


def _are_code(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    values = old.get(key), new.get(key)
    return all(isinstance(each, str) for each in values) and any(is_code(_name(key), str(each)) for each in values)


def _text_edits(failed: str, worked: str, known: frozenset[str], named: frozenset[str]) -> list[_Edit]:
    old, new = _Shown(failed, known), _Shown(worked, known)
    edits: dict[_Edit, bool] = {}  # whether the error names what is gone
    for tag, start, end, since, until in _opcodes(old.words, new.words):
        if tag == "equal":
            continue
        before, after = new.cut_words(since, until) if start == end else (0, 0)
        if since == until:  # `docker-compose` → `docker compose`
            before, after = old.cut_words(start, end)
        if before <= start and old.words[start - before : start] == new.words[since - before : since]:
            start, since = start - before, since - before
        if old.words[end : end + after] == new.words[until : until + after]:  # `pi` → `math.pi`
            end, until = end + after, until + after
        if start == end and new.touches(until):  # `x` → `-x`, but `)` stays
            inner = not _STRUCTURE.fullmatch(new.words[until]) and not _STRUCTURE.fullmatch(new.words[until - 1])
            end, until = end + inner, until + inner
        elif start == end and min(start, since) and not new.is_lines(since, until):  # `n` → `n + 1`
            start, since = start - 1, since - 1
        of_error = any(word.casefold() in named for word in old.words[start:end])
        edits.setdefault((old.quote(start, end), new.quote(since, until)), of_error)
    if not edits:
        return _white_space(failed, worked, known) if "".join(failed.split()) == "".join(worked.split()) else []
    # Words that the error names were wrong. Other changes may have other reasons.
    of_error_alone = [edit for edit, of_error in edits.items() if of_error]
    return of_error_alone or [edit for edit in edits if edit[0].casefold() != edit[1].casefold()] or list(edits)


class _Shown:
    def __init__(self, text: str, known: frozenset[str]) -> None:
        self._text = text
        self._tokens = masked_tokens(text, known)
        self.words = tuple([word for _, _, word in self._tokens])

    def quote(self, start: int, end: int) -> str:
        said, last = "", None
        for begin, stop, word in self._tokens[start:end]:
            said += (" " if last is not None and begin > last else "") + word
            last = stop
        return said.strip(";, ") or said

    def touches(self, end: int) -> bool:
        return 0 < end < len(self._tokens) and self._tokens[end - 1][1] == self._tokens[end][0]

    def cut_words(self, start: int, end: int) -> tuple[int, int]:
        """Count the tokens before and after some that belong to the same joined words."""
        first, last = self._tokens[start][0], self._tokens[end - 1][1]
        words = [word.span() for word in _JOINED.finditer(self._text, max(0, first - _MAX_SAID), last + _MAX_SAID)]
        begin = next((begin for begin, stop in words if begin < first < stop), first)
        close = next((stop for begin, stop in words if begin < last < stop), last)
        before = sum(place >= begin for place, _, _ in self._tokens[max(0, start - _MAX_SAID) : start])
        return before, sum(place < close for place, _, _ in self._tokens[end : end + _MAX_SAID])

    def is_lines(self, start: int, end: int) -> bool:
        before = self._text[self._tokens[start - 1][1] if start else 0 : self._tokens[start][0]]
        after = self._text[self._tokens[end - 1][1] : self._tokens[end][0] if end < len(self._tokens) else None]
        return (not start or "\n" in before) and (end == len(self._tokens) or "\n" in after)


def _white_space(failed: str, worked: str, known: frozenset[str]) -> list[_Edit]:
    old, new = failed.splitlines(keepends=True), worked.splitlines(keepends=True)
    for _, start, end, since, until in _opcodes(old, new):
        texts = (masked_text("".join(lines), known) for lines in (old[start:end], new[since:until]))
        was, now = (
            _SPACE.sub(lambda space: "".join([_MARKS.get(each, each) for each in space[0]]), text) for text in texts
        )
        if was != now:
            return [(was, now)]
    return []


def _object_distance(old: Mapping[str, Any], new: Mapping[str, Any]) -> int | None:
    changed = _changed(old, new)
    if not changed:
        return 0  # the same JSON, spelled otherwise
    shared = old.keys() & new.keys()
    # Without another argument only a telling value shows that both calls are about one thing.
    renamed = sum(
        bool(shared) or (old[was] not in (None, True, False) and len(_text(old[was])) >= _TELLING)
        for was in _renamed(old, new, changed)
    )
    overlaps = (_overlap(_parsed(_text(old[key])), _parsed(_text(new[key]))) for key in shared if old[key] != new[key])
    alike = renamed + sum(old[key] == new[key] for key in shared) + sum(overlaps)
    keys = len(old.keys() | new.keys()) - renamed
    if keys > 1 and alike / keys < _RELATED:
        return None
    if all(key in shared and _is_other_thing(key, old, new) for key in changed):
        return None
    return sum(_edited(_parsed(_text(old.get(key, ""))), _parsed(_text(new.get(key, "")))) for key in changed)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted(old.keys() | new.keys()) if (key in old) != (key in new) or old[key] != new[key]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _is_other_thing(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    was, now, name = old[key], new[key], _name(key)
    if isinstance(was, str) and isinstance(now, str) and not (_NUMERIC.fullmatch(was) and _NUMERIC.fullmatch(now)):
        is_setting = _are_routes(was, now, old) or _VERSION_KEY.search(name) is not None
        return _masked(was) == _masked(now) and not is_setting
    return _IDENTITY.search(name) is not None


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    return _DIGITS.sub("0", text)


def _overlap(old: _Text, new: _Text) -> float:
    total = len(old.words) + len(new.words)
    return 2 * len(old.words & new.words) / total if total else 1.0


def _edited(old: _Text, new: _Text) -> int:
    """Tokens removed and added, at least 1: a new order is a change."""
    return max(1, len(old.bag ^ new.bag))
