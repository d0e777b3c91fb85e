"""Compare two calls: is the later one a repair of the earlier one, and what was changed?

Texts are compared as bags of tokens, JSON objects by keys and values. `distance` is cheap, since every pair of calls
needs it; `in_words` describes the one chosen pair. Results are cached, because a stuck agent repeats the same few
calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

MAX_TOKENS = 300
MAX_KEY_WORDS = 12
# Share of words that two attempts at the same thing have in common, and two whose change is too long to say in words.
RELATED = 0.5
CLOSELY_RELATED = 0.65

# A flag, a decimal and an operator are one token each.
_TOKEN = re.compile(r"(?<=\s)--?[A-Za-z][\w-]*|\d+\.\d+|\w+|[-+*/%<>=!]=|\*\*|//|->|[^\w\s]")
_DIGITS = re.compile(r"\d+")
_IDENTITY = re.compile(r"(?:^|_|[a-z])(?:id|Id|ID|uuid|number|index|offset|page)s?$")


class _Text(NamedTuple):
    """A text in tokens. `words` leaves out punctuation, which would make all calls alike."""

    tokens: tuple[str, ...]
    bag: frozenset[str]
    words: frozenset[str]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Text:
    tokens = tuple(_TOKEN.findall(text)[:MAX_TOKENS])
    bag = _bag(tokens)
    words = frozenset([token for token in bag if token[-1].isalnum() or token[-1] == "_"])
    return _Text(tokens, bag, words)


def _bag(tokens: tuple[str, ...]) -> frozenset[str]:
    """The bag of tokens as a set: the second "a" is "2 a", which is no token. Sets intersect faster than counts."""
    counts = Counter(tokens)
    again = [f"{time} {token}" for token, count in counts.items() if count > 1 for time in range(2, count + 1)]
    return frozenset(counts).union(again)


@lru_cache(maxsize=4096)
def _values(arguments: str) -> dict[str, Any] | None:
    if not arguments.startswith("{"):
        return None
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


@lru_cache(maxsize=4096)
def distance(failed: str, worked: str) -> int | None:
    """How much was changed between two calls of a tool: tokens removed and added; 0 for the same call.

    None if the later call is no second attempt at the same thing: the calls share less than half of their words, or
    differ in numbers and ids only (the same call about another thing).

    Args:
        failed, worked: arguments as JSON or text.
    """
    if failed == worked:
        return 0
    old_values, new_values = _values(failed), _values(worked)
    if old_values is not None and new_values is not None:
        return _object_distance(old_values, new_values)
    old, new = _parsed(failed), _parsed(worked)
    if _overlap(old, new) < RELATED or _masked(failed) == _masked(worked):
        return None
    return _edited(old, new)


@lru_cache(maxsize=4096)
def in_words(failed: str, worked: str) -> str | None:
    """The change in words, e.g. "`cars` → `cars_data`".

    Returns:
        an empty text if the change is too long to say but small beside the call; None if it is the larger part of it.
    """
    old_values, new_values = _values(failed), _values(worked)
    if old_values is not None and new_values is not None:
        return _joined([_value_change(key, old_values, new_values) for key in _changed(old_values, new_values)])
    old, new = _parsed(failed), _parsed(worked)
    words = []
    for removed, added in _edits(old.tokens, new.tokens):
        before, after = _spaced(removed, failed), _spaced(added, worked)
        if before and after:
            words.append(f"`{before}` → `{after}`")
        else:
            words.append(f"add `{after}`" if after else f"drop `{before}`")
    said = _joined(words)
    return said if said or _overlap(old, new) >= CLOSELY_RELATED else None


@lru_cache(maxsize=4096)
def change_key(failed: str, worked: str) -> str | None:
    """The change as a key: words removed and added, whatever their order, number and punctuation.

    None if more than one change was made.
    """
    old_values, new_values = _values(failed), _values(worked)
    if old_values is not None and new_values is not None:
        parts = [
            (key, *_words_changed(_text(old_values.get(key, "")), _text(new_values.get(key, ""))))
            for key in _changed(old_values, new_values)
        ]
    else:
        parts = [("", *_words_changed(failed, worked))]
    if sum(len(removed) + len(added) for _, removed, added in parts) > MAX_KEY_WORDS:
        return None
    return "\n".join([f"{key}\t{' '.join(removed)}\t{' '.join(added)}" for key, removed, added in parts])


def _words_changed(failed: str, worked: str) -> tuple[list[str], list[str]]:
    old, new = _parsed(failed), _parsed(worked)
    removed, added = old.words - new.words, new.words - old.words
    first = [sorted([word for word in words if " " not in word]) for words in (removed, added)]
    # If no word changed, punctuation or a count did.
    return (first[0], first[1]) if any(first) else (sorted(old.bag - new.bag), sorted(new.bag - old.bag))


def _object_distance(old: Mapping[str, Any], new: Mapping[str, Any]) -> int | None:
    changed = _changed(old, new)
    if not changed:
        return 0  # the same call in another spelling of JSON
    shared = old.keys() & new.keys()
    alike = sum(_value_overlap(old[key], new[key]) for key in shared)
    keys = len(old.keys() | new.keys())
    if keys > 1 and alike / keys < RELATED:
        return None
    if all(key in shared and _is_other_thing(key, old[key], new[key]) for key in changed):
        return None
    return sum(_edited(_parsed(_text(old.get(key, ""))), _parsed(_text(new.get(key, "")))) for key in changed)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = sorted(old.keys() | new.keys())
    return [key for key in keys if (key in old) != (key in new) or old[key] != new[key]]


def _value_change(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if key not in old:
        return f"add `{key}={_text(new[key])}`"
    if key not in new:
        return f"drop `{key}={_text(old[key])}`"
    return f"`{key}={_text(old[key])}` → `{key}={_text(new[key])}`"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _value_overlap(old: Any, new: Any) -> float:
    return 1.0 if old == new else _overlap(_parsed(_text(old)), _parsed(_text(new)))


def _is_other_thing(key: str, old: Any, new: Any) -> bool:
    """Whether the value names another thing. A number under a key that is no id is a setting instead."""
    if isinstance(old, str) and isinstance(new, str):
        return _masked(old) == _masked(new)
    return _IDENTITY.search(key) is not None


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    return _DIGITS.sub("0", text)


def _overlap(old: _Text, new: _Text) -> float:
    """Dice coefficient of the two bags of words."""
    total = len(old.words) + len(new.words)
    return 2 * len(old.words & new.words) / total if total else 1.0


def _edited(old: _Text, new: _Text) -> int:
    """Tokens removed and added; at least 1, since a new order is a change too."""
    return max(1, len(old.bag ^ new.bag))


def _edits(old: tuple[str, ...], new: tuple[str, ...]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Distinct runs of tokens (removed, added), in order."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    runs = [(old[a:b], new[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    return list(dict.fromkeys(runs))


def _spaced(tokens: tuple[str, ...], text: str) -> str:
    """The tokens as written: two are joined only if the text joins them."""
    out = ""
    for token in tokens:
        joined = f"{out[-1:]}{token}" in text and not (out[-1:].isalnum() and token[0].isalnum())
        out += token if joined or not out else f" {token}"
    return out


def _joined(words: list[str]) -> str:
    """The parts of a change on one line; empty if that would be too long to read."""
    text = ", ".join(dict.fromkeys(words))
    return text if len(words) <= 3 and len(text) <= 160 else ""
