"""Decide what of others a model may read: the only way from the fleet's lore to a model's context.

Evidence counts for the very string that is shown, in agents that produced it, never in sessions and never for the id
that the string hangs on. What the asker's own call and error hold may always be said back to it.

error      what the environment wrote, verbatim from two agents; from one only the words that the asker holds itself
class      of an error, or its status: from one agent, where it has the shape of one
call       from three agents where it may change something outside: a call of another tool, a whole way, one that is
           dangerous; from one where it is harmless; else from two
name       of a place, from two agents

No deny list decides alone: what no rule calls a danger still needs its agents.

What passes is cleaned (`clean`): it opens no tag, mark or link, and its lines stand behind a bar. That is no proof
against instructions in plain words: those need their agents.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from fleetlore.wire.lore import MemoryItem
from fleetlore.words import WORD

__all__ = ["INVISIBLE", "SEVERAL", "Part", "Quote", "Tip", "all_of", "clean", "tell"]

# Agents that must have produced a string.
SEVERAL = 2
_MANY = 3
_LEFT_OUT = "…"
_UNNAMED = "an error"
_CLASS = re.compile(
    r"(?:[A-Z][A-Za-z]{0,39})?(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Iteration)"
    r"|(?:http|errno|exit|code|signal|sqlstate)_?\w{1,8}|[a-z]{2,16}"
)

_MAX_CONTENT = 800
_BAR = "  | "
# What a reader does not see: control characters but line breaks and tabs, halves of surrogate pairs, and what Unicode
# lets a display leave out.
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc"
    r"\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Openings of tags, marks and links, also as the escapes that a model reads like the character itself.
_LESS = re.compile(r"[<\uff1c\ufe64]|[&\uff06\ufe60](?:lt|#0{0,8}60|#x0{0,8}3c)\b;?|\\(?:u003c|x3c)|%3c", re.IGNORECASE)
_BRACKETS = str.maketrans("[]\uff3b\uff3d\ufe47\ufe48", "⟦⟧⟦⟧⟦⟧")

# What the words of others are: an error's or a field's (the environment wrote them), the class of an error, a call or a
# part of one, or a name of a place.
Sort = Literal["error", "class", "call", "name"]


class Quote(NamedTuple):
    """Words of others in a tip.

    Attributes:
        agents: how many agents produced this very string.
        others: goals of the sessions that did, or sessions where these are not known: of a fleet whose agents share
            one name two of them stand for two agents.
        harmless: of a call: it differs from the one that failed by plain identifiers alone, or the error itself names
            the new value (`MemoryItem.plain`, `MemoryItem.named`).
        danger: of a call: it changes something outside, or breaks a safety rule (`MemoryItem.danger`).
    """

    text: str
    agents: int
    others: int
    sort: Sort
    harmless: bool = False
    danger: bool = False


# Words of ours or of the asker, or a quote of others.
Part = str | Quote


class Tip(NamedTuple):
    """One thing that may be shown. `fleetlore.advice.gate.tell` alone makes its text.

    Attributes:
        id: from a bounded set; outcomes name it, and the holdout draws by it.
        source: which of `fleetlore.advice.sources` it comes from.
        parts: what it says, in order; one imperative line, or a few where it lists calls or a place.
        key: by it a session is shown the tip once; empty for one that is shown each time.
        kind, rejected: of the failure that it warns of: the error without names, and the names of the call, lower-case.
        brings: names, or parts of a call, that it says to use.
        chance: P(the call fails), 0..1, of a tip before a call; None of others.
        sure: whether the call fails so surely that it may be held once (`Session.hold`).
        agents: that back it, the fewest of any string in it.
        call: arguments that the agent may send instead, as they are; None where that is not known.
        item: that it is of; None of what the call model or a pattern says.
        pattern: class-level id of the failure that it is about; None where it is about none.
        tried: whether the holdout withholds it from some sessions.
        text: what is shown; empty before the gate has made it.
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
    def quotes(self) -> Iterator[Quote]:
        """The words of others in it."""
        return (part for part in self.parts if isinstance(part, Quote))


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
    if agents >= _least(quote):
        return quote.text
    if quote.sort == "error":
        return _held(quote.text, own)
    if quote.sort == "class":
        return quote.text if _CLASS.fullmatch(quote.text) else _UNNAMED
    return quote.text if all(word in own for word in _words(quote.text)) else None


def _least(quote: Quote) -> int:
    if quote.sort != "call":
        return SEVERAL
    return _MANY if quote.danger else 1 if quote.harmless else SEVERAL


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
    return tuple(WORD.findall(text.lower()))


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Return text from elsewhere that cannot leave its place: bounded, without marks, each further line behind a bar.

    No tag, mark of a chat template, link or entry begins without `<` or `[`, so both are replaced by characters that
    no normalisation turns back. A line of others begins with a bar, so it reads as quoted whichever speaker it names.
    """
    visible = INVISIBLE.sub("", text[: 2 * _MAX_CONTENT]).strip()
    plain = _LESS.sub("‹", visible).translate(_BRACKETS)
    if len(plain) > _MAX_CONTENT:
        # Whole lines say more than a part of one.
        whole, _, part = plain[:_MAX_CONTENT].rpartition("\n")
        plain = f"{whole or part}…"
    return plain.replace("\n", f"\n{_BAR}")


def all_of(parts: Iterable[Part]) -> str:
    """What a tip says with no gate before it: for a person who looks after the fleet."""
    return "".join(part.text if isinstance(part, Quote) else part for part in parts)
