"""Take texts apart: the kinds of words by which what one agent met is found again where another meets it.

What has a grammar of its own (a literal, a column list, an option, a dotted name) is read where it is needed.
"""

from __future__ import annotations

import re

__all__ = ["NAME", "PART", "PLAIN_WORD", "TOKEN", "WORD", "count", "names_of", "parts_of", "words"]

# Of a text in any language; a name of several words (`order_id`) is one.
WORD = re.compile(r"\w+")
# Of a text in any language, letters and digits alone: `order_id` is two.
PART = re.compile(r"[^\W_]+")
# Letters alone, and so many that it says something.
PLAIN_WORD = re.compile(r"[^\W\d_]{3,}")
# As calls, results and errors write the name of a thing; one letter is none.
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]+")
# Of a call: a name or a single letter, a number, or a sign.
TOKEN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|\d+|[^\sA-Za-z_0-9]")

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# `dailyPrice`, `HTTPServer`, `daily_price`, `PRICE`
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")


def names_of(text: str) -> set[str]:
    """Lower-case names in a text; of a dotted one its parts."""
    return set(NAME.findall(text.lower()))


def words(text: str, kind: re.Pattern[str] = PART) -> list[str]:
    """Words in lower case; `cars_data` and `carsData` are found by either of their parts."""
    return [word.casefold() for word in kind.findall(_CAMEL_CASE.sub(" ", text))]


def parts_of(name: str) -> list[str]:
    """The words that a name is made of, in lower case: `http`, `server` of `HTTPServer`."""
    return [part.lower() for part in _PARTS.findall(name)]


def count(number: int, noun: str) -> str:
    """1 session, 12 sessions, 1,200 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
