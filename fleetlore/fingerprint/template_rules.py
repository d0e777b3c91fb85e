"""Mask what stands where an instance stands in an error text, and drop what says nothing."""

from __future__ import annotations

import re
from http import HTTPStatus

from fleetlore.fingerprint.maskers import MASK, Rule

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


def _said(match: re.Match[str]) -> str:
    return match.group(1) + match.group(3).replace('\\"', "'")


_TAG = re.compile(r"</?[A-Za-z][\w:-]*[^<>]*>")

# What says nothing of its own, and what stands in the way of the rules behind.
NOISE: tuple[Rule, ...] = (
    # What a client raises with the server's code before its words: `(1054, "Unknown column 'x'")`.
    (("(",), re.compile(r"^\((\d+), ?([\"'])(.*)\2\)$"), r"code \1: \3"),
    # A shell names the script and the line; neither says what is wrong.
    (
        (": ",),
        re.compile(r"^(?:[\w./~-]*/)?(?:[\w.-]+\.sh|bash|dash|zsh|sh): (?:-c: )?(?:line )?\d+: "),
        "sh: ",
    ),
    (("bash: ",), re.compile(r"^bash: "), "sh: "),
    (
        ("_id", "requestid", "traceid"),
        re.compile(r",? ?['\"]?(?:(?<!\w)\w+_id|requestId|traceId)['\"]?: ?['\"][^'\"]*['\"]", re.I),
        "",
    ),
    # An answer in XML or HTML: its words without the tags, and without what names the one request.
    (("<title>",), re.compile(r"^.*<title>(.*?)</title>.*", re.I), r"\1"),
    (("</",), re.compile(r"<(Key|RequestId|HostId|Resource|BucketName)>[^<]*</\1>"), ""),
    (("</",), re.compile(r"^(?=<).*", re.S), lambda match: _TAG.sub(" ", match.group()).strip()),
    (
        (")", "]", "error", "fatal"),
        re.compile(
            r"^(?:[\[(](?:error|err|fatal|critical|warn(?:ing)?)[\])]:?\s+)|^(?:(?:fatal )?error|fatal)\s?:\s+(?=\S+ )",
            re.I,
        ),
        "",
    ),
    ((" :",), re.compile(r" +:(?= )"), ":"),
    # The fields of a log line.
    (
        ("=",),
        re.compile(
            r"\b((?:user|username|host|hostname|ip|addr|peer|client|id|pid|\w+_id|session|trace|span|account|email|"
            r"node|pod|queue|job|task|"
            r"worker|thread|took|duration|elapsed|path|file|url|uri)=)[^\s,;)'\"]+",
            re.I,
        ),
        r"\1<*>",
    ),
    # Of an answer in JSON the message is read like any other; in quotes it would look like a value.
    (
        ("{",),
        re.compile(
            r"(?<=[{\s,])(['\"](?:message|msg|error|details?|reason|description)['\"]\s*[:=]\s*)"
            r"(['\"])(.*?)(?<!\\)\2(?=\s*[,}\]])",
            re.I,
        ),
        _said,
    ),
    # A sentence behind the first that only gives advice.
    (
        (". ", "; ", ": "),
        re.compile(
            r"[.;:] +(?:check|please|for (?:more|further|details|help)|see|try|run|did you|make sure|ensure|to|if|use|"
            r"consider|visit|note|refer|"
            r"more details|you (?:can|may|should|must|need)|is the|are you|contact) .*",
            re.I,
        ),
        "",
    ),
    (
        ("=", "<", ">", "@"),
        re.compile(
            r"(?<=\w)@[\^~]?\d+(?:\.\d+){0,2}(?![\w.])"
            r"|(?<=[\w\]])(?:===?|>=|<=|~=|!=|<|>)\s?\d[\w.*+!]*(?:,\s?(?:[<>=!~]=?)\s?\d[\w.*]*)*"
        ),
        "",
    ),
    # The program that speaks is named with its folder here and without it there.
    (("bin/",), re.compile(r"^/(?:usr/(?:local/)?)?s?bin/(?=[\w.+-]+: )"), ""),
    (("error '",), re.compile(r"(?<=error )'([1-5]\d\d)\b[^']*'", re.I), r"\1"),
    (("http/",), re.compile(r"\bHTTP/\d(?:\.\d)?\b", re.I), "HTTP"),
    (
        ("1", "2", "3", "4", "5"),
        re.compile(
            r"\b([1-5]\d\d) (?:"
            + "|".join(sorted((re.escape(each.phrase) for each in HTTPStatus), reverse=True))
            + r")\b",
            re.I,
        ),
        r"\1",
    ),
)

