"""Mask secrets before an event leaves the process, as `[redacted:github_token]`.

Each rule has needles, substrings of every match. One pass over the JSON of many events finds them; an event without one
needs no further test.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from unicodedata import normalize

from fleetlore.redact import named_values, prefilter
from fleetlore.redact.detectors import FORMS
from fleetlore.redact.named_values import AGAIN_WORDS, FOREIGN, REDACTED, Replace, Rule, form_rule, mask_of
from fleetlore.redact.notations import COLUMN_RULES

__all__ = ["PART_OF_ID", "may_hold_secret", "redact", "redact_name", "spellings", "stored_name", "suspects"]

_CACHED_CHARS = 2048  # longer texts hardly repeat
_IN_LETTERS = str.maketrans("0123456789", "ghijklmnop")  # with digits a hash would look like a secret
_LONGEST_PRINCIPAL = 64  # of a name that holds a secret, no longer principal is searched and kept


_ENCODED = Rule("encoded_secret", prefilter.BASE64_NEEDLES, prefilter.BASE64, lambda match: _masked_base64(match[0]))
# Required substring, shape, and rules.
_FORMS: tuple[tuple[str, re.Pattern[str] | None, tuple[Rule, ...]], ...] = (
    *(
        (contains, re.compile(shape) if shape else None, tuple(form_rule(*form) for form in forms))
        for contains, shape, forms in FORMS
    ),
    ("", re.compile(prefilter.BASE64_SHAPE), (_ENCODED,)),
)
# A lone rule searches for its shape itself.
_TRIED = tuple((contains, shape if len(rules) > 1 else None, rules) for contains, shape, rules in _FORMS)
_NAMED = (*COLUMN_RULES, *named_values.NAMED)

# One search for both alternatives.
_BEHIND_A_DOT = r"\.[\w-]{6}(?:\.[\w-]{27}|(?<=s\.......)[A-Za-z0-9]{18})"
_BEHIND_DIGITS = r":(?<=\d{8}:)[\w-]{32}"
_BEHIND_A_BAR = r"\|(?<=\d\|)[\w-]{27}"
_BEHIND_A_WORD = r"_(?<=[a-z\d]_)[0-9a-f]{40}"
# Forms without a fixed substring, and a shape in every match. Its literal first character makes the search fast.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("discord_token", r"(?<![\w-])[MNO](?=[\w.-]{0,100}\d)[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}", _BEHIND_A_DOT),
    ("telegram_token", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])", _BEHIND_DIGITS),
    ("asana_token", r"(?<![\w/])[12]/(?:\d{13,20}/)?\d{13,20}:[0-9a-f]{32}\b", _BEHIND_DIGITS),
    ("numbered_token", r"(?<!\d)\d{1,20}\|(?=[A-Za-z_-]{0,64}+\d)(?=[\d_-]{0,64}+[A-Za-z])[\w-]{27,80}(?![\w-])",
     _BEHIND_A_BAR),
    # A principal's own key of a fleet (`fleetlore.wire.principals`).
    ("principal_key", r"(?<![\w:])[0-9a-f]{64}(?=:[A-Za-z][\w.-]{0,63}(?![\w:/.-]))", r":(?<=[0-9a-f]{64}:)[A-Za-z]"),
    # Issuers that put a name before the random part.
    ("vendor_key",
     r"(?<![\w-])(?!(?:sha|md|hash|commit|blob|digest|etag|file|img|image|rev|node|obj|tx|id|ref|key|session|run|task"
     r"|thread|conv|conversation|agent|worker|job|trace|span|req|request|msg|message|event|step|call|chat|batch"
     r"|user|customer|order|doc|item)\d{0,3}_)"
     r"[a-z][a-z0-9]{2,15}_[0-9a-f]{40,64}(?![\w-])", _BEHIND_A_WORD),
    ("vault_token", r"(?<![\w.])s\.(?=[A-Za-z]{0,64}+\d)[A-Za-z0-9]{24}(?![\w.])", _BEHIND_A_DOT),
)  # fmt: skip
_BY_SHAPE = tuple((re.compile(shape), form_rule(kind, "", pattern)) for kind, pattern, shape in _SHAPES)
# One search for two alternatives takes three times as long.
_SOUGHT = (
    *prefilter.COLOURING,
    *(re.compile(shape) for shape in dict.fromkeys(shape.encode() for *_, shape in _SHAPES)),
)


# A word and its continuation if it names a value, in text or JSON. Words and signs start differently: nothing
# backtracks. The second pattern is for texts with `--`, where a blank is enough.
def _beside(signs: str) -> str:
    return (
        rf"""(?:\\u00[0-9a-f]{{2}}|\\[bfnrt]|[{signs}`\s\])(*0-9_.?+|-]|&(?!gt;)|value|val|content|default|secret|id"""
        r"""|string|str|any|text|varchar|char|bytes|again|confirm(?:ation)?|repeat|new|old|raw|b64|base64|base"""
        r"""|field|input|box|s){0,16}+"""
    )


_BESIDE = _beside(r"""\\"',""")
_SAID = (
    rf"s?(?!\])(?:[^\w.+/~\\]|\\(?:[^u]|u00[0-9a-f]{{2}})|(?:{named_values.BETWEEN})(?![a-z])){{1,32}}+"
    r"(?:(?=[\w.+/~-]{0,64}\d)[\w.+/~-][\w.+/=~:-]{15}"
    r"|(?<=[\"'`])(?=[^\s\"'`]{0,64}\d)[^\s\"'`<>()\[\]{},;\\]{16})"
)
# In a list a name precedes its value: `["--password", "x"]`.
_LISTED = rf"{_beside('')}\\*+[\"'],\s?\\*+[\"']"
_COLUMN = (
    rf"(?:[_-]?(?:[0-9]{{1,2}}|{'|'.join(AGAIN_WORDS)}))?s?"
    r"(?:[`\"'\]* ]|\\(?=[\"'])){0,8}"
    r"(?:(?:[|;,)\t]|\\t) ?(?:[\w.\"'`*\]-]|\\(?=[\"'])){0,40}+ ?){0,10}?(?:, ?\\*+[\"'])?"
    r"(?:[\r\n]|\\[nr]|values|rows|data|records)"
)
_SIGN = (
    rf"(?:{_BESIDE}(?:[:=<>%\uff1a\u2192]|&gt;)|{_SAID}|{_LISTED}|{_COLUMN}|s?{named_values.TOLD}"
    r"|\sfor\s[\w.@-]{1,40}:|\\*+[\"']}|\w{0,10}\\*+\"\\+r\\+n)"
)
_QUOTED_TOO = rf"(?:{_SIGN}|\s+\\*+[\"'])"
# `PRIMARY KEY =` is common. (The i may be dotless, or the rest of a capital dotted one.)
_KEY = (
    "(?:api[_ -]?|x-[a-z-]{1,40}|(?:access|secret|private|encryption|signing|auth|license|account|master|app|service|"
    "client|consumer)[_-]?)"
).replace("i", "[i\u0131]\u0307?")
# "basic authentication" is common, so only as long as base64.
_BLANK = r"(?:\\u00[0-9a-f]{2}|\\[bfnrt]|\s)+"
_BASE64 = r"(?:[a-z0-9+/]{4}){2,}(?:[a-z0-9+/]{2}==|[a-z0-9+/]{3}=|(?![a-z0-9+/]))"
_CALLED: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    word: (re.compile(name + sign), re.compile(f"{name}(?:{sign}| )"))
    for word, name, sign in (
        ("key",
         rf"(?:{_KEY}key(?={_SIGN}| [\w&+/=.-]{{0,40}}\d)|(?<![a-z])key(?={_SAID})"
         rf"|(?<=[a-z0-9_-])key(?={named_values.OF_A_KEY}))", ""),
        ("pass", "pass(?:words?|wd|phrase|code|wort|e)?", rf"(?:{_QUOTED_TOO}|(?<=-password)\s)"),
        *((each, each, _SIGN) for each in ("token", "secret", "pwd", "pw", "kennwort", "senha", "cookie", "auth")),
        *((each, each, _SIGN) for each in FOREIGN),
        ("contrase", "contrase\u00f1a", _SIGN),
        ("wachtwoo", "wachtwoord", _SIGN),
        ("signat", "signature", _SIGN),
        ("cred", "cred(?:ential)?s?", _SIGN),
        ("authoriza", "authorization", _SIGN),  # a JSON key whose value is secret
        ("bearer", "bearer", r"(?:\s|\\)"),
        ("basic", "basic", _BLANK + _BASE64),
    )
}  # fmt: skip
# Every match contains one of these after its word: `keyboard` contains `key`. Non-ASCII white space starts with one of
# the last four bytes.
_AFTER_NAME = b"\\\"'`:=<>%,&()[]_-0123456789s \t\n\r\v\f\x1c\x1d\x1e\x1f\xc2\xe1\xe2\xe3"
_AFTER_WORD = sorted({word[:2].encode() for word in AGAIN_WORDS})
_AFTER_PASS = [bytes([each]) for each in b"\\\"'`:=>%_-]0123456789"] + [b" =", b" :", b"  =", b"  :"]
_MENTIONS: dict[bytes, str] = {
    **{word.encode(): word for word in ("token", "secret", "signat", "cookie", "authoriza", "bearer", "basic")},
    **dict.fromkeys((b"passw", b"passp", b"passc"), "pass"),
    **{word.encode() + bytes([after]): word for word in ("key", "pwd", "auth") for after in _AFTER_NAME},
    **{word.encode() + after: word for word in ("key", "pwd", "auth") for after in _AFTER_WORD},
    **{b"creds" + after: "cred" for after in _AFTER_WORD},
    **{word.encode(): word for word in ("kennwort", "senha", "contrase", "wachtwoo")},
    # A lower-case needle finds upper case in ASCII only.
    **{cased.encode(): word for word in FOREIGN for cased in (word, word.title(), word.upper())},
    # Every "class " contains `pass` and a blank.
    **{b"pass" + after: "pass" for after in _AFTER_PASS},
    **{after: "pw" for after in (b"bindpw", *(b"pw" + after for after in _AFTER_PASS))},
    **dict.fromkeys((b"motdepas", b"mot_de_pas", b"mot de pas"), "pass"),
    **dict.fromkeys((b"credentia", *(b"creds" + bytes([after]) for after in _AFTER_NAME)), "cred"),
}
# A case-insensitive pattern matches a long s as s and a Kelvin sign as k.
_LOOKALIKES = {b"s"[0]: (b"s", "\u017f".encode()), b"k"[0]: (b"k", "\u212a".encode())}
_WORDS: dict[bytes, str] = {
    b"".join(letters): word
    for mention, word in _MENTIONS.items()
    for letters in product(*(_LOOKALIKES.get(byte, (bytes([byte]),)) for byte in mention))
}
_LOOKS: dict[bytes, set[tuple[str, re.Pattern[str] | None]]] = defaultdict(set)
for _character, _shape, _rules in _FORMS:
    for _rule in _rules:
        for _needle in _rule.needles:
            _LOOKS[_needle.encode()].add((_character, _shape))
