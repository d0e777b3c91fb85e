"""Mask values with a secret's name: `password=`, `"api_key": "..."`, `--token x`, `Bearer x`.

Failure patterns are mined from texts such as "Unexpected token: <", so only what can be a secret is masked
(`is_secret`).
"""

import re
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

__all__ = ["REDACTED"]

Replace = Callable[[re.Match[str]], str]


class Rule(NamedTuple):
    kind: str
    needles: tuple[str, ...]  # every match contains one; the search uses the last four
    # characters, so these should be rare
    pattern: re.Pattern[str]
    replace: Replace
    # Without this match of the folded text there is no secret.
    named: re.Pattern[str] | None = None


REDACTED = "[redacted:"


def mask_of(kind: str) -> str:
    return f"{REDACTED}{kind}]"


def _masked_group(match: re.Match[str], group: str | int, mask: str) -> str:
    text, start, end = match[0], match.start(group) - match.start(), match.end(group) - match.start()
    return text[:start] + mask + text[end:]


_Secret = Callable[[re.Match[str]], str]


def form_rule(
    kind: str, needles: str, pattern: str, named: str = "", *, folded: bool = False, secret: _Secret | None = None
) -> Rule:
    """Make a rule that masks the group `secret`, or the whole match. `secret`: returns that of a match, or ""."""
    # A key may stand right behind a letter of another script.
    compiled, mask = re.compile(pattern, re.IGNORECASE if folded else re.ASCII), mask_of(kind)
    group = "secret" if "secret" in compiled.groupindex else 0

    def replace(match: re.Match[str]) -> str:
        if secret is None:
            return _masked_group(match, group, mask)
        found = secret(match)
        return match[0].replace(found, mask) if found else match[0]

    return Rule(kind, tuple(needles.split("|")), compiled, replace, re.compile(named) if named else None)


# Suffixes, as in `password_new`.
AGAIN_WORDS = (
    "again", "confirm", "repeat", "new", "old", "value", "string", "str", "raw", "text", "b64", "base64", "base",
)  # fmt: skip
_AGAIN = rf"(?:[_-]?(?:[0-9]{{1,2}}|confirmation|{'|'.join(AGAIN_WORDS)}))?"
# "Password" in Russian, Chinese (three words), Polish, Japanese, Korean, Arabic and Turkish.
FOREIGN = (
    "\u043f\u0430\u0440\u043e\u043b\u044c", "\u5bc6\u7801", "\u5bc6\u78bc", "\u53e3\u4ee4", "has\u0142o",
    "\u30d1\u30b9\u30ef\u30fc\u30c9", "\ube44\ubc00\ubc88\ud638",
    "\u0643\u0644\u0645\u0629 \u0627\u0644\u0645\u0631\u0648\u0631", "\u015fifre",
)  # fmt: skip
PASSWORDS = (
    r"(?:passwords?|passwd|passphrase|passcode|passwort|kennwort|pwd|contrase\u00f1a|senha|mot[_ ]?de[_ ]?passe"
    rf"|wachtwoord|{'|'.join(FOREIGN)}"
    rf"|(?:(?<![a-z])(?:db|user|root|admin|smtp|ftp)?(?:pass|pw)|bindpw)(?![a-z])){_AGAIN}"
)
_AUTH = "(?<![a-z])_?auth"
KEYS = (
    r"(?:secret_?id|secrets?|tokens?|x-[a-z-]{1,40}key|api[_ -]?key|access[_-]?key|secret[_-]?key|private[_-]?key"
    r"|encryption[_-]?key|signing[_-]?key"
    rf"|auth[_-]?key|license[_-]?key|master[_-]?key|app[_-]?key|service[_-]?key"
    rf"|client[_-]?key|consumer[_-]?key|account[_-]?key|x-(?:amz|goog)-signature|credentials?|creds|{_AUTH}){_AGAIN}"
)
_VALUE = (
    r"""(?:(?:(?<![a-z0-9_])[rbf@$]{0,2}(?=["'`]))?"""
    r"""(?:(?P<triple>\"{3}|'{3})(?P<long>(?s:.){3,400}?)(?P=triple)|`(?P<tick>[^`\n]*)`"""
    r"""|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<quote>\\+["'])(?P<escaped>[^\n]*?)(?P=quote)"""
    r"""|(?P<bare>(?:[^\s"'`,;&\\]|,(?=[^\s"',;&])|&(?![\w.-]{1,40}=|gt;|lt;))+)))"""
)
# Placeholders for secrets.
_FILLERS = (
    "none null nil true false undefined unset empty required missing invalid incorrect wrong expired denied optional "
    "str string bytes text int bool object any password passwd secret token key value rejected failed mismatch unknown "
    "default prompt ask file env vault hidden masked"
)
_NOT_SECRET = frozenset(_FILLERS.split())
_PLACEHOLDER = re.compile(
    r"\$\{|\$\(|\{\{|%[(s]|\[redacted:\w+\]\W*\Z"
    r"|\d{1,3}(?:[_,]\d{3})+\W*\Z|\$[A-Z_][A-Z0-9_]*\Z|<[^>]*>?\Z|[*•.xX]+\Z|\{\w*\}\Z|[~.]*+(?:/[\w.~-]++){2,}/?\Z"
)
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]|(?:os|env|process|self|cfg|config|settings|args|request|ctx)\.|<")
NAME_IN_A_LIST = re.compile(r"[a-z]+(?:[_-][a-z\d]+)+|[\w-]+:")
FOLDER = re.compile(r"[~/]|[A-Za-z]:")


