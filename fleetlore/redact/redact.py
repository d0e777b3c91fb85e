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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import islice, product
from typing import Any

from fleetlore.redact.detectors import BY_SHAPE, FORMS
from fleetlore.redact.named_values import (
    BETWEEN,
    FOLDER,
    KEYS,
    NAMED,
    PASSWORDS,
    Replace,
    Rule,
    form_rule,
    is_secret,
    mask_of,
)
from fleetlore.redact.prefilter import Needles
from fleetlore.redact.weight import UNCUT, cut_text

__all__ = ["KINDS", "may_hold_secret", "plain_value", "redact", "redact_value", "suspects"]

_CACHED_CHARS = 2048  # longer texts hardly ever repeat, and a cache of them would hold tens of megabytes
_MAX_DEPTH = 64  # deeper nesting is a cycle or an attack, and would end as RecursionError in the agent
_MAX_INT = 2**64  # the JSON encoder refuses larger integers
# Values of one copy: lists that share members can stand for any number of them.
_MAX_VALUES = 20_000
_LONG_KEY = 1024

# Secrets with a form of their own, by what a text must contain, and the shape of it, before its needles are looked for.
_FORMS: tuple[tuple[str, re.Pattern[str] | None, tuple[Rule, ...]], ...] = tuple(
    (group.contains, re.compile(group.shape) if group.shape else None, tuple(form_rule(*form) for form in group.forms))
    for group in FORMS
)

_BY_SHAPE = tuple((re.compile(shape), form_rule(kind, "", pattern)) for kind, pattern, shape in BY_SHAPE)
# One after the other: a search for what may begin with either of two characters takes three times as long.
_SHAPES = tuple(re.compile(shape) for shape in dict.fromkeys(shape.encode() for *_, shape in BY_SHAPE))


# Such a word, and how it goes on where it names a value, in a text or in the JSON of one; most mentions of a key do
# not. No word beside a name begins as a sign does, so none is tried twice. The second pattern is for a text with `--`:
# there a blank behind the word is enough (`--token x`).
def _beside(signs: str) -> str:
    """What may stand between the word and the sign behind the whole name; `signs` are more characters of it."""
    return (
        rf"""(?:\\u00[0-9a-f]{{2}}|\\[bfnrt]|[{signs}`\s\])(*0-9_.?+|-]|&(?!gt;)|value|val|content|default|secret"""
        r"""|string|str|any|text|varchar|char|bytes|again|confirm(?:ation)?|repeat|new|old|raw|b64|base64|base|s){0,24}+"""
    )


