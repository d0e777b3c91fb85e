"""Mask secrets before an event leaves the process.

A mask names the kind, `[redacted:github_token]`, so a reader of a failure still learns *that* a token was there.
Two families of rules:

- tokens with a form of their own (a vendor's prefix, a PEM block, a JWT): `fleetlore.redact.detectors`;
- values that are secret because of their name: `fleetlore.redact.named_values`.

Most texts hold no secret. Each rule therefore names substrings, its needles, without which it cannot match, and texts
that repeat are answered from a cache. One pass over the JSON of many events tells which needles each of them has; where
none of these goes on as its rule asks (`may_hold_secret`), the parts of the event need no look at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product

from fleetlore.redact.columns import COLUMN_RULES
from fleetlore.redact.detectors import BY_SHAPE, FORMS
from fleetlore.redact.disguised import (
    BASE64,
    BASE64_NEEDLES,
    BASE64_SHAPE,
    COLOURING,
    HIDING,
    decoded,
    masked_again,
    uncovered,
)
from fleetlore.redact.named_values import (
    AGAIN_WORDS,
    BETWEEN,
    FOREIGN,
    NAMED,
    OF_A_KEY,
    REDACTED,
    Replace,
    Rule,
    form_rule,
    mask_of,
)
from fleetlore.redact.prefilter import Needles

__all__ = ["KINDS", "fold", "may_hold_secret", "redact", "suspects"]

_CACHED_CHARS = 2048  # longer texts hardly ever repeat, and a cache of them would hold tens of megabytes


def _form(contains: str, shape: str | None, rules: tuple[Rule, ...], first: bool) -> _Form:
    compiled = re.compile(shape) if shape else None
    return contains, compiled if first else None, compiled, rules


# What a text must contain; and the shape of it, before its needles are looked for; the shape again, where it is only
# looked for to open a text, for of a single form the pattern is the shape; the rules.
_Form = tuple[str, re.Pattern[str] | None, re.Pattern[str] | None, tuple[Rule, ...]]
# Secrets with a form of their own, then what may be one in base64.
_FORMS: tuple[_Form, ...] = (
    *(
        _form(group.contains, group.shape, tuple(form_rule(*form) for form in group.forms), len(group.forms) > 1)
        for group in FORMS
    ),
    _form(
        "",
        BASE64_SHAPE,
        (Rule("encoded_secret", BASE64_NEEDLES, BASE64, lambda match: _masked_base64(match[0])),),
        True,
    ),
)
_NAMED = (*COLUMN_RULES, *NAMED)

_BY_SHAPE = tuple((re.compile(shape), form_rule(kind, "", pattern)) for kind, pattern, shape in BY_SHAPE)
# One after the other: a search for what may begin with either of two characters takes three times as long.
_SOUGHT = (*COLOURING, *(re.compile(shape) for shape in dict.fromkeys(shape.encode() for *_, shape in BY_SHAPE)))


# Such a word, and how it goes on where it names a value, in a text or in the JSON of one; most mentions of a key do
# not. No word beside a name begins as a sign does, so none is tried twice. The second pattern is for a text with `--`:
# there a blank behind the word is enough (`--token x`).
def _beside(signs: str) -> str:
    """What may stand between the word and the sign behind the whole name; `signs` are more characters of it."""
    return (
        rf"""(?:\\u00[0-9a-f]{{2}}|\\[bfnrt]|[{signs}`\s\])(*0-9_.?+|-]|&(?!gt;)|value|val|content|default|secret|id"""
        r"""|string|str|any|text|varchar|char|bytes|again|confirm(?:ation)?|repeat|new|old|raw|b64|base64|base"""
        r"""|s){0,16}+"""
    )


_BESIDE = _beside(r"""\\"',""")
# What is said of a secret goes on with what looks like one.
_SAID = (
    rf"s?(?!\])(?:[^\w.+/~\\]|\\(?:[^u]|u00[0-9a-f]{{2}})|(?:{BETWEEN})(?![a-z])){{1,32}}+"
    r"(?:(?=[\w.+/~-]{0,64}\d)[\w.+/~-][\w.+/=~:-]{15}"
    r"|(?<=[\"'`])(?=[^\s\"'`]{0,64}\d)[^\s\"'`<>()\[\]{},;\\]{16})"
)
# In a list a name stands before its value: `["--password", "x"]`.
_LISTED = rf"{_beside('')}\\*[\"'],\s?\\*[\"']"
# At the head of a column: then come the other heads, and rows.
_COLUMN = (
    rf"(?:[_-]?(?:[0-9]{{1,2}}|{'|'.join(AGAIN_WORDS)}))?s?"
    r"(?:[`\"'\]* ]|\\(?=[\"'])){0,8}"
    r"(?:(?:[|;,)\t]|\\t) ?(?:[\w.\"'`*\]-]|\\(?=[\"'])){0,40}+ ?){0,10}?(?:, ?\\*[\"'])?"
    r"(?:\n|\\[nr]|values|rows|data|records)"
)
_QUOTED_TOO = rf"(?:{_BESIDE}(?:[:=<>%]|&gt;)|{_SAID}|{_LISTED}|{_COLUMN}|\s+\\*[\"'])"
_SIGN = rf"(?:{_BESIDE}(?:[:=<>%]|&gt;)|{_SAID}|{_LISTED}|{_COLUMN})"
# Of the names with `key` in them only those of secrets, else every `PRIMARY KEY =` would open an event. (An i may be
# one without a dot, or what is left of a capital one with it.)
_KEY = (
    "(?:api[_ -]?|x-[a-z-]{1,40}|(?:access|secret|private|encryption|signing|auth|license|account|master|app|service|"
    "client|consumer)[_-]?)"
).replace("i", "[i\u0131]\u0307?")
# Behind `basic` only what can be base64 by its length: "basic authentication" would open events.
_BLANK = r"(?:\\u00[0-9a-f]{2}|\\[bfnrt]|\s)+"
_BASE64 = r"(?:[a-z0-9+/]{4}){2,}(?:[a-z0-9+/]{2}==|[a-z0-9+/]{3}=|(?![a-z0-9+/]))"
_CALLED: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    word: (re.compile(name + sign), re.compile(f"{name}(?:{sign}| )"))
    for word, name, sign in (
        (
            "key",
            rf"(?:{_KEY}key(?={_SIGN}| [\w&+/=.-]{{0,40}}\d)|(?<![a-z])key(?={_SAID})"
            rf"|(?<=[a-z0-9_-])key(?={OF_A_KEY}))",
            "",
        ),
        ("token", "token", _SIGN),
        ("secret", "secret", _SIGN),
        ("pass", "pass(?:words?|wd|phrase|code|wort|e)?", rf"(?:{_QUOTED_TOO}|(?<=-password)\s)"),
        ("pwd", "pwd", _SIGN),
        ("pw", "pw", _SIGN),
        ("kennwort", "kennwort", _SIGN),
        ("senha", "senha", _SIGN),
        ("contrase", "contrase\u00f1a", _SIGN),
        ("wachtwoo", "wachtwoord", _SIGN),
        ("signat", "signature", _SIGN),
        *((word, word, _SIGN) for word in FOREIGN),
        ("cookie", "cookie", _SIGN),
        ("cred", "cred(?:ential)?s?", _SIGN),
        ("auth", "auth", _SIGN),
        ("authoriza", "authorization", _SIGN),  # a JSON key that makes a secret of its value
        ("bearer", "bearer", r"(?:\s|\\)"),
        ("basic", "basic", _BLANK + _BASE64),
    )
}
# What the patterns above find contains one of these, and which word that is; the short ones with what can follow,
# because a `key` is in a `keyboard`, and "initial" ends as `credential` does. White space beyond ASCII begins with one
# of the last four bytes.
_AFTER_NAME = b"\\\"'`:=<>%,&()[]_-0123456789s \t\n\r\v\f\x1c\x1d\x1e\x1f\xc2\xe1\xe2\xe3"
_AFTER_WORD = sorted({word[:2].encode() for word in AGAIN_WORDS})
_AFTER_PASS = [bytes([each]) for each in b"\\\"'`:=>%_-]0123456789"] + [b" =", b" :", b"  =", b"  :"]
_MENTIONS: dict[bytes, str] = {
    **{word.encode(): word for word in ("token", "secret", "signat", "cookie", "authoriza", "bearer", "basic")},
    **dict.fromkeys((b"passw", b"passp", b"passc"), "pass"),
    **{word.encode() + bytes([after]): word for word in ("key", "pwd", "auth") for after in _AFTER_NAME},
    # Behind a name without a sign between them.
    **{word.encode() + after: word for word in ("key", "pwd", "auth") for after in _AFTER_WORD},
    **{b"creds" + after: "cred" for after in _AFTER_WORD},
    **{word.encode(): word for word in ("kennwort", "senha", "contrase", "wachtwoo")},
    # Only of ASCII upper case is found by a needle in lower case.
    **{cased.encode(): word for word in FOREIGN for cased in (word, word.title(), word.upper())},
    # Of the short ones not with a blank alone: that is in every "class ".
    **{b"pass" + after: "pass" for after in _AFTER_PASS},
    **{b"pw" + after: "pw" for after in _AFTER_PASS},
    **dict.fromkeys((b"motdepas", b"mot_de_pas"), "pass"),
    **dict.fromkeys((b"credentia", *(b"creds" + bytes([after]) for after in _AFTER_NAME)), "cred"),
}
# A pattern that ignores case takes a long s for an s and a Kelvin sign for a k.
_LOOKALIKES = {b"s"[0]: (b"s", "\u017f".encode()), b"k"[0]: (b"k", "\u212a".encode())}
_WORDS: dict[bytes, str] = {
    b"".join(letters): word
    for mention, word in _MENTIONS.items()
    for letters in product(*(_LOOKALIKES.get(byte, (bytes([byte]),)) for byte in mention))
}
# The first and second look of the groups that a needle belongs to.
_LOOKS: dict[bytes, set[tuple[str, re.Pattern[str] | None]]] = defaultdict(set)
for _character, _, _shape, _rules in _FORMS:
    for _rule in _rules:
        for _needle in _rule.needles:
            _LOOKS[_needle.encode()].add((_character, _shape))