@lru_cache(maxsize=1024)
def is_secret(value: str, *, password: bool, bare: bool = False, prose: bool = False) -> bool:
    """Whether a value after a secret's name can be one: any word for a password.

    A token or key has at least eight characters, no blank, and a digit or mixed case. `bare`: unquoted, maybe code.
    `prose`: a bare word after a colon, before words.
    """
    value = value.strip()
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
    mask = mask_of(kind)

    def replace(match: re.Match[str]) -> str:
        form = match.lastgroup or "bare"
        value = match[form]
        bare = form == "bare"
        prose = (
            bare
            and match["sign"] in (":", "\uff1a", "->", "\u2192")
            and match.string[match.end() : match.end() + 1] not in ("", "\n", "\r")
        )
        if match["name"].lower() == "pwd" and FOLDER.match(value):
            return match[0]  # the shell's working directory
        if match.groupdict().get("item") and NAME_IN_A_LIST.fullmatch(value):
            return match[0]
        if not is_secret(value, password=password, bare=bare, prose=prose):
            return match[0]
        return _masked_group(match, form, mask)

    # `/etc/passwd: Permission denied` is a very common error.
    sign = (
        r"""\\*+["'`]?(?:(?<=["'`])[\])]|(?:\]|%5d)(?==\S))?(?:\s{1,4}(?:value|for\s[\w.@-]{1,40}(?=:))"""
        r"""|\s{0,4}:\s{0,4}(?:string|str|secretstr|bytes|&str|any|text)(?=\s{0,4}=)"""
        r"""|\\*+["']\s{0,4},\s{0,4}\\*+["'](?:value|val|default)\\*+["']"""
        r"""|\s{1,4}(?:string|str|text|varchar|char\s?\*)(?=\s{0,4}:?=))?"""
        r"""(?:\*\*)?\s{0,4}(?P<sign>===?|:{1,3}=|=>|<-|(?<=\s)->(?=\s)|\u2192|(?:[.?+]|\?\?|\|\|)=|[:=\uff1a])"""
        r"""(?:\*\*)?\s{0,4}"""
        # A key or a list within, a YAML tag or anchor, a YAML block, or a call that converts the value to text.
        r"""(?:\{\s{0,8}\\*+["'](?:value|current|new|old|plain|data|text)\\*+["']\s{0,4}:\s{0,4}"""
        r"""|(?:(?P<item>-)|value:)\s{1,4})?(?:(?:!!?|&)\w{1,12}\s{1,4})?(?:[|>][+-]?\s{1,40})?"""
        r"""(?:(?:String::from|SecretStr|quote|str|bytes)\(\s{0,2})?"""
    )
    assignment = re.compile(rf"(?<![/\\])(?P<name>{names}){sign}{_VALUE}", re.IGNORECASE)
    option = re.compile(
        rf"(?<![\w-])--?(?:[a-z0-9]+-)*(?P<name>{names})(?P<sign>[ =]+|\\*+[\"'],\s{{0,2}}(?=\\*+[\"']))(?!-){_VALUE}",
        re.IGNORECASE,
    )
    # A literal first letter doubles the speed.
    named = re.compile(rf"(?:{names.replace(_AUTH, 'auth')}){sign}")
    words = tuple(needles.split("|"))
    return (Rule(kind, words, assignment, replace, named), Rule(kind, words, option, replace))


