"""List what is masked in an error text, and which lines frame it.

Instances are masked by their form (`LOOKS`) or their position (`PLACES`).
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

MASK = "<*>"

# Each rule holds lower-case texts, a pattern and its replacement. Any match contains one of the texts.
# If a pattern begins with `^`, so do all of its alternatives.
# Testing for a word costs a hundredth of a vain search.
Rule = tuple[tuple[str, ...], re.Pattern[str], "str | Callable[[re.Match[str]], str]"]

_EXTENSIONS = (
    "txt|csv|tsv|json|jsonl|ya?ml|toml|ini|cfg|conf|env|log|md|rst|html?|xml|css|js|mjs|cjs|jsx|tsx?|py|pyc|ipynb|"
    "rb|php|go|rs|java|class|jar|war|kt|c|h|cc|cpp|cxx|hpp|o|a|exe|sh|bat|ps1|mk|tf|sql|db|sqlite3?|parquet|xlsx?|"
    "sum|hcl|tfvars|docx?|pdf|png|jpe?g|gif|svg|zip|tar|gz|tgz|bz2|xz|7z|whl|deb|rpm|iso|img|qcow2|pem|crt|key|"
    "lock|pid|sock|tmp|bak|dump|lua|scala|swift|gradle|service|cs|csproj|fs|vb|sln|dart|exs?|erl|pl|r|vue|scss|"
    "less|mp[34]|mkv|hs|mli?|clj|zig|jl|kts|sol|elm|svelte|astro|"
    "mov|avi|wav|webm|flac|npy|npz|pth?|ckpt|h5|pkl|onnx|gguf|safetensors|bin|dat|orc|avro|feather|arrow|eml|ics|"
    "pptx?|od[ts]|rtf|epub|tex|bib"
)
_TOP_LEVEL = "com|org|net|io|edu|gov|local|localdomain|internal|example|lan|corp|cloud|invalid|intranet"
_DIGITS = tuple("0123456789")
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_ID_PREFIX = re.compile(
    r"(?:req|request|org|usr|user|cus|sub|txn?|run|job|task|msg|call|thread|sess|session|trace|span|id|tok|ch|pi|evt|"
    r"file|asst|chatcmpl|batch|ord|order|inv|acct|proj|i|ami|vol|sg|subnet|vpc)[_-](?=\w*\d)[\w-]{5,}"
)
_ID = re.compile(
    r"(?:[A-Za-z]+_)?(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,}"  # hex digits
    r"|[\w-]*?(?:[A-Za-z]+\d+){2,}[A-Za-z]+\d*[\w-]*|\d+[A-Za-z]+\d+[A-Za-z]+\w*"  # letters and digits in turn
    r"|\d+(?:x\d+)+|\d+(?:st|nd|rd|th)|(?=\w*[a-z])(?=\w*[A-Z])\d\w{11,}"  # dimensions; a long mixture
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
_STATUS = re.compile(r"[45]\d\d|-\d{1,3}")
# Words whose number is part of the name: ORA-00942, utf-8, sha-256; but not worker-2.
_NAME_BEFORE = re.compile(r"(?:\b[A-Z]{2,}|\b(?:utf|iso|sha|aes|gpt|tls|x86))-$")


def _token(match: re.Match[str]) -> str:
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
    number, start = match.group(), match.start()
    before = match.string[max(0, start - 20) : start]
    # At the start stands the code of an answer: `550 5.1.1 …`, `404 Not Found`; or of a program's end: `-9: …`.
    # Without a letter there is no code or name.
    if start and before.lower() == before.upper() and match.string[match.end() : match.end() + 1] != " ":
        return MASK
    may_be_code = _CODE_WORD.search(before) is not None
    coded = (may_be_code and bool(_CODE_BEFORE.search(before))) or (not start and bool(_STATUS.fullmatch(number)))
    named = before[-1:] == "-" and bool(_NAME_BEFORE.search(before))
    said = match.string.startswith((" Client Error", " Server Error"), match.end())
    return number if (coded and len(number) <= _MAX_CODE_DIGITS) or named or said else MASK


# Longer forms come first, so that no part is masked separately.
LOOKS: tuple[Rule, ...] = (
    (("://",), re.compile(r"\b[a-z][a-z0-9+.-]{0,31}://[^\s'\"<>)\]`]+", re.I), MASK),
    (("s/",), re.compile(r"\b(?:projects|subscriptions|namespaces|organizations|folders|buckets|users|repos"
     r"|orgs)/[\w.@-]+"), MASK),
    (("[",), re.compile(r"\[(?:'[^']*'|\"[^\"]*\")(?:, ?(?:'[^']*'|\"[^\"]*\")){2,}\]"), MASK),
    (("</",), re.compile(r"<[a-z]\w*(?:\s[^<>]*)?>.*?</\w+>"), MASK),
    (("@",),
     re.compile(r"(['\"])[^'\"\s]*\1@\1[^'\"\s]*\1|(?<![\w@/])[\w.+-]+@[\w-]+(?:\.[\w-]+)*(?::[\w./-]+)?"), MASK),
    (("arn:",), re.compile(r"\barn:aws[\w-]*:[^\s'\"<>)\]`,]+"), MASK),
    (("-",), re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I), MASK),
    (("-",), re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), MASK),
    ((":",), re.compile(r"\d(?<=\b\d)\d?:\d\d(?::\d\d(?:\.\d+)?)?\b(?!:)"), MASK),
    (("::",), re.compile(r"(?<![\w:])(?:(?=[a-f:]*\d)[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*+)?::[\w:.]*"), MASK),
    ((".",), re.compile(r"\d(?<=\b\d)\d{0,2}(?:\.\d{1,3}){3}(?::\d+|/\d+)?\b"), MASK),
    (("localhost",), re.compile(r"\blocalhost(?::\d+)?\b", re.I), MASK),
    (("0x",), re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>|\b0x[0-9a-f]+\b", re.I), MASK),
    (("\\",), re.compile(r"\b(?:[A-Za-z]:\\+(?:[\w.-]+(?: [\w.-]+)*\\+)*[\w.-]*"
     rf"|(?:[\w.-]++\\+)++[\w-]+\.(?:{_EXTENSIONS})\b)"), MASK),
    # Files, with the line and column that follow them.
    (("/",), re.compile(r"(?<![\w<*.~-])(?:~|\.{1,2})?(?:/[\w.@+*?=&%,-]+)+(?<!,)/?(?::\d+)*"), MASK),
    (("/",), re.compile(r"\b[\w-]++(?:/[\w.@+*-]++){2,}(?<!\.proto)/?(?::\d+)*"), MASK),
    ((".",), re.compile(r"(?<![\w<*./@+-])(?<!fatal error: )(?<!fatal error: ')(?=[\w@+/-]*+\.)"
     rf"(?:[\w.@+-]{{1,100}}/)*[\w@+-][\w.@+-]{{0,100}}\.(?:{_EXTENSIONS})"
     r"(?::\d+(?:,\d+-\d+)?)*(?:\(\d+(?:,\d+)?\))?(?![\w(])"), MASK),
    ((".",), re.compile(rf"\b(?<![\w-]\.)(?:[\w-]++\.)+(?:{_TOP_LEVEL})\b(?!\.\w)(?::\d+)?", re.I), MASK),
    ((" 20", " 19"),
     re.compile(rf"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(?:\d{{1,2}} {_MONTH}|{_MONTH} \d{{1,2}}),? \d{{4}}"
     r"(?:,?(?: at)? \d\d?:\d\d(?::\d\d)?)?(?: (?:[AP]M|GMT|UTC|[+-]\d{4}))?"), MASK),
    (_DIGITS, re.compile(r"\d(?<![\w.-].)[\d.]*(?:ms|[dhms])(?:\d[\d.]*(?:ms|[ms]))*\b"), MASK),
    (_DIGITS, re.compile(r"[v\d](?<![\w.-].)(?:(?<=v)\d+\.\d+|\d*\.\d+\.\d+)"
     r"(?:\.\d+)*(?:-(?:rc|alpha|beta|SNAPSHOT)[\w.]*)?(?![\w.]\w)"), MASK),
    (_DIGITS, re.compile(r"(?<![\w-])(?:[A-Za-z_-]++\d[\w-]*|\d++[A-Za-z_-][\w-]*)"), _token),
    (_DIGITS, re.compile(r"[-\d](?<![\w.].)(?:(?<=\d)|\d)\d*(?:[.,]\d+)*"
     r"(?: ?(?:[kKMGT]i?[bB]|bytes?|ms|milliseconds?|[µu]s|ns|s|secs?|seconds?|mins?|minutes?|"
     r"hours?|days?|tokens|%)\b)?(?!\w)"), _number),
)  # fmt: skip


QUOTED = r"(?:'[^']*'|\"[^\"]*\"|`[^`']*[`']|‘[^’]*’|“[^”]*”)"
_SYSTEM = (
    "no such file or directory", "permission denied", "is a directory", "not a directory", "file exists",
    "directory not empty", "resource busy", "file busy", "operation not permitted", "read-only file system",
    "no space left on device", "cannot open", "file name too long", "too many open files", "input/output error",
    "cannot execute", "bad interpreter",
)  # fmt: skip
SYSTEM_SAYS = "(?:device or |text )?(?:" + "|".join(_SYSTEM) + ")"


_NAMED_BARE = frozenset(
    {"branch", "bucket", "cluster", "container", "image", "instance", "namespace", "network", "node", "pod", "volume"}
)
_NUMBERED = ("reservation", "booking", "order", "ticket", "flight", "invoice", "case", "customer", "item")

PLACES: tuple[Rule, ...] = (
    # A file's name comes before or after a file system's message.
    (_SYSTEM,
     re.compile(rf"(?<=[\s:])(?<!fatal error: )(?:{QUOTED}|[^\s:,'\"`‘]+)(?=: {SYSTEM_SAYS}\b(?! shared))(?<!cannot "
     rf"open)(?<!error)", re.I), MASK),
    (_SYSTEM, re.compile(rf"({SYSTEM_SAYS}(?:, \w+|:)) {QUOTED}?", re.I), rf"\1 {MASK}"),
    (("o such ",),
     re.compile(r"(no such (?:container|image|volume|network|object|user|group|service|task|host|device|process"
     r"|instance): )\S+", re.I), rf"\1{MASK}"),
    (("ref ",), re.compile(r"(\bref )(?:f\d+)?e\d+\b", re.I), rf"\1{MASK}"),
    # A kind of Kubernetes with its group.
    (('" not found', '" already exists'),
     re.compile(r"\b([a-z]+)\.[a-z\d.-]+ \"[^\"]*\"(?= (?:not found|already exists))"), rf"\1 {MASK}"),
    # The kind of one of many things, and its bare name.
    (tuple(sorted(_NAMED_BARE)),
     re.compile(rf"\b((?:{'|'.join(sorted(_NAMED_BARE))}) )(?!(?:is|was|has|does|not|name|and|or|id)\b)[\w./:@-]+"
     r"(?= (?:not found|does not exist|doesn't exist|already exists|has no|is not|was not|is in|is already|in |"
     r"cannot|could not))", re.I), rf"\1{MASK}"),
    (("in ",), re.compile(r"(\bin (?:pod|namespace|container|cluster|project|region|zone|location|bucket|the test) )"
     r"(?:\"[^\"]*\"|[\w./-]+(?:\([^()]*\))?)", re.I), rf"\1{MASK}"),
    ((" is not ",), re.compile(rf"{QUOTED}(?= is not (?:a valid|one of|of type|in (?!this registry)|an? ))"), MASK),
    (("resolve host",), re.compile(r"(resolve host(?:name)?:? )[\w.-]+", re.I), rf"\1{MASK}"),
    (("provided: ",), re.compile(r"(\bprovided: )\S+"), rf"\1{MASK}"),
    (("invalid ",), re.compile(r"(\binvalid [\w ]{1,30}: )\S+$", re.I), rf"\1{MASK}"),
    # Values, positions of a parser, and searched texts.
    (("expected",), re.compile(r"(\bexpected:?) .+?(,? (?:but )?(?:got|received|found|was|actual)\b:?) "
     r".+", re.I), rf"\1 {MASK}\2 {MASK}"),
    (("literal", "convert", "parse", "input", "invalid "),
     re.compile(r"(\b(?:literal|convert|parse|input(?! validation)|invalid (?:value|date|number|format))\b[^'\"]*: ?)"
     r"['\"].*", re.I), rf"\1{MASK}"),
    (("near ",), re.compile(r"(\bnear )(?=\W).*", re.I), rf"\1{MASK}"),
    ((": `",), re.compile(r"(?<=: )`.* .*'$"), MASK),
    (("find [",), re.compile(r"(\bfind )\[.*", re.I), rf"\1{MASK}"),
    # A command that was run: only its exit counts.
    (("command",),
     re.compile(r"(\bcommand )['\"`\[].*['\"`\]](?= (?:returned|failed|exited|timed out|died))", re.I), rf"\1{MASK}"),
    # Codes of curl replace its varying words.
    (("curl: (",), re.compile(r"(curl): \((?!60\))(\d+)\) (?!The requested URL).*"), r"\1 code \2"),
    ((" -> ",), re.compile(r"(?<!\S)\S+\s+-> +\S+"), MASK),
    (("conflict (",), re.compile(r"(?<=\bin )\S+?(?=\.? )|(?<=\bversion )\S+(?= of )", re.I), MASK),
    (tuple(f"{each} " for each in _NUMBERED),
     re.compile(rf"\b((?:{'|'.join(_NUMBERED)}) )#?[A-Z0-9]{{5,}}\b"), rf"\1{MASK}"),
    (("sudoers",), re.compile(r"^\S+(?= is not in the sudoers)"), MASK),
    (("process ",), re.compile(r"(?<=process )\d+ \([^()]*\)", re.I), MASK),
    (("manifest for", "denied for"), re.compile(r"((?:manifest|access denied) for )[^\s,]+", re.I), rf"\1{MASK}"),
)  # fmt: skip


FrameKind = Literal["strip", "drop", "sums", "mark", "names", "raises", "cause", "join", "more", "field", "peel"]


class Frame(NamedTuple):
    """One kind of line.

    Attributes:
        kind: how a line that matches is read:
            `strip`: the match is removed from the line.
            `drop`: the line says nothing.
            `sums`: the line sums up what failed. The first one precedes all others.
            `mark`: the line behind the match names what failed. The first one precedes those below.
            `names`: the line names a failure. The first one counts.
            `raises`: the same, but the last one of a traceback counts.
            `cause`: the text behind the match, or the next line, caused the lines before.
            `join`: the line and the next name the failure. So does a line that ends with a colon, if it is one word, or
                a list or quoted name follows.
            `more`: a line below the failure's that continues its name.
            `peel`: the match is removed from the start of a text of several lines.
            `field`: a line below the failure's whose first group is the field that it is about.
        pattern: matched at the start of a line without its indentation.
        example: a text that is read differently without this row.
    """

    kind: FrameKind
    pattern: str
    example: str


FRAMES = tuple(
    Frame(*row)
    for row in (
        # Coding agents and shells.
        ("drop", r"(?:ERROR \S+ \S+ |Error: )?Exit (?:[Cc]ode|status):? -?\d+$", "Exit code 1\nboom"),
        ("drop", r"Chunk ID: \w+$|Wall time: [\d.]+ \w+$", "Chunk ID: 3f9c21\nboom"),
        ("drop", r"(?:\w+:? ){0,4}(?:exit(?:ed)?|failed)(?: with)?(?: exit)?(?: status| code):? -?\d+\W*$",
         "Process exited with code 127\nboom"),
        ("drop", r"\W*(?i:std(?:out|err)|(?:\w+ )?output|observation|errors?|details?)\W*$", "Output:\nboom"),
        ("drop", r"(?:[$>]|\++) \S|[A-Za-z]:\\\S*>\S", "$ jq .\nboom"),
        ("strip", r"(?:(?:McpError|MCP error -\d+): )*+(?:Input validation error: )?Invalid arguments for tool \S+: (?="
         r"\S)", "MCP error -32602: Invalid arguments for tool f: boom"),
        ("strip", r"\W*(?:(?i:stderr|observation)|remote|Output)\W*:\s+", "stderr: boom"),
        ("drop", r"(?:Command|Directory): |status code: \d+, request id|[A-Z][\w ]+: (?:\((?:none|empty|root)\)|\d+)$"
         r"|</?(?:returncode|output|metadata)\b|\[Below is the output|Command execut(?:ed|ion) ",
         "Error: (none)\nboom"),
        # Boxes, bullets and rules.
        ("strip", r"(?:\||(?!● .* › )[^\w\s\x00-\x7f])+[─>━═▶]*(?: |$)|[xX] (?=[A-Z])|`-> |\[!\] ", "│ boom"),
        ("drop", r"[\W_]+$", "=====\nboom"),
        # Loggers and build tools put these in front of a line.
        ("strip", r"\[?\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z| ?[+-]\d\d:?\d\d"
         r"| UTC)?(?:: [A-Z]+/\w+)?\]?:?(?:\s*+(?:[-|]\s*+)?(?:\[\d+\]|\[(?:ERROR|FATAL|CRITICAL|WARNING)\]|(?:ERROR"
         r"|FATAL|CRITICAL|WARNING)\b:?|[\w./-]+(?= +\[?(?:ERROR|FATAL|CRITICAL)\b)"
         r"|[\w.]+(?:::\w+)*(?::\w+)?(?::\d+)?(?= - )|\w+(?:(?:\.|::)\w+)+:)){0,4}(?:\s+[-|](?=\s))?\s+",
         "2026-01-02T03:04:05Z boom"),
        ("strip", r"[EWF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.-]+:\d+\] |[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ "
         r"[\w./-]+(?:\[\d+\])?: |time=\S+ level=\w+ (?:\w+=\S+ ){0,4}(?:msg|error)=\"", "Mar  4 10:11:12 a b: boom"),
        ("strip", r"[a-z][\w.-]*[_-]\d+ +\|(?: |$)|#\d+ (?:\d+\.\d+ |(?=ERROR))", "worker-1  | boom"),
        ("strip", r"\[(?:ERROR|FATAL|error)\]\s+|##\[error\]\s*|\[[a-z]\w*(?:\.\w+)+\]:\s+|(?:FATA|ERRO)\[\d+\] "
         r"|# (?=\S+ )|- (?=Error: )|(?:ui error: )?(?:==|--)> \S+: |\d+\) (?=[A-Z][a-z]* )", "[ERROR] boom"),
        ("strip", r"(?:(?:Error: )?Error while \w+ statement: )?(?:\w+\.)?(?:ERROR|FAILED|FATAL"
         r"|CRITICAL)(?: +\[[\w.]+\] |(?<=\.ERROR): |(?<=FAILED): |\t(?:Fatal error\t)?)", "FAILED: boom"),
        ("strip", r"(?:\{ )?\[(?=\w*Error(?: \[\w+\])?: )|\{ (?=\w*Error: )|\*\* (?=\([\w.]+Error\) )",
         "[Error: boom] {\n  errno: -2\n}"),
        ("strip", r"npm (?:ERR!|error)(?: |$)|(?:ERROR: )?(?:target \S+: )?failed to solve: |docker: (?=Error)",
         'npm ERR! Missing script: "x"'),
        ("strip", r"\[?\d?\d:\d\d:\d\d(?:[.,]\d+)?(?: [AP]M)?\]?:? +(?:\[[\w.-]+\] )?(?:(?:ERROR|FATAL|WARN)\b:? +"
         r"(?:- )?)?", "12:00:01  boom"),
        ("strip", r"\S+:\d+:in [`'][^`']*': ", "/w/a.rb:1:in `require': cannot load such file -- nokogiri"),
        ("strip", r"notarget (?=[A-Z])|e: (?=\S+:)|! (?!\[)|[\d. :kMG-]{20,}(?=curl: )",
         "! Undefined control sequence."),
        ("strip", r"\* (?!Try|Get more|Where|Exception is)|> +(?=[A-Z]|\S+:\d+:\d+: )|what\(\): +|details = \"|<b>"
         r"|\(node:\d+\) |(?:Error: )?[A-Z]\w+:[A-Z]\w+ - ", "what():  boom"),
        ("strip", r"\[\w+\] (?=✘)|Esbuild Failed: |RPC error: \[\w+\], |Exception in thread \"[^\"]*\" ",
         "Esbuild Failed: boom"),
        ("drop", r"(?:[\w.$]+: )?(?:Error code: \w+|HTTP-Code: \d+)$", "Error code: NoAccess\nboom"),
        ("drop", r"code E404|What went wrong:$|Execution failed for task |Could not resolve all \w+ "
         r"|(?:[\w.]+: )?<\w+ of RPC that terminated|terminate called |For more information |status = StatusCode"
         r"|(?:\S+: )?[45]\d\d (?:Client|Server) Error: [\w ]+ for url: \S+$|--\d{4}-|HTTP request sent|Connecting to "
         r"|[a-z]+://\S+$|(?:See|Try|Run|Visit|Did you|[Hh]int:|[Nn]ote:) ", "terminate called after it\nboom"),
        # Tracebacks.
        ("mark", r"E {2,}|\d+:\d+ +error +", "==== FAILURES ====\nE   boom"),
        ("drop", r"goroutine \d+ \[|[a-z]\w+\.\w+\((?!\d+[,)])|(?!Unh)\w+Warning: ",
         "DeprecationWarning: not new\nError: boom"),
        ("drop", r"at (?:(?:.*\s)?+[^\s:(]*+[:(]\S*\d\)?$|[\w.$<>/ ]+\()", "at main (/a.js:3:1)\nboom"),
        ("drop", r"(?:node:|file:/|/|[A-Z]:\\)[^\s:]*:\d+(?::\d+)?$|throw (?:new )?[\w.]+(?:\(.*\))?;?$",
         "node:internal/loader:1148\nboom"),
        # Progress.
        ("drop", r"(?:Compiling|Checking|Downloading|Updating|Building|Running|Fetching|Resolving|Loading|Installing"
         r"|Retrying|Cloning)\b|(?!Missing|Warning|Nothing|String)[A-Z][a-z-]+ing (?!.* (?:not|failed)\b)[^:]+$",
         "Downloading crates\nboom"),
        ("drop", r"on \S+ line \d+|with \S+[,:]?$", "on main.tf line 5:\nboom"),
        ("drop", r"\d+(?:: (?![A-Z])| [│¦])", "5: port = x\nboom"),
        ("drop", r"make(?:\[\d+\])?: (?:\*\*\* \[|[EL]\w+ing |Nothing )", "make: Entering folder 'a'\nboom"),
        ("strip", r"make(?:\[\d+\])?: (?:\*\*\* )?(?!\*|\[|[EL]\w+ing |Nothing )", "make: cc: Command not found"),
        ("drop", r"\[?(?:INFO|DEBUG)\b|COMPILATION ERROR|Tests? ?(?:run|Suites|Files)?: ", "[INFO] 3 files\nboom"),
        ("drop", r"There w\w+ \d+ \w+:$|\d+\) [\w\\]+::\w+$", "There was 1 failure:\n\n1) CartTest::testTotal\nboom"),
        ("drop", r"[^.]+\.{6,}+(?:Failed|Passed)$|- (?:hook id|exit code): ", "mypy......Failed\n- hook id: a\nboom"),
        ("drop", r"-- |==> (?!\S+: )|== Comp|(?:Error: )?(?:# [\w./-]+|#{2,4} [\w ./-]+)$", "# example.com/app\nboom"),
        ("drop", r"(?:Using|Resolved|Prepared|Audited|Downloaded|Finished|Fresh|Solving|Channels:?"
         r"|Found \d+ (?:pack|file|error)) ?", "Using Python 3.12.1 environment at: .venv\nboom"),
        ("drop", r"@ |(?:[A-Z']+ ){3}|Host key for |Warning: Permanently |/\S+ -\S|\d+ of \d+ ",
         "1 of 1 ERROR creating table\nboom"),
        ("drop", r"Command line|(?:[\w-]+ ){1,3}v?\d+(?:\.\d+)+\S*(?: \(.*\)| by \w+)?$|(?:.* )?[-=_*]{6,}$"
         r"|.*\| FAIL \|$|CREATE_FAILED: ", "node 18.2.0\nboom"),
        ("drop", r"(?:Encountered an error|Received exception from|FAIL) ?|Syntax error .*\bat \(\S+\)\.$"
         r"|(?:\w+: )?Invalid `[^`]+` invocation\b", "Encountered an error:\nboom"),
        # Failures that only say that something within them failed.
        ("drop", r"(?i:(?:error:? )?command failed\b)|[\w.+/-]+: error: .*\bexit (?:code|status)\b|cmdline: "
         r"|(?:[\w.]+: )?Cmd\('\w+'\) failed due to|[\w.]*CalledProcessError: Command .* returned non-zero exit status"
         r" \d+\.?$", "Error: command failed: jq\nboom"),
        ("drop", r"(?:[\w-]+: )?(?:failed to load command: |Could not read from remote repo|Connection closed\.?$)"
         r"|(?:.* )?finished with errors$"
         r"|.* returned with value \d+$|(?i:(?:error: )?build failed)\b(?: with \d+ errors?:?)?$",
         "Job finished with errors\nboom"),
        ("drop", r"Error in .*\) ?:$|(?:ERROR: *)?(?:\w+:)?Exception (?:in|on) \S+ \S+$", "Error in lm(y) :\nboom"),
        ("sums", r"(?:FAILED \S+::|ERROR \S+\.py - )", "E   assert 3 == 4\nFAILED a.py::test_b - assert 3 == 4"),
        ("mark", r"● (?=.* › )", "sum\n✓ adds nothing\n● sum › adds two"),
        ("sums", r"! \[(?:remote )?rejected\]", "error: x\n! [rejected] main -> main (fetch first)"),
        ("names", r"(?:(?:[A-Z]:)?[^\s:(]++[:(]\d+(?:[:,] ?\d+)?\)?:? (?:- )?)?(?:fatal )?[Ee]rror(?:\[\w+\]"
         r"| [A-Z]+\d+)?: ", "no boom\na.c:5:3: error: expected ';'"),
        ("names", r"E: |CMake Error\b|\*\* \(", "no boom\nCMake Error at CMakeLists.txt:6 (find_package):"),
        ("names", r"(?:ERROR|FATAL|PANIC|Fatal|fatal|panic|Error|abort)\b.{0,40}?: ", "no boom\nfatal: no"),
        ("raises", r"[A-Za-z_][\w.]*+(?=:|$)(?:(?<=Error)|(?<=Exception)|(?<=Warning)|(?<=Interrupt)|(?<=Exit)"
         r"|(?<=Timeout)|(?<=Iteration))", "no boom\nValueError: one"),
        ("raises", r"(?:[a-z_]\w*+\.)++[A-Z]\w*+(?:$|: )", "boom\ndocker.errors.NotFound: one"),
        ("cause", r"(?:The |Raw |HTTP )*(?:[Rr]esponse|[Ss]erver) (?:body|text|message|said|content"
         r"|responded with): ?|Body: ", "x.ApiException: (404)\nReason: Not Found\nHTTP response body: no such pod"),
        ("cause", r"(?:Code: \d+\. Errors|(?:\S+: )?\d+ errors? occurred):",
         "Error of an API\nCode: 403. Errors:\nboom"),
        ("drop", r"\S.* could not be resolved to an installable set|Problem \d+$|- Installation request ",
         "Your requirements could not be resolved to an installable set of packages.\nboom"),
        ("cause", r"(?:\[?Caused by:?|Cause:|And got this output:$|-+> (?=\S+(?:Exception|Error)))\s*", "a\nCause: b"),
        ("join", r"thread '[^']*' (?:\(\d+\) )?panicked at ", "thread 'main' panicked at a.rs:5:27:\nboom"),
        ("peel", r"(?:MCP error -\d+:\s+)*(?:(?:Error (?:executing|calling|invoking|running) [^:\n]{0,100}"
         r"|Tool (?:\w+ )?(?:error|failed)):\s+)?", "Error executing tool x:\nboom"),
        ("join", r"(?:.{0,200}: )?\d+ validation errors? for ", "1 validation error for Order\nsize\nField required"),
        ("join", r"\S+:\d+:\d+: (?:fatal )?error:(?: \[[\w-]+\])?$|Warning, treated as error:$|.*\b\w+(?:Error"
         r"|Exception):$|(?!KeyError)[\w.]+: \d+$", "a.hs:3:1: error: [GHC-1]\nboom"),
        ("join", r"CMake Error at .*:$", "CMake Error at CMakeLists.txt:6 (find_package):\nno Clp"),
        ("join", r"(?:[\w.]+: )?(?:\([\w.]+\) )?(?:\d+ \(\w+\): )?(?:[0-9a-f-]{9,36}: )?SQL compilation error:",
         "SQL compilation error:\nObject 'A' does not exist"),
        ("more", r"symbol *: ", "a.java:3: error: cannot find symbol\n  f();\n  symbol:   method f()"),
        ("field", r"at ([\w.[\]]+)$", "✖ Invalid input: expected string\n  → at query"),
        ("join", r"Error: [A-Z][a-z]+(?: [a-z]+){1,6}$", "Error: Unsupported argument\nNo argument named \"x\"."),
    )
)  # fmt: skip