_NEEDLES = prefilter.Needles(exact=_LOOKS, folded=_WORDS)
# Testing more names costs as much as masking.
_MANY_NAMES = 32
# Above it, one pass over all needles is cheaper.
_SCANNED_CHARS = 500

KINDS: frozenset[str] = frozenset(
    rule.kind for rule in (*(rule for *_, rules in _FORMS for rule in rules), *(rule for _, rule in _BY_SHAPE), *_NAMED)
)


def suspects(texts: Sequence[str]) -> list[int]:
    """Return the ascending indices of texts that `redact` might change."""
    return may_hold_secret([text.encode("utf-8", "surrogatepass") for text in texts])


def may_hold_secret(texts: Sequence[bytes]) -> list[int]:
    """The ascending indices of JSON texts, written by `orjson`, whose values `redact_value` might change."""
    found = _NEEDLES.find(texts)
    opened = {
        index for index, needles in found.items() if _is_open(texts[index].decode("utf-8", "surrogatepass"), needles)
    }
    joined = b"\n".join(texts)
    for look in _SOUGHT:
        if look.search(joined):
            opened.update(index for index, text in enumerate(texts) if look.search(text))
    if not joined.isascii():  # then without invisible characters
        opened.update(index for index, text in enumerate(texts) if not text.isascii() and prefilter.HIDING.search(text))
    return sorted(opened)


