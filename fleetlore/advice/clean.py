"""Take from a text of others what would let it leave its place in a model's context: a fence's end, another speaker's
mark, an entry of its own, and what a reader does not see.

A mark is replaced, not escaped: a model reads `&lt;system&gt;` as well as `<system>`. What is looked for stands in the
chat templates of the models that agents run (ChatML, Llama, Mistral, Gemma, DeepSeek, Alpaca), in the tags that
frameworks wrap a context with, and in the lines by which a prompt without tags changes its speaker (ReAct, Human:). It
is no proof against instructions in plain words: these are data between fences that bear random digits.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import normalize

MAX_CONTENT = 800
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
# What an entry of advice begins with: only what we write can be cited, and only that is counted.
_ENTRY = re.compile(r"\[\s?#\s?([0-9A-Za-z_-]{1,16})\s?\]")


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Text from elsewhere, unable to leave its place: no control characters, no end of the fence, not endless."""
    harmless = INVISIBLE.sub("", text[: 2 * MAX_CONTENT]).strip()
    plain = harmless if harmless.isascii() else normalize("NFKC", harmless).translate(_LOOKALIKES)
    if _MARK.search(plain) or _ENTRY.search(plain):
        harmless = _ENTRY.sub(r"(#\1)", _MARK.sub("(fleet memory)", plain))
    if len(harmless) > MAX_CONTENT:
        # Whole lines say more than a part of one.
        whole, _, part = harmless[:MAX_CONTENT].rpartition("\n")
        harmless = f"{whole or part}…"
    return harmless.replace("\n", "\n  ")