def _basic_credentials(match: re.Match[str]) -> str:
    """`Basic dXNlcjpwYXNz`, if it decodes to `user:password`"""
    try:
        return match["secret"] if b":" in b64decode(match["secret"], validate=True) else ""
    except ValueError:  # not base64, or a letter such as a long s
        return ""


# Words between a secret's name and its value.
BETWEEN = "is|was|are|for|of|to|with|id|value|set|the|your|my|new|this|here|found|using|use|named|called|as|string|env"
_WORDS = "password|passwd|pwd|passphrase|secret|token|api_?-?key"
_PARTS = re.compile(r"[._/=+~:-]+")
_WORD_AND_NUMBER = re.compile(r"[A-Za-z]+\d{1,4}|\d+[A-Za-z]{1,3}|[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{0,4}")
_HASH = re.compile(r"[0-9a-fA-F-]+")


def _is_random(value: str, named: bool) -> bool:
    if _PLACEHOLDER.match(value) or (not named and _HASH.fullmatch(value)) or value.startswith(("/", "./", "~")):
        return False
    for part in _PARTS.split(value):
        if len(part) >= 8 and not part.isalpha() and not part.isdigit() and not _WORD_AND_NUMBER.fullmatch(part):
            return True
    return False


def _said(match: re.Match[str]) -> str:
    value = match["secret"].rstrip(".:=-")
    return value if _is_random(value, match["name"].lower() != "key") else ""


# `my password is …`, `das Passwort lautet …`, `Password — …`, `with password …`
TOLD = (
    r"(?:\s{0,4}(?:(?<![a-z])(?:is|was|lautet|ist|est|es|\u00e9|\u00e8"
    r"|to(?!\s{1,4}(?:[\w.+-]{1,64}@[\w-]{1,64}\.|argon2|bcrypt|pbkdf2|sha\d|md5))"
    r")(?![a-z]):?|\u662f|\u4e3a|\u2013|\u2014)\s{0,4}"
    r"|\s{1,8})"
    r"[\"'`*]{0,3}(?=[^\s\"'`]{0,64}\d)"
)
_TO = re.compile(r"\sto\s+\S+\Z", re.I)
_SETS = re.compile(r"\b(?:re)?(?:set|chang|updat)", re.I)


_TOLD = (
    r"(?:passwords?|passwd|passphrase|passwort|passe|bindpw|kennwort|contrase\u00f1a|senha|wachtwoord"
    rf"|{'|'.join(FOREIGN)}){TOLD}"
)


def _told(match: re.Match[str]) -> str:
    """Letters with digits among them, because words such as "required" follow a verb as well."""
    value = match["secret"].rstrip(".:!?*")
    if _TO.search(match[0]) and not _SETS.search(match.string, max(0, match.start() - 32), match.start()):
        return ""
    mixed = any(
        len(part) >= 6 and not part.isalpha() and not part.isdigit() and not _WORD_AND_NUMBER.fullmatch(part)
        for part in _PARTS.split(value)
    )
    return value if mixed and not _PLACEHOLDER.match(value) else ""


