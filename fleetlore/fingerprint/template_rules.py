"""List what is masked in an error text.

Instances are masked by their form (paths, files, hosts, addresses, ids, times, numbers) or by their position.
"""

import re
from collections.abc import Callable

MASK = "<*>"

# Each rule: texts (lower case), one of which any match contains; the pattern; the replacement.
# If a pattern begins with `^`, so do all of its alternatives.
# Testing for a word costs a hundredth of a vain search.
Rule = tuple[tuple[str, ...], re.Pattern[str], "str | Callable[[re.Match[str]], str]"]

_EXTENSIONS = (
    "txt|csv|tsv|json|jsonl|ya?ml|toml|ini|cfg|conf|env|log|md|rst|html?|xml|css|js|mjs|cjs|jsx|tsx?|py|pyc|ipynb|"
    "rb|php|go|rs|java|class|jar|war|kt|c|h|cc|cpp|cxx|hpp|o|a|exe|sh|bat|ps1|mk|tf|sql|db|sqlite3?|parquet|xlsx?|"
    "mod|sum|docx?|pdf|png|jpe?g|gif|svg|zip|tar|gz|tgz|bz2|xz|7z|whl|deb|rpm|iso|img|qcow2|pem|crt|key|lock|pid|sock|"
    "tmp|bak|dump|lua|scala|swift|proto|gradle|service|cs|csproj|fs|vb|sln|dart|exs?|erl|pl|r|vue|scss|less|mp[34]|mkv|"
    "mov|avi|wav|webm|flac|npy|npz|pth?|ckpt|h5|pkl|onnx|gguf|safetensors|bin|dat|orc|avro|feather|arrow|eml|ics|"
    "pptx?|od[ts]|rtf|epub|tex|bib"
)
_TOP_LEVEL = "com|org|net|io|edu|gov|local|localdomain|internal|example|lan|corp|cloud|invalid|intranet"
_DIGITS = tuple("0123456789")
_ID_PREFIX = re.compile(
    r"(?:req|request|org|usr|user|cus|sub|txn?|run|job|task|msg|call|thread|sess|session|trace|span|id|tok|ch|pi|evt|"
    r"file|asst|chatcmpl|batch|ord|order|inv|acct|proj|i|ami|vol|sg|subnet|vpc)[_-](?=\w*\d)[\w-]{5,}"
)
_ID = re.compile(
    r"(?:[A-Za-z]+_)?(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,}"  # hex digits
    r"|[\w-]*?(?:[A-Za-z]+\d+){2,}[A-Za-z]+\d*[\w-]*|\d+[A-Za-z]+\d+[A-Za-z]+\w*"  # letters and digits in turn
    r"|\d+(?:x\d+)+|(?=\w*[a-z])(?=\w*[A-Z])\d\w{11,}"  # dimensions; a long mixture
)
_MANY_DIGITS = re.compile(
    r"[A-Za-z]+\d{3,}|[A-Za-z][A-Za-z_-]*\d{4,}"
    r"|(?!UTF|ISO|SHA|AES|TLS)[A-Z]{2,}-\d+|(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6,}"  # an issue's key, a booking's code
)
_CODE_BEFORE = re.compile(
    r"(?:\b|_)(?:status|(?:exit|return|status|error)?code|errno|winerror|exit(?:ed)?|rc|http|error|signal)\b"
    r"[^\w\n]{0,3}(?:code |status )?$",
    re.I,
)
# Every match of `_CODE_BEFORE` holds one of these.
_CODE_WORD = re.compile("code|status|err|exit|rc|http|signal", re.I)
_MAX_CODE_DIGITS = 6
_STATUS = re.compile(r"[1-5]\d\d|-\d{1,3}")
# Words whose number is part of the name: ORA-00942, utf-8, sha-256; but not worker-2.
_NAME_BEFORE = re.compile(r"(?:\b[A-Z]{2,}|\b(?:utf|iso|sha|aes|gpt|tls|x86))-$")


def _token(match: re.Match[str]) -> str:
    """Mask an id; keep a word that merely holds a digit (`utf-8`, `E0382`, `sha256`)."""
    token, text = match.group(), match.string
    if _ID_PREFIX.fullmatch(token) or _ID.fullmatch(token):
        return MASK
    # A code is kept in its usual positions: at the start, before a colon or a bracket (`ORA-00942:`, `error TS2304:`,
    # `E0382]`).
    before, behind = text[max(0, match.start() - 6) : match.start()], text[match.end() : match.end() + 1]
    if (
        behind in (":", "]")
        or before[-1:] not in (" ", "'", '"', "`", "(", "#")
        or before.lower().endswith(("error ", "code "))
    ):
        return token
    return MASK if _MANY_DIGITS.fullmatch(token) else token