_BESIDE = _beside(r"""\\"',""")
# What is said of a secret goes on with what looks like one.
_SAID = (
    rf"s?(?!\])(?:[^\w.+/~\\]|\\(?:[^u]|u00[0-9a-f]{{2}})|(?:{BETWEEN})(?![a-z])){{1,32}}+"
    r"(?=[\w.+/~-]{0,64}\d)[\w.+/~-][\w.+/=~:-]{15}"
)
# In a list a name stands before its value: `["--password", "x"]`.
_LISTED = rf"{_beside('')}\\*[\"'],\s?\\*[\"']"
_QUOTED_TOO = rf"(?:{_BESIDE}(?:[:=<>%]|&gt;)|{_SAID}|{_LISTED}|\s+\\*[\"'])"
_SIGN = rf"(?:{_BESIDE}(?:[:=<>%]|&gt;)|{_SAID}|{_LISTED})"
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
        ("key", f"(?:{_KEY}key(?={_SIGN})|(?<![a-z])key(?={_SAID}))", ""),
        ("token", "token", _SIGN),
        ("secret", "secret", _SIGN),
        ("pass", "pass(?:words?|wd|phrase|code|wort|e)?", _QUOTED_TOO),
        ("pwd", "pwd", _SIGN),
        ("pw", "pw", _SIGN),
        ("kennwort", "kennwort", _SIGN),
        ("senha", "senha", _SIGN),
        ("contrase", "contrase\u00f1a", _SIGN),
        ("wachtwoo", "wachtwoord", _SIGN),
        ("signat", "signature", _SIGN),
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
_AFTER_PASS = [bytes([each]) for each in b"\\\"'`:=>%_-]0123456789"] + [b" =", b" :", b"  =", b"  :"]
_MENTIONS: dict[bytes, str] = {
    **{word.encode(): word for word in ("token", "secret", "signat", "cookie", "authoriza", "bearer", "basic")},
    **dict.fromkeys((b"passw", b"passp", b"passc"), "pass"),
    **{word.encode() + bytes([after]): word for word in ("key", "pwd", "auth") for after in _AFTER_NAME},
    **{word.encode(): word for word in ("kennwort", "senha", "contrase", "wachtwoo")},
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
for _character, _shape, _rules in _FORMS:
    for _rule in _rules:
        for _needle in _rule.needles:
            _LOOKS[_needle.encode()].add((_character, _shape))
_NEEDLES = Needles(exact=_LOOKS, folded=_WORDS)
# From here on one pass over all needles is cheaper than one needle after another.
_SCANNED_CHARS = 500

#: Every kind that a mask can name.
KINDS: frozenset[str] = frozenset(
    rule.kind for rule in (*(rule for *_, rules in _FORMS for rule in rules), *(rule for _, rule in _BY_SHAPE), *NAMED)
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
    opened = [
        index for index, needles in found.items() if _is_open(texts[index].decode("utf-8", "surrogatepass"), needles)
    ]
    joined = b"\n".join(texts)
    for shape in _SHAPES:
        if shape.search(joined):
            opened += (index for index, text in enumerate(texts) if index not in opened and shape.search(text))
    return sorted(opened)


def _is_open(text: str, needles: set[bytes]) -> bool:
    """Whether one of the needles that were found in a text, or a JSON text, goes on as a rule asks."""
    looks = {look for needle in needles if needle in _LOOKS for look in _LOOKS[needle]}
    if any(character in text and (shape is None or shape.search(text)) for character, shape in looks):
        return True
    words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    return bool(words and _called(_fold(text), words))


def redact(text: str) -> str:
    """`text` with every secret masked; the same text, unchanged, where there is none. Idempotent, except that of two
    tokens with nothing between them the second is masked the next time.
    """
    return _redact_cached(text) if len(text) <= _CACHED_CHARS else _redact(text)


def _redact(text: str) -> str:
    within: str | set[str] = text
    words: Iterable[str] = _CALLED
    if len(text) >= _SCANNED_CHARS:
        found = _NEEDLES.find((text.encode("utf-8", "surrogatepass"),))
        needles = found.get(0, set())
        within = {needle.decode() for needle in needles if needle in _LOOKS}
        words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    for character, shape, rules in _FORMS:
        # Of a single form the pattern is the shape.
        if character in text and (shape is None or len(rules) == 1 or shape.search(text)):
            for rule in rules:
                for needle in rule.needles:
                    if needle in within:
                        text = rule.pattern.sub(rule.replace, text)
                        break
    for by_shape, rule in _BY_SHAPE:
        if by_shape.search(text):
            text = rule.pattern.sub(rule.replace, text)
    folded = _fold(text) if words else ""
    called = _called(folded, words)
    if called:
        # A pattern that ignores case takes an i without a dot, or with one as a capital, for an i; folding does not.
        plain = "\u0131" not in folded and "i\u0307" not in folded
        for rule in NAMED:
            if called.isdisjoint(rule.needles):
                continue
            if plain and rule.named:
                text, folded = _sub_named(rule.pattern, rule.replace, rule.named, text, folded)
            else:
                text = rule.pattern.sub(rule.replace, text)
                folded = _fold(text)
    return text


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
    return text, _fold(text)


def _fold(text: str) -> str:
    """Fold case as `re.IGNORECASE` does: it takes a long s for an s, and a Kelvin sign for a k."""
    return text.lower().replace("\u017f", "s")


def _called(folded: str, words: Iterable[str]) -> set[str]:
    """Those of the words that are in a folded text and go on there as if they named a value."""
    option = "--" in folded
    return {word for word in words if word in folded and _CALLED[word][option].search(folded)}


_redact_cached = lru_cache(maxsize=8192)(_redact)

_PASSWORD_KEY = re.compile(rf"(?:{PASSWORDS})\Z")
_SECRET_KEY = re.compile(rf"(?:{KEYS}|account[_-]?key|authorization|cookie)\Z")


@lru_cache(maxsize=4096)
def _key(key: str) -> tuple[str, str | None]:
    """A JSON key, masked, and the kind of what lies under it: "password", "secret" or None."""
    folded = _fold(key)
    if _PASSWORD_KEY.search(folded):
        return redact(key), "password"
    return redact(key), "secret" if _SECRET_KEY.search(folded) else None


def redact_value(value: Any, longest: int = UNCUT) -> Any:
    """A copy of `value` of nothing but JSON types, with every secret masked.

    What JSON does not know becomes its `str`; so does nesting deeper than 64. Never raises: it runs inside the agent.

    Args:
        longest: characters of a text, and members of a collection, that are kept; the rest is cut before it is looked
            at, with a mark in its place. As many values are kept in all, those that are shared counted each time.
    """
    return _Copy(longest, masks=True).of(value, 0)


def plain_value(value: Any, longest: int) -> Any:
    """The same with the secrets in it: it is to be masked once it is among others."""
    return _Copy(longest, masks=False).of(value, 0)


class _Copy:
    """One copy. `left`: how many values it may still take."""

    __slots__ = ("left", "longest", "masks")

    def __init__(self, longest: int, masks: bool) -> None:
        self.longest = longest
        self.masks = masks
        self.left = min(longest, _MAX_VALUES)

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self._masked(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if -_MAX_INT // 2 <= value < _MAX_INT else self._masked(_text(value))
        if depth >= _MAX_DEPTH:
            return "[nested too deep]"
        try:
            return self._of_other(value, depth)
        except Exception:  # a collection of the agent's own whose methods fail must not break the agent's call
            return f"<unreadable {kind.__name__}>"

    def _of_other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            return self.of(value.value, depth + 1)
        if isinstance(value, Mapping):
            copy = {}
            for key, member in self._kept(value.items()):
                name = cut_text(key if type(key) is str else _text(key), self.longest)
                name, secret = _key(name) if self.masks else (name, None)
                masked = self.of(member, depth + 1)
                copy[name] = masked if secret is None else _under_secret_name(name, secret, masked)
            return self._named_beside(copy) if self.masks else copy
        if isinstance(value, (list, tuple, set, frozenset)):
            kept = [self.of(member, depth + 1) for member in self._kept(value)]
            if self.masks and any(type(member) is str for member in kept[:-1]):
                kept = _after_options(kept)
            return kept if len(kept) == len(value) else [*kept, f"… [{len(value) - len(kept)} elements cut]"]
        return self._masked(_text(value))

    def _kept(self, members: Iterable[Any]) -> Iterator[Any]:
        for member in islice(members, self.longest):
            if self.left <= 0:
                return
            self.left -= 1
            yield member

    def _named_beside(self, copy: dict[str, Any]) -> dict[str, Any]:
        """`{"name": "DB_PASSWORD", "value": …}`"""
        value = copy.get("value")
        if type(value) is str:
            for beside in ("name", "key", "header", "field", "id", "label"):
                name = copy.get(beside)
                if type(name) is str and len(name) <= _LONG_KEY and (secret := _key(name)[1]) is not None:
                    copy["value"] = _under_secret_name(name, secret, value)
        return copy

    def _masked(self, text: str) -> str:
        text = cut_text(text, self.longest)
        return redact(text) if self.masks else text


def _after_options(members: list[Any]) -> list[Any]:
    """`["--password", …]`, and `["X-Api-Key", …]` where there are just these two."""
    for place, name in enumerate(members[:-1]):
        if type(name) is str and len(name) <= _LONG_KEY and (name.startswith("-") or len(members) == 2):
            secret = _key(name)[1]
            value = members[place + 1]
            if secret is not None and type(value) is str and not value.startswith("-"):
                members[place + 1] = _under_secret_name(name, secret, value)
    return members


def _under_secret_name(name: str, kind: str, value: Any) -> Any:
    if kind == "password" and type(value) is int:
        return mask_of(kind)
    if type(value) is list:
        return [_under_secret_name(name, kind, each) if type(each) is str else each for each in value]
    if type(value) is dict and type(value.get("value")) is str:
        return value | {"value": _under_secret_name(name, kind, value["value"])}
    if type(value) is not str or "[redacted:" in value or (name.lower() == "pwd" and FOLDER.match(value)):
        return value
    return mask_of(kind) if is_secret(value, password=kind == "password") else value


def _text(value: Any) -> str:
    try:
        if isinstance(value, (bytes, bytearray)):
            return value.decode("utf-8", "replace")
        return str(value)
    except Exception:  # a broken __str__ of the agent's own class must not break the agent's call
        return f"<unprintable {type(value).__name__}>"