def _is_open(text: str, needles: set[bytes]) -> bool:
    looks = {look for needle in needles if needle in _LOOKS for look in _LOOKS[needle]}
    if any(character in text and (shape is None or shape.search(text)) for character, shape in looks):
        return True
    words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    if not words:
        return False
    folded = fold(text)
    return sum(map(folded.count, words)) > _MANY_NAMES or bool(_called(folded, words))


def redact(text: str) -> str:
    """Mask every secret, or return the same text. Idempotent, except for the second of two adjacent tokens."""
    return _redact_cached(text) if len(text) <= _CACHED_CHARS else _redact(text)


# The suffix of a session's further parts (`fleetlore.agent.session`).
PART_OF_ID = re.compile(r"\.[0-9a-f]{12}\Z")


def redact_name(name: str) -> str:
    """Return another name for an agent or session whose name holds a secret. Masks alone would make many names one.

    The principal before a colon stays if it holds no secret. So does the suffix of a session's part, by which it is
    found with its session.
    """
    part = PART_OF_ID.search(name)
    if part is not None and redact(session := name[: part.start()]) != session:
        return redact_name(session) + part[0]
    first, colon, rest = name.partition(":")
    if not colon or len(first) > _LONGEST_PRINCIPAL or redact(first) != first:
        first = f"redacted-{_hash_of(first)}"
    return first + colon + (mask_of(_hash_of(rest)) if colon else "")