_NAMED_BARE = frozenset(
    {"branch", "bucket", "cluster", "container", "image", "instance", "namespace", "network", "node", "pod", "volume"}
)

# Where an instance stands.
PLACES: tuple[Rule, ...] = (
    # What a file system says stands before or behind the file's name.
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
    # A kind of thing of which there are many, and a bare name.
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
        tuple(
            f"in {each} "
            for each in ("pod", "namespace", "container", "cluster", "project", "region", "zone", "location", "bucket")
        ),
        re.compile(
            r"(\bin (?:pod|namespace|container|cluster|project|region|zone|location|bucket) )[\w./-]+(?:\([^()]*\))?",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    ((" is not ",), re.compile(rf"{QUOTED}(?= is not (?:a valid|one of|in |an? ))"), MASK),
    (("resolve host",), re.compile(r"(resolve host(?:name)?:? )[\w.-]+", re.I), rf"\1{MASK}"),
    (("to host ",), re.compile(r"(to host )[\w.-]+", re.I), rf"\1{MASK}"),
    # What was expected and what came instead; what could not be converted; where a parser stopped; what was searched
    # for.
    (
        ("expected",),
        re.compile(r"(\bexpected:?) .+?(,? (?:but )?(?:got|received|found|was|actual)\b:?) .+", re.I),
        rf"\1 {MASK}\2 {MASK}",
    ),
    (
        ("literal", "convert", "parse", "input", "invalid "),
        re.compile(
            r"(\b(?:literal|convert|parse|input|invalid (?:value|date|number|format))\b[^'\"]*: ?)['\"].*", re.I
        ),
        rf"\1{MASK}",
    ),
    (("near ",), re.compile(r"(\bnear )(?=\W).*", re.I), rf"\1{MASK}"),
    ((": `",), re.compile(r"(?<=: )`.* .*'$"), MASK),
    (("find [",), re.compile(r"(\bfind )\[.*", re.I), rf"\1{MASK}"),
    # What was run, of which only how it ended counts.
    (
        ("command",),
        re.compile(r"(\bcommand )['\"`\[].*['\"`\]](?= (?:returned|failed|exited|timed out|died))", re.I),
        rf"\1{MASK}",
    ),
    # Words of single tools. curl's own code says what its words say in several ways; but 22 stands for every HTTP
    # status.
    (("curl: (",), re.compile(r"(curl: \()(\d+\)) (?!The requested URL).*"), r"\1code \2"),
    ((" -> ",), re.compile(r"(?<!\S)\S+\s+-> +\S+"), MASK),
    (("conflict (",), re.compile(r"(?<=\bin )\S+?(?=\.? )|(?<=\bversion )\S+(?= of )", re.I), MASK),
    (
        (" ",),
        re.compile(r"\b((?:reservation|booking|order|ticket|flight|invoice|case|customer|item) )#?[A-Z0-9]{5,}\b"),
        rf"\1{MASK}",
    ),
    (("#",), re.compile(r"(?<= )#\w*\d\w*"), MASK),
    (("ambiguous argument",), re.compile(rf"(ambiguous argument ){QUOTED}"), rf"\1{MASK}"),
    (("sudoers",), re.compile(r"^\S+(?= is not in the sudoers)"), MASK),
    (("needed by",), re.compile(rf"(needed by ){QUOTED}"), rf"\1{MASK}"),
    (("process ",), re.compile(r"(?<=process )\d+ \([^()]*\)", re.I), MASK),
    (("manifest for", "denied for"), re.compile(r"((?:manifest|access denied) for )[^\s,]+", re.I), rf"\1{MASK}"),
    (("endpoint ",), re.compile(r"(\bendpoint )[^\s(]+"), rf"\1{MASK}"),
    (("versions: ",), re.compile(r"(from versions: )[^)]*"), rf"\1{MASK}"),
)