def _number(match: re.Match[str]) -> str:
    """A number is kept where it is a code, and masked where it is a quantity."""
    number, start = match.group(), match.start()
    before = match.string[max(0, start - 20) : start]
    # At the start stands the code of an answer: `550 5.1.1 …`, `404 Not Found`; or of a program's end: `-9: …`.
    # Texts of numbers ask a thousand times, and without a letter there is no code or name.
    if start and before.lower() == before.upper() and match.string[match.end() : match.end() + 1] != " ":
        return MASK
    may_be_code = _CODE_WORD.search(before) is not None
    coded = (may_be_code and bool(_CODE_BEFORE.search(before))) or (not start and bool(_STATUS.fullmatch(number)))
    named = before[-1:] == "-" and bool(_NAME_BEFORE.search(before))
    said = match.string.startswith((" Client Error", " Server Error"), match.end())
    return number if (coded and len(number) <= _MAX_CODE_DIGITS) or named or said else MASK


# The forms of instances. Longer forms come first, so that no part is masked separately.
LOOKS: tuple[Rule, ...] = (
    (("://",), re.compile(r"\b[a-z][a-z0-9+.-]{0,31}://[^\s'\"<>)\]`]+", re.I), MASK),
    (
        ("s/",),
        re.compile(r"\b(?:projects|subscriptions|namespaces|organizations|folders|buckets|users|repos|orgs)/[\w.@-]+"),
        MASK,
    ),
    (("[",), re.compile(r"\[(?:'[^']*'|\"[^\"]*\")(?:, ?(?:'[^']*'|\"[^\"]*\")){2,}\]"), MASK),
    (("</",), re.compile(r"<[a-z]\w*(?:\s[^<>]*)?>.*?</\w+>"), MASK),
    (("@",), re.compile(r"'[^'\s]*'@'[^'\s]*'|(?<![\w@/])[\w.+-]+@[\w-]+(?:\.[\w-]+)*(?::[\w./-]+)?"), MASK),
    (("arn:",), re.compile(r"\barn:aws[\w-]*:[^\s'\"<>)\]`,]+"), MASK),
    (("-",), re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I), MASK),
    (("-",), re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), MASK),
    ((":",), re.compile(r"\d(?<=\b\d)\d?:\d\d(?::\d\d(?:\.\d+)?)?\b(?!:)"), MASK),
    (("::",), re.compile(r"(?<![\w:])::[\w:.]*"), MASK),
    ((".",), re.compile(r"\d(?<=\b\d)\d{0,2}(?:\.\d{1,3}){3}(?::\d+|/\d+)?\b"), MASK),
    (("localhost",), re.compile(r"\blocalhost(?::\d+)?\b", re.I), MASK),
    (("0x",), re.compile(r"\b0x[0-9a-f]+\b", re.I), MASK),
    ((":\\",), re.compile(r"\b[A-Za-z]:\\+(?:[\w.-]+(?: [\w.-]+)*\\+)*[\w.-]*"), MASK),
    # Files, with the line and column that follow them.
    (("/",), re.compile(r"(?<![\w<*.~-])(?:~|\.{1,2})?(?:/[\w.@+*?=&%,-]+)+/?(?::\d+)*"), MASK),
    (("/",), re.compile(r"\b[\w-]++(?:/[\w.@+*-]++){2,}/?(?::\d+)*"), MASK),
    (
        (".",),
        re.compile(
            r"(?<![\w<*./@+-])(?<!fatal error: )(?=[\w@+/-]*+\.)(?:[\w.@+-]{1,100}/)*[\w@+-][\w.@+-]{0,100}"
            rf"\.(?:{_EXTENSIONS})(?::\d+)*(?:\(\d+(?:,\d+)?\))?(?![\w(])"
        ),
        MASK,
    ),
    ((".",), re.compile(rf"\b(?<![\w-]\.)(?:[\w-]++\.)+(?:{_TOP_LEVEL})\b(?!\.\w)(?::\d+)?", re.I), MASK),
    (_DIGITS, re.compile(r"\d(?<![\w.-].)\d*(?:\.\d+)?(?:ms|[dhms])\b"), MASK),
    (_DIGITS, re.compile(r"(?<![\w-])(?:[A-Za-z_-]++\d[\w-]*|\d++[A-Za-z_-][\w-]*)"), _token),
    (
        _DIGITS,
        re.compile(
            r"[-\d](?<![\w.].)(?:(?<=\d)|\d)\d*(?:[.,]\d+)*"
            r"(?: ?(?:[kKMGT]i?[bB]|bytes?|ms|milliseconds?|[µu]s|ns|s|secs?|seconds?|mins?|"
            r"minutes?|"
            r"hours?|days?|tokens|%)\b)?(?!\w)"
        ),
        _number,
    ),
)


