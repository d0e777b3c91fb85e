"""Decide what of others a model may read: the only way from the fleet's lore to a model's context.

Evidence counts for the very string that is shown, in agents that produced it, never in sessions and never for the id
that the string hangs on. What the asker's own call and error hold may always be said back to it.

error      what the environment wrote, verbatim from two agents; from one only the words that the asker holds itself
class      of an error, or its status: from one agent, where it has the shape of one
call       from three agents where it may change something outside: a call of another tool, a whole way, one that is
           dangerous; from one where it is harmless; else from two
name       of a place, from two agents
document   an operator's own words

No deny list decides alone: what no rule calls a danger still needs its agents.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from fleetlore.advice.clean import clean
from fleetlore.advice.tip import Quote, Tip

__all__ = ["MANY", "SEVERAL", "tell"]

# Agents that must have produced a string.
SEVERAL = 2
MANY = 3
_LEFT_OUT = "…"
_UNNAMED = "an error"
_CLASS = re.compile(
    r"(?:[A-Z][A-Za-z]{0,39})?(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Iteration)"
    r"|(?:http|errno|exit|code|signal|sqlstate)_?\w{1,8}|[a-z]{2,16}"
)
_WORD = re.compile(r"\w+")


def tell(tip: Tip, own: Collection[str], *, one_name: bool = False) -> Tip | None:
    """The tip with the text that a model may read; None where a part of it may not be shown.

    Args:
        own: lower-case words that the asker's own call and error hold.
        one_name: whether all that is known was met under the asker's own name: then agents cannot be told apart.
    """
    shown = []
    for part in tip.parts:
        text = _allowed(part, own, one_name) if isinstance(part, Quote) else part
        if text is None:
            return None
        shown.append(text)
    agents = min([quote.agents for quote in tip.quotes], default=tip.agents)
    return tip._replace(text=clean("".join(shown)), agents=agents)


def _allowed(quote: Quote, own: Collection[str], one_name: bool) -> str | None:
    agents = max(quote.agents, min(quote.others, SEVERAL)) if one_name else quote.agents
    if quote.sort == "document" or agents >= _least(quote):
        return quote.text
    if quote.sort == "error":
        return _held(quote.text, own)
    if quote.sort == "class":
        return quote.text if _CLASS.fullmatch(quote.text) else _UNNAMED
    return quote.text if all(word in own for word in _words(quote.text)) else None


def _least(quote: Quote) -> int:
    if quote.sort != "call":
        return SEVERAL
    return MANY if quote.danger else 1 if quote.harmless else SEVERAL


def _held(text: str, own: Collection[str]) -> str:
    """The text with an ellipsis for each run of words that the asker does not hold."""
    kept: list[str] = []
    for token in text.split():
        words = _words(token)
        if words and all(word in own for word in words):
            kept.append(token)
        elif kept[-1:] != [_LEFT_OUT]:
            kept.append(_LEFT_OUT)
    return " ".join(kept)


@lru_cache(maxsize=4096)  # the same few strings are asked about again and again
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))
