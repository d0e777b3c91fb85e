"""Decide what of others a model may read: the only way from the fleet's lore to a model's context.

Evidence counts for the very string that is shown, in agents that produced it, never in sessions and never for the id
that the string hangs on. What the asker's own call and error hold may always be said back to it.

error      what the environment wrote, verbatim from two agents; from one only the words that the asker holds itself
class      of an error, or its status: from one agent, where it has the shape of one
call       from three agents where it may change something outside: a call of another tool, a whole way, one that is
           dangerous; from one where it is harmless; else from two
name       of a place, from two agents

No deny list decides alone: what no rule calls a danger still needs its agents.

What passes is cleaned: it cannot leave its place by the end of a fence, another speaker's mark, an entry of its own or
what a reader does not see. A mark is replaced, not escaped: a model reads `&lt;system&gt;` as well as `<system>`. What
is looked for stands in the chat templates of the models that agents run (ChatML, Llama, Mistral, Gemma, DeepSeek,
Alpaca), in the tags that frameworks wrap a context with, and in the lines by which a prompt without tags changes its
speaker (ReAct, Human:). It is no proof against instructions in plain words: those need their agents.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple
from unicodedata import normalize

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
# What a reader does not see: control characters but line breaks and tabs, halves of surrogate pairs, and what Unicode
# lets a display leave out.
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc"
    r"\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Letters of other scripts that look like those of a fence or of a speaker.
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043c\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0501\u04bb\u04cf\u03bf\u03b9\u03bd"
    "\u0410\u0415\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0405\u0406\u0391\u0395\u039c\u039d\u039f\u03a4\u03a5",
    "aemopctyxsidhloivAEMHOPCTYSIAEMNOTY",
)
_FENCE = r"[<‹〈]?\s*[/⁄∕]?\s*fleet[\W_]{0,3}memory\s*[>›〉]?"
_SPEAKERS = r"system|developer|assistant|human"
# A whole call or result of a tool, as models write them, and where a turn begins or ends.
_PARTS = (
    r"(?:tool|function)s?[_-]?(?:results?|calls?|uses?|outputs?|responses?)|invoke|think(?:ing)?|instructions?"
    r"|(?:start|end|begin)[_-]of[_-](?:turn|text|sentence)|(?:bo|eo)[st]|pad|unk"
)
_ABOUT = r"(?:reminder|prompts?|messages?|instructions?|quer(?:y|ies)|notes?|turn|input|response|info)"
_TAG = (
    rf"<\s*/?\s*(?:\w{{1,16}}:)?"
    rf"(?:(?:{_SPEAKERS}|{_PARTS})(?:[\s:][^<>]{{0,80}})?|user(?:\s[^<>]{{0,40}}=[^<>]{{0,40}})?"
    rf"|(?:{_SPEAKERS}|user)[_:-]{_ABOUT}(?:\s[^<>]{{0,80}})?|s)\s*/?\s*>"
)
# `[user]` is also a column or a section of a file.
_BRACKETED = (
    rf"\[\s*/?\s*(?:INST|(?:{_SPEAKERS})(?:[ _-]{_ABOUT})?|user[ _-]{_ABOUT}|(?-i:USER|BOS|EOS)"
    r"|(?:available_)?tools?[ _-](?:calls?|results?|content)|available_tools)\s*\]"
)
_TOKEN = r"<\|[^|>]{0,40}\|>|<</?SYS>>"
# Behind quotation marks, bullets, headings and emphasis; also where JSON has written the line break as an escape.
_LINE = (
    r"(?:(?m:^)|(?<=\\n)|(?<=\\r))[\s>#*_~`|-]{0,12}"
    rf"(?:(?:{_SPEAKERS}|user|ai)(?:[ _-]{_ABOUT})?|instructions?|observation|thought|action(?: input)?|final answer"
    r"|(?:tool|function)[ _-](?:results?|outputs?|responses?))\s{0,2}[*_~`]{0,3}\s{0,2}:"
    rf"|(?m:^)\s{{0,8}}\#{{1,6}}\s{{0,2}}(?:{_SPEAKERS}|user|instructions?|input|response)\s*$"
)
_MARK = re.compile("|".join((_FENCE, _TAG, _BRACKETED, _TOKEN, _LINE)), re.IGNORECASE | re.MULTILINE)
# What looks like an entry of ours: nothing that others wrote may.
_ENTRY = re.compile(r"\[\s?#\s?([0-9A-Za-z_-]{1,16})\s?\]")

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
    """Text from elsewhere, unable to leave its place: no control characters, no end of the fence, not endless."""
    harmless = INVISIBLE.sub("", text[: 2 * _MAX_CONTENT]).strip()
    plain = harmless if harmless.isascii() else normalize("NFKC", harmless).translate(_LOOKALIKES)
    if _MARK.search(plain) or _ENTRY.search(plain):
        harmless = _ENTRY.sub(r"(#\1)", _MARK.sub("(fleet memory)", plain))
    if len(harmless) > _MAX_CONTENT:
        # Whole lines say more than a part of one.
        whole, _, part = harmless[:_MAX_CONTENT].rpartition("\n")
        harmless = f"{whole or part}…"
    return harmless.replace("\n", "\n  ")


def all_of(parts: Iterable[Part]) -> str:
    """What a tip says with no gate before it: for a person who looks after the fleet."""
    return "".join(part.text if isinstance(part, Quote) else part for part in parts)