_NEEDLES = Needles(exact=_LOOKS, folded=_WORDS)
# What names so many secrets is taken to hold one: to ask it of each takes as long as to mask it.
_MANY_NAMES = 32
# From here on one pass over all needles is cheaper than one needle after another.
_SCANNED_CHARS = 500

#: Every kind that a mask can name.
KINDS: frozenset[str] = frozenset(
    rule.kind for rule in (*(rule for *_, rules in _FORMS for rule in rules), *(rule for _, rule in _BY_SHAPE), *_NAMED)
)


def suspects(texts: Sequence[str]) -> list[int]:
    """Indices, ascending, of the texts that `redact` might change: one in 300, mostly; found at 2 ns a byte."""
    return _open([text.encode("utf-8", "surrogatepass") for text in texts])


def may_hold_secret(jsons: Sequence[bytes]) -> list[int]:
    """Indices, ascending, of the JSON texts of which `redact_value` might change what they were made from: one in 320.

    They have to be as `orjson` writes them, where all that need not be escaped stands for itself: no needle and no gate
    looks for a character that JSON escapes, so what opens it for a part opens it for the whole.
    """
    return _open(jsons)


def _open(texts: Sequence[bytes]) -> list[int]:
    found = _NEEDLES.find(texts)
    opened = {
        index for index, needles in found.items() if _is_open(texts[index].decode("utf-8", "surrogatepass"), needles)
    }
    joined = b"\n".join(texts)
    for look in _SOUGHT:
        if look.search(joined):
            opened.update(index for index, text in enumerate(texts) if look.search(text))
    if not joined.isascii():  # most texts are, and none of those holds what hides
        opened.update(index for index, text in enumerate(texts) if not text.isascii() and HIDING.search(text))
    return sorted(opened)


