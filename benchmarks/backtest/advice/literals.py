"""Find the literals of a text, which belong to one session: ids, answers, paths, numbers."""

from __future__ import annotations

import re
from functools import lru_cache

# A key of JSON is a name of the tool's, and nobody's literal.
_LITERAL = re.compile(
    r"\"\w+\"\s*:|'([^'\n]{2,40})'|\"([^\"\n]{2,40})\"|([\w.+-]+@[\w-]+\.[\w.-]+)|((?:/[\w.-]+){2,})"
    r"|\b(\w*\d\w+|\w+\d)\b"
)
# What advice says of its own evidence, the ids by which it is cited and its fence are nobody's either.
_OWN = re.compile(
    r"\[#\w+\]|</?fleet-memory[^>\n]*>"
    r"|\b\d[\d,]* of \d[\d,]*\b|\b\d[\d,]* (?:sessions?|agents?|times|calls?)\b|\b\d+ ?%"
)
_PLACEHOLDER = re.compile(r"<[a-z][a-z_0-9 ]*>")
_IS_WORD = re.compile(r"\w")


@lru_cache(maxsize=4096)  # many calls get the same advice
def literals(text: str) -> frozenset[str]:
    """Quoted texts, e-mail addresses, paths, and what has digits; lower case. One of placeholders alone is none."""
    found = ("".join(group or "" for group in match.groups()) for match in _LITERAL.finditer(_OWN.sub(" ", text)))
    stripped = (each.strip().lower() for each in found)
    return frozenset(each for each in stripped if _IS_WORD.search(_PLACEHOLDER.sub("", each)))