def stored_name(name: str) -> str:
    """Return the name under which events of an agent or session are stored."""
    return redact_name(name) if redact(name) != name else name


@lru_cache
def spellings(name: str) -> frozenset[str]:
    """Return a name as given and in the normal forms of Unicode: a terminal may compose letters that a client did not.
    If it holds a secret, it is stored under another name.
    """
    given = {name, normalize("NFC", name), normalize("NFD", name)}
    return frozenset({*given, *map(stored_name, given)})


def _hash_of(text: str) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return digest.translate(_IN_LETTERS)


def _redact(text: str) -> str:
    plain = prefilter.uncovered(text)
    masked = _masked(plain)
    return text if masked == plain else prefilter.with_own_letters(masked, plain, text)


def _masked(text: str) -> str:
    known: dict[str, str] = {}
    within: str | set[str] = text
    words: Iterable[str] = _CALLED
    if len(text) >= _SCANNED_CHARS:
        found = _NEEDLES.find((text.encode("utf-8", "surrogatepass"),))
        needles = found.get(0, set())
        within = {needle.decode() for needle in needles if needle in _LOOKS}
        words = {_WORDS[needle] for needle in needles if needle in _WORDS}
    for character, shape, rules in _TRIED:
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
        # Patterns treat dotless and dotted i as I; folding does not.
        plain = "\u0131" not in folded and "i\u0307" not in folded
        for rule in _NAMED:
            if called.isdisjoint(rule.needles):
                continue
            if plain and rule.named:
                text, folded = _sub_named(rule.pattern, _noting(rule, known), rule.named, text, folded)
            else:
                text = rule.pattern.sub(_noting(rule, known), text)
                folded = fold(text)
    return prefilter.masked_again(text, known) if known else text


def _noting(rule: Rule, known: dict[str, str]) -> Replace:
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
    said = prefilter.decoded(text)
    return text if said is None or _redact_cached(said) == said else mask_of("encoded_secret")


def _sub_named(
    pattern: re.Pattern[str], replace: Replace, named: re.Pattern[str], text: str, folded: str
) -> tuple[str, str]:
    """Apply `pattern.sub` only where a name begins: several times faster."""
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
    """Fold case like `re.IGNORECASE`, with long s and Kelvin sign."""
    return text.lower().replace("\u017f", "s")


def _called(folded: str, words: Iterable[str]) -> set[str]:
    option = "--" in folded
    return {word for word in words if word in folded and _CALLED[word][option].search(folded)}


_redact_cached = lru_cache(maxsize=8192)(_redact)