# `fastlyKey string = "…"`
OF_A_KEY = (
    r"\d?\\*+[\"']?(?:\s{1,2}string)?\s{0,2}(?::=|=>?|:)\s{0,2}(?:\\*+[\"'])?"
    r"(?=[\w+.=?-]{0,60}\d)"
)
_FINDS = re.compile(
    r"(?:cache|primary|foreign|partition|idempotency|sort|row|object|storage|s3|unique|rout(?:e|ing)|group|hash|etag"
    r"|dedup|index|lookup|event|message|file|image|blob|map|lock|session|request|trace|query|shard|bucket|range|item"
    r"|record|node|state|public|pub)[_-]?\Z",
    re.I,
)
_LONG_KEY = 32


def _own_key(match: re.Match[str]) -> str:
    """No id: mixed case with digits, or as long as a hash unless the key only identifies."""
    value, start = match["secret"], match.start()
    mixed, long = not (value.islower() or value.isupper()), len(value) >= _LONG_KEY
    finds = _FINDS.search(match.string[max(0, start - 16) : start])
    return value if not finds and (mixed or long) and _is_random(value, long) else ""


_ATTRIBUTE = r"\s[\w:-]{1,40}=\\*+[\"'][^<>\"'\n]{0,80}[\"']"
_OPENING = (
    rf"(?:{_WORDS})(?:[\w-]{{0,20}}(?P<quote>\\*+[\"'])?(?:{_ATTRIBUTE}){{0,4}}\s{{0,4}}(?:>|&gt;)"
    r"|(?P<label>:?\s{0,4}</(?:td|th|dt|key|label|name)>)\s{0,40}"
    rf"<(?:td|dd|string|value)(?:{_ATTRIBUTE}){{0,4}}>)"
)
_NAMES_A_VALUE = re.compile(r"<(?!(?:label|a|button)\b)[\w:.-]{1,40}\s(?:key|name)=\\*+[\"'][\w.-]{0,40}\Z", re.I)


def _element(match: re.Match[str]) -> str:
    """`<password>…</password>`, also HTML-escaped, `<secret>{AQAA …}</secret>` of credential stores, and a label's
    neighbour, as in `<td>Password</td><td>…</td>`."""
    value = match["secret"].strip()
    if value[:1] in tuple("$%<*") or value[:2] == "{{" or not is_secret(value, password=True):
        return ""
    if match["quote"] and not _NAMES_A_VALUE.search(match.string, max(0, match.start() - 64), match.start()):
        return ""
    if (match["label"] or match["quote"]) and value.rstrip(".:*?!").isalpha():  # another label
        return ""
    is_several = " " in value or value[0] == "{"
    return "" if is_several and not any(_is_random(part, True) for part in value.strip("{}").split()) else value


