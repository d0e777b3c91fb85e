"""Mask values that are secret by the word before them: `password=`, `"api_key": "..."`, `--token x`, `Bearer x`.

Ordinary error text must stay whole ("Unexpected token: <", "/etc/passwd: Permission denied"), because failure patterns
are mined from it: a value is masked only if it can be a secret (`is_secret`).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

Replace = Callable[[re.Match[str]], str]


class Rule(NamedTuple):
    kind: str
    needles: tuple[str, ...]  # one of them is in every (for a word: folded) text that the rule matches; their last four
    # characters are what many texts are searched for at once, so these should be rare
    pattern: re.Pattern[str]
    replace: Replace
    # Without a match of this in a folded text there is none; found several times faster.
    named: re.Pattern[str] | None = None


def mask_of(kind: str) -> str:
    return f"[redacted:{kind}]"


def form_rule(kind: str, needles: str, pattern: str, *, folded: bool = False) -> Rule:
    """A secret with a form of its own: the group `secret`, or else the whole match, becomes the mask."""
    compiled = re.compile(pattern, re.IGNORECASE if folded else 0)
    mask = mask_of(kind)
    if "secret" not in compiled.groupindex:
        return Rule(kind, tuple(needles.split("|")), compiled, lambda _: mask)

    def replace(match: re.Match[str]) -> str:
        start, end = match.span("secret")
        text, origin = match[0], match.start()
        return text[: start - origin] + mask + text[end - origin :]

    return Rule(kind, tuple(needles.split("|")), compiled, replace)


PASSWORDS = r"passwords?|passwd|passphrase|passcode|pwd"
_AUTH = "(?<![a-z])_?auth"
KEYS = (
    r"secret|token|api[_ -]?key|access[_-]?key|secret[_-]?key|private[_-]?key|encryption[_-]?key|signing[_-]?key"
    rf"|auth[_-]?key|license[_-]?key|x-amz-signature|credentials?|creds|{_AUTH}"
)
_VALUE = (
    r"""(?:"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<quote>\\+["'])(?P<escaped>[^\n]*?)(?P=quote)|(?P<bare>(?:[^\s"'`,;&\\]|,(?=[^\s"',;&]))+))"""
)
# What stands in a secret's place in documentation, code and error texts.
_FILLERS = (
    "none null nil true false undefined unset empty required missing invalid incorrect wrong expired denied optional "
    "str string bytes text int bool object any password passwd secret token key value rejected failed mismatch unknown "
    "default prompt ask file env vault hidden masked"
)
_NOT_SECRET = frozenset(_FILLERS.split())
_PLACEHOLDER = re.compile(
    r"\$\{|\$\(|\{\{|%[(s]|\[redacted:|\$[A-Z_][A-Z0-9_]*\Z|<[^>]*>?\Z|[*•.xX]+\Z|\{\w*\}\Z|(?:[~.]*/[\w.-]+){2,}/?\Z"
)
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]|(?:os|env|process|self|cfg|config|settings|args|request|ctx)\.|<")
FOLDER = re.compile(r"[~/]|[A-Za-z]:")


@lru_cache(maxsize=1024)
def is_secret(value: str, *, password: bool, bare: bool = False, prose: bool = False) -> bool:
    """Whether a value found under a secret's name can be a secret.

    A password may be any word; a token or key has the look of one: eight characters, no blank, a digit or mixed case.

    Args:
        bare: it is not quoted, so it may be code.
        prose: it is a bare word after a colon with more words behind it: as likely a sentence as a password.
    """
    if len(value) < 3 or value.lower().rstrip(".!") in _NOT_SECRET or _PLACEHOLDER.match(value):
        return False
    if bare and (_CODE.match(value) or value.startswith("-")):
        return False
    has_digit = any(map(str.isdigit, value))
    if password:
        return not prose or has_digit or not value.rstrip(".!").isalpha()
    mixed = not (value.islower() or value.isupper() or value.istitle())
    return len(value) >= 8 and " " not in value and (has_digit or (mixed and len(value) >= 16))


def _named(kind: str, needles: str, names: str, *, password: bool = False) -> tuple[Rule, Rule]:
    """A secret called by one of `names`: `name=value` in all its notations, and `--name value`."""
    mask = mask_of(kind)

    def replace(match: re.Match[str]) -> str:
        form = "bare"
        for form in ("double", "single", "escaped", "bare"):
            if match[form] is not None:
                break
        value = match[form]
        bare = form == "bare"
        prose = bare and ":" in match["sign"] and match.string[match.end() : match.end() + 1] not in ("", "\n", "\r")
        if match["name"].lower() == "pwd" and FOLDER.match(value):
            return match[0]  # the shell's working directory
        if not is_secret(value, password=password, bare=bare, prose=prose):
            return match[0]
        start, end = match.span(form)
        return match[0][: start - match.start()] + mask + match[0][end - match.start() :]

    # Not after a slash or dot: `/etc/passwd: Permission denied` is the commonest error text of all.
    sign = r"""\\*["']?(?:\s{1,4}value)?\s{0,4}(?P<sign>=>|[:=])\s{0,4}"""
    assignment = re.compile(rf"(?<![/\\.])(?P<name>{names}){sign}{_VALUE}", re.IGNORECASE)
    option = re.compile(rf"--(?:[a-z0-9]+-)*(?P<name>{names})(?P<sign> +)(?!-){_VALUE}", re.IGNORECASE)
    # With a letter at the start of each name a search skips, more than twice as fast, what none of them begins with.
    named = re.compile(rf"(?:{names.replace(_AUTH, 'auth')}){sign}")
    words = tuple(needles.split("|"))
    return (
        Rule(kind, words, assignment, replace, named),
        Rule(kind, words, option, replace),
    )


def _basic_credentials(rule: Rule) -> Rule:
    """`Basic dXNlcjpwYXNz` only where the word decodes to `user:password`: "basic authentication" is harmless."""

    def replace(match: re.Match[str]) -> str:
        try:
            decoded = b64decode(match["secret"], validate=True)
        except ValueError:  # no base64; or a letter that is one only to a pattern that ignores case, as a long s
            return match[0]
        return rule.replace(match) if b":" in decoded else match[0]

    return rule._replace(replace=replace)


# Secrets known by a word before them, in any case. They come last: a token with a form of its own is named by its
# vendor.
NAMED: tuple[Rule, ...] = (
    form_rule("bearer_token", "bearer", r"\bbearer\s+(?P<secret>(?=[\w.~+/-]*[\d._~+/])[\w.~+/-]{12,}=*)", folded=True),
    _basic_credentials(form_rule("basic_auth", "basic", r"\bbasic\s+(?P<secret>[a-z0-9+/]{8,}={0,2})", folded=True)),
    form_rule(
        "cookie",
        "cookie",
        r"\bcookie[\"']?: ?[\"']?[\w.-]{1,64}=(?P<secret>(?!\[redacted:)[^\r\n\"']{8,})",
        folded=True,
    ),
    form_rule(
        "auth_header",
        "authoriza",
        r"\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:[a-z][a-z-]{2,20}\s+)?"
        r"(?P<secret>(?=[\w.~+/=:-]*\d)(?!\[redacted:)[\w.~+/=:-]{12,})",
        folded=True,
    ),
    *_named("aws_secret_key", "key", r"secret[_-]?access[_-]?key"),
    *_named("azure_key", "key", r"account[_-]?key|shared[_-]?access[_-]?key"),
    *_named("password", "pass|pwd", PASSWORDS, password=True),
    *_named("secret", "secret|token|key|signat|cred|auth", KEYS),
)
