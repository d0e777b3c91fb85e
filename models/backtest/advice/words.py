"""Take texts apart into words, and into literals, which belong to one session: ids, answers, paths, numbers."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[a-z_][a-z_0-9]+")
# A key of JSON is a name of the tool's, and nobody's literal.
_LITERAL = re.compile(
    r"\"\w+\"\s*:|'([^'\n]{2,40})'|\"([^\"\n]{2,40})\"|([\w.+-]+@[\w-]+\.[\w.-]+)|((?:/[\w.-]+){2,})"
    r"|\b(\w*\d\w+|\w+\d)\b"
)
# What advice says of its own evidence, and the ids by which it is cited, are nobody's either.
_OWN = re.compile(r"\[#\w+\]|\bof \d[\d,]*\b|\b\d[\d,]* (?:of|sessions?|agents?|times|calls?)\b|\b\d+ ?%")


def words(text: str) -> set[str]:
    """Words and names, lower case; of a dotted name its parts."""
    return set(_WORD.findall(text.lower()))


@lru_cache(maxsize=4096)  # many calls get the same advice
def literals(text: str) -> frozenset[str]:
    """Quoted texts, e-mail addresses, paths, and what has digits; lower case."""
    found = ("".join(group or "" for group in match.groups()) for match in _LITERAL.finditer(_OWN.sub(" ", text)))
    return frozenset(each.strip().lower() for each in found if each.strip())