_folded = partial(form_rule, folded=True)
# Last, so that a vendor's token keeps its vendor's kind.
NAMED: tuple[Rule, ...] = (
    _folded("bearer_token", "bearer", r"\bbearer\s+(?P<secret>(?=[A-Za-z-]{0,64}+[\d._~+/])[\w.~+/-]{12,}=*)"),
    _folded("basic_auth", "basic", r"\bbasic\s+(?P<secret>[a-z0-9+/]{8,}={0,2})", secret=_basic_credentials),
    _folded("cookie", "cookie", r"\bcookie[\"']?: ?[\"']?[\w.-]{1,64}=(?P<secret>(?!\[redacted:)[^\r\n\"']{8,})"),
    _folded(
        "auth_header",
        "authoriza",
        r"\bauthorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:[a-z][a-z-]{2,20}\s+)?"
        r"(?P<secret>(?=[A-Za-z_.~+/=:-]{0,64}+\d)(?!\[redacted:)[\w.~+/=:-]{12,})",
    ),
    *_named("aws_secret_key", "key", r"secret[_-]?access[_-]?key"),
    *_named("azure_key", "key", r"account[_-]?key|shared[_-]?access[_-]?key"),
    *_named("password", "|".join(("pass|pwd|pw|kennwort|senha|contrase|wachtwoo", *FOREIGN)), PASSWORDS, password=True),
    *_named("secret", "secret|token|key|signat|cred|auth", KEYS),
    _folded(
        "password",
        "pass|pwd|secret|token|key",
        rf"{_OPENING}\s{{0,8}}(?:<!\[CDATA\[)?(?P<secret>(?!\[redacted:)"
        r"(?:[^<>\n&]|&(?!lt;)){3,512}?)\s{0,8}(?:\]\]>\s{0,8})?(?:</|&lt;/)",
        named=_OPENING,
        secret=_element,
    ),
    _folded("secret", "key", rf"(?<=[a-z0-9_-])key{OF_A_KEY}(?P<secret>[\w+.=?-]{{22,512}})", secret=_own_key),
    _folded(  # encoded for a URL
        "password",
        "pass|pwd|secret|token|key",
        rf"(?:{_WORDS})(?:%22|%27|%20|\+){{0,4}}%(?:25){{0,2}}3[ad](?:%22|%27|%20|\+){{0,4}}"
        r"(?P<secret>(?!%|\[redacted:)(?:[\w.~!*-]|%(?!22|26|27|2C|7D|0A|0D)[0-9a-f]{2}){3,512})",
        named=rf"(?:{_WORDS})(?:%2|\+|%3)",
    ),
    _folded(  # SQL's `PASSWORD '…'`
        "password",
        "pass",
        r"(?<![\w-])(?:password|passwd|passphrase)\s{1,4}\\*+[\"']"
        r"(?P<secret>(?!\[redacted:|[$<{%*])[^\s\"'\\]{3,128})\\*+[\"']",
        named=r"pass(?:word|wd|phrase)\s",
    ),
    _folded(  # a field of `multipart/form-data`
        "password",
        "pass|pwd|secret|token|key",
        rf"(?:{_WORDS})\w{{0,10}}\\*+\"(?:\r\n|\\+r\\+n){{2}}(?P<secret>(?!\[redacted:|--)[^\r\n\\]{{3,512}})",
        named=rf"(?:{_WORDS})\w{{0,10}}\\*+\"[\r\\]",
    ),
    _folded(  # `["password", "…"]`
        "password",
        "pass|pwd|secret|token|key",
        rf"(?:{_WORDS})\\*+\"\s{{0,4}},\s{{0,4}}"
        r"\\*+\"(?P<secret>(?!\[redacted:)(?=[^\"\\\d]{0,64}+\d)[^\"\\]{6,512})\\*+\"\s{0,4}\]",
        named=rf"(?:{_WORDS})\\*+\"\s{{0,4}},",
    ),
    _folded(
        "password",
        "|".join(("pass|pw|kennwort|senha|contrase|wachtwoo", *FOREIGN)),
        rf"{_TOLD}(?P<secret>(?!\[redacted:)[^\s\"'`<>()\[\]{{}},;]{{6,128}})",
        named=_TOLD,
        secret=_told,
    ),
    _folded(
        "secret",
        "secret|token|pass|cred|key",
        r"(?P<name>secret|token|password|passwd|passphrase|credential|api[_ -]?key|access[_-]key|(?<![a-z])key)s?(?!\])"
        rf"(?:[\s:=>,\"'`(\[{{<|*\u2013\u2014\u2192-]|\\[nrt\"']|(?:{BETWEEN})(?![a-z]))"
        r"{1,16}+(?P<secret>(?=[\w.+/~-]{0,64}\d)[\w.+/~-][\w.+/=~:-]{15,512}"
        # Quoted values may have other characters, but not those of code.
        r"|(?<=[\"'`])(?=[^\s\"'`]{0,64}\d)[^\s\"'`<>()\[\]{},;\\]{16,512}(?=[\"'`\\]))",
        named=r"secret|token|pass(?:word|wd|phrase)|credential|api[_ -]?key|access[_-]key|(?<![a-z])key",
        secret=_said,
    ),
)
