"""Split texts into words."""

import re

__all__ = ["NAME", "PART", "PLAIN_WORD", "TOKEN", "WORD", "count", "names_of", "parts_of", "words"]

# A word in any script. `order_id` is one word.
WORD = re.compile(r"\w+")
# `order_id` is two.
PART = re.compile(r"[^\W_]+")
# At least three letters: shorter words carry no information.
PLAIN_WORD = re.compile(r"[^\W\d_]{3,}")
# The name of a thing in a call, result or error: at least two characters.
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]+")
# A name, a number, or a sign of a call.
TOKEN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|\d+|[^\sA-Za-z_0-9]")

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# `dailyPrice`, `HTTPServer`, `daily_price`, `PRICE`
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")


def names_of(text: str) -> set[str]:
    return set(NAME.findall(text.lower()))


def words(text: str, kind: re.Pattern[str] = PART) -> list[str]:
    """`cars_data` and `carsData` have two parts each."""
    return [word.casefold() for word in kind.findall(_CAMEL_CASE.sub(" ", text))]


def parts_of(name: str) -> list[str]:
    """Return the lower-case words of a name: `http`, `server` of `HTTPServer`."""
    return [part.lower() for part in _PARTS.findall(name)]


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