def _is_open(text: str, needles: set[bytes]) -> bool:
    """Whether one of the needles that were found in a text, or a JSON text, goes on as a rule asks."""
    looks = {look for needle in needles if needle in _LOOKS for look in _LOOKS[needle]}
    if any(character in text and (shape is None or shape.search(text)) for character, shape in looks):
        return True
    words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    if not words:
        return False
    folded = fold(text)
    return sum(map(folded.count, words)) > _MANY_NAMES or bool(_called(folded, words))


def redact(text: str) -> str:
    """`text` with every secret masked; the same text, unchanged, where there is none. Idempotent, except that of two
    tokens with nothing between them the second is masked the next time.
    """
    return _redact_cached(text) if len(text) <= _CACHED_CHARS else _redact(text)


def _redact(text: str) -> str:
    plain = uncovered(text)
    masked = _masked(plain)
    return text if masked == plain else masked


def _masked(text: str) -> str:
    known: dict[str, str] = {}
    within: str | set[str] = text
    words: Iterable[str] = _CALLED
    if len(text) >= _SCANNED_CHARS:
        found = _NEEDLES.find((text.encode("utf-8", "surrogatepass"),))
        needles = found.get(0, set())
        within = {needle.decode() for needle in needles if needle in _LOOKS}
        words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    for character, shape, _, rules in _FORMS:
        if character in text and (shape is None or shape.search(text)):
            for rule in rules:
                for needle in rule.needles:
                    if needle in within:
                        text = rule.pattern.sub(_noting(rule, known), text)
                        break
    for by_shape, rule in _BY_SHAPE:
        if by_shape.search(text):
            text = rule.pattern.sub(_noting(rule, known), text)
    folded = fold(text) if words else ""
    called = _called(folded, words)
    if called:
        # A pattern that ignores case takes an i without a dot, or with one as a capital, for an i; folding does not.
        plain = "\u0131" not in folded and "i\u0307" not in folded
        for rule in _NAMED:
            if called.isdisjoint(rule.needles):
                continue
            if plain and rule.named:
                text, folded = _sub_named(rule.pattern, _noting(rule, known), rule.named, text, folded)
            else:
                text = rule.pattern.sub(_noting(rule, known), text)
                folded = fold(text)
    return masked_again(text, known) if known else text