QUOTED = r"(?:'[^']*'|\"[^\"]*\"|`[^`']*[`']|‘[^’]*’|“[^”]*”)"
_SYSTEM = (
    "no such file or directory",
    "permission denied",
    "is a directory",
    "not a directory",
    "file exists",
    "directory not empty",
    "resource busy",
    "file busy",
    "operation not permitted",
    "read-only file system",
    "no space left on device",
    "cannot open",
    "file name too long",
    "too many open files",
    "input/output error",
    "cannot execute",
    "bad interpreter",
)
SYSTEM_SAYS = "(?:device or |text )?(?:" + "|".join(_SYSTEM) + ")"


_NAMED_BARE = frozenset(
    {"branch", "bucket", "cluster", "container", "image", "instance", "namespace", "network", "node", "pod", "volume"}
)
_NUMBERED = ("reservation", "booking", "order", "ticket", "flight", "invoice", "case", "customer", "item")

# The positions of instances.
PLACES: tuple[Rule, ...] = (
    # A file's name comes before or after a file system's message.
    (
        _SYSTEM,
        re.compile(
            rf"(?<=[\s:])(?<!fatal error: )(?:{QUOTED}|[^\s:,'\"`‘]+)(?=: {SYSTEM_SAYS}\b(?! shared))(?<!cannot "
            rf"open)(?<!error)",
            re.I,
        ),
        MASK,
    ),
    (_SYSTEM, re.compile(rf"({SYSTEM_SAYS}(?:, \w+|:)) {QUOTED}?", re.I), rf"\1 {MASK}"),
    (
        ("o such ",),
        re.compile(
            r"(no such (?:container|image|volume|network|object|user|group|service|task|host|device|process|instance): "
            r")\S+",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    # The kind of one of many things, and its bare name.
    (
        tuple(sorted(_NAMED_BARE)),
        re.compile(
            rf"\b((?:{'|'.join(sorted(_NAMED_BARE))}) )(?!(?:is|was|has|does|not|name|and|or|id)\b)[\w./:@-]+"
            r"(?= (?:not found|does not exist|doesn't exist|already exists|has no|is not|was not|is in|is already|in |"
            r"cannot|could not))",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    (
        ("in ",),
        re.compile(
            r"(\bin (?:pod|namespace|container|cluster|project|region|zone|location|bucket) )[\w./-]+(?:\([^()]*\))?",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    ((" is not ",), re.compile(rf"{QUOTED}(?= is not (?:a valid|one of|in (?!this registry)|an? ))"), MASK),
    (("resolve host",), re.compile(r"(resolve host(?:name)?:? )[\w.-]+", re.I), rf"\1{MASK}"),
    (("provided: ",), re.compile(r"(\bprovided: )\S+"), rf"\1{MASK}"),
    (("invalid ",), re.compile(r"(\binvalid [\w ]{1,30}: )\S+$", re.I), rf"\1{MASK}"),
    # Expected, actual and unconvertible values, positions of a parser, and searched texts.
    (
        ("expected",),
        re.compile(r"(\bexpected:?) .+?(,? (?:but )?(?:got|received|found|was|actual)\b:?) .+", re.I),
        rf"\1 {MASK}\2 {MASK}",
    ),
    (
        ("literal", "convert", "parse", "input", "invalid "),
        re.compile(
            r"(\b(?:literal|convert|parse|input(?! validation)|invalid (?:value|date|number|format))\b[^'\"]*: ?)"
            r"['\"].*",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    (("near ",), re.compile(r"(\bnear )(?=\W).*", re.I), rf"\1{MASK}"),
    ((": `",), re.compile(r"(?<=: )`.* .*'$"), MASK),
    (("find [",), re.compile(r"(\bfind )\[.*", re.I), rf"\1{MASK}"),
    # A command that was run: only its exit counts.
    (
        ("command",),
        re.compile(r"(\bcommand )['\"`\[].*['\"`\]](?= (?:returned|failed|exited|timed out|died))", re.I),
        rf"\1{MASK}",
    ),
    # Words of single tools. Codes of curl replace its varying words, but for those on certificates and HTTP statuses.
    (("curl: (",), re.compile(r"(curl): \((?!60\))(\d+)\) (?!The requested URL).*"), r"\1 code \2"),
    ((" -> ",), re.compile(r"(?<!\S)\S+\s+-> +\S+"), MASK),
    (("conflict (",), re.compile(r"(?<=\bin )\S+?(?=\.? )|(?<=\bversion )\S+(?= of )", re.I), MASK),
    (
        tuple(f"{each} " for each in _NUMBERED),
        re.compile(rf"\b((?:{'|'.join(_NUMBERED)}) )#?[A-Z0-9]{{5,}}\b"),
        rf"\1{MASK}",
    ),
    (("sudoers",), re.compile(r"^\S+(?= is not in the sudoers)"), MASK),
    (("process ",), re.compile(r"(?<=process )\d+ \([^()]*\)", re.I), MASK),
    (("manifest for", "denied for"), re.compile(r"((?:manifest|access denied) for )[^\s,]+", re.I), rf"\1{MASK}"),
)