def _noting(rule: Rule, known: dict[str, str]) -> Replace:
    """What the rule puts in a match's place; and the secret that it masks there becomes known."""
    mask = mask_of(rule.kind)

    def replace(match: re.Match[str]) -> str:
        text, masked = match[0], rule.replace(match)
        if masked is not text and masked != text:
            before, _, behind = masked.partition(mask)
            secret = text[len(before) : len(text) - len(behind)]
            if REDACTED not in secret:
                known[secret] = mask
        return masked

    return replace


def _masked_base64(text: str) -> str:
    """A text in base64, masked where it holds a secret."""
    said = decoded(text)
    return text if said is None or _redact_cached(said) == said else mask_of("encoded_secret")


def _sub_named(
    pattern: re.Pattern[str], replace: Replace, named: re.Pattern[str], text: str, folded: str
) -> tuple[str, str]:
    """`pattern.sub` tried only where a name begins, for `folded` is `text` character by character; and the new text
    folded.

    The pattern ignores case and tries fifteen names at each character; `named` finds them several times faster.
    """
    parts: list[str] = []
    copied = start = 0
    while found := named.search(folded, start):
        match = pattern.match(text, found.start())
        if match is None:
            start = found.start() + 1
            continue
        start = match.end()
        parts += text[copied : match.start()], replace(match)
        copied = start
    if not parts:
        return text, folded
    text = "".join(parts) + text[copied:]
    return text, fold(text)


def fold(text: str) -> str:
    """Fold case as `re.IGNORECASE` does: it takes a long s for an s, and a Kelvin sign for a k."""
    return text.lower().replace("\u017f", "s")


def _called(folded: str, words: Iterable[str]) -> set[str]:
    """Those of the words that are in a folded text and go on there as if they named a value."""
    option = "--" in folded
    return {word for word in words if word in folded and _CALLED[word][option].search(folded)}


_redact_cached = lru_cache(maxsize=8192)(_redact)
