"""List words that do not distinguish failures: wrappers, details of one row, advice."""

from __future__ import annotations

import re
from http import HTTPStatus

from fleetlore.fingerprint.template_rules import MASK, Rule

__all__ = ["CODES_BEFORE", "GLUE", "INSTANCES", "NOISE", "SENTENCE", "WRAPPERS"]


def _said(match: re.Match[str]) -> str:
    return match.group(1) + match.group(3).replace('\\"', "'")


_TAG = re.compile(r"</?[A-Za-z][\w:-]*[^<>]*>")

# A quoted word behind one of these is an instance.
INSTANCES = frozenset(
    """
    pathspec branch tag ref remote commit user role account group host hostname server node pod container image
    volume network namespace bucket instance cluster project repository repo job queue stream session device process
    thread file directory folder path url request order item customer ticket entry value endpoint deployment service
    worker address email string upstream
    """.split()  # noqa: SIM905
)
# Words that lead to an instance and mean nothing without it.
GLUE = frozenset(
    """
    for at from to of in on after with url id request trace character retry second seconds
    """.split()  # noqa: SIM905
)
# Types that name the messenger, in lower case without punctuation.
WRAPPERS = frozenset(
    """
    agenttoolcallerror agenttoolexecutionerror baseexception error exception executionerror failed failure functionerror
    functionexecutionerror mcperror modelretry other replyerror
    responseerror toolcallerror toolerror toolexception toolexecutionerror toolfailed
    toolfailederror toolinvocationerror toolretryerror unknown unknownerror
    """.split()  # noqa: SIM905
) | {""}
# Codes before a sentence of four or more words that says the same. Only some senders write them.
CODES_BEFORE = re.compile(
    # A part that failed, a code of letters and digits, a file with a line, a tag or a host.
    r"(?:(?>[A-Z]{4,}(?: [A-Z]{4,}){1,2}(?=: )|[A-Z]+\d{3,5}(?=: )"
    r"|[\w./-]{1,100}:\d+(?::\d+)?(?=: )|\[[a-z]\w*\](?::? FAILED! =>)?"
    r"|[1-5]\d\d(?! (?:Client|Server) Error)(?:(?: [A-Z][a-z]+){1,3}(?=: ))?|E(?!RR)[A-Z]{3,}"
    r"|[(\[]?(?:[A-Za-z]+[_.])+\w+(?:[)\]]|(?=:|  | \())|\([A-Z]\w+\)"
    r"|[A-Z]\w+(?:Error|Exception|Failed|Failure)(?: \(see above for traceback\))?|(?:[A-Z]\w*::)+[A-Z]\w*|GraphQL"
    r"(?: error)?|\d{1,4}(?=: )|(?i:error|fatal)(?=:)|ERR(?=[: ])|\d{1,2} (?=[A-Z_]+: ))[: ]++(?:- )?)+"
    r"(?=(?:\S+ +){3}\S)"
)
# Words of frameworks in front of the tool's own. Quoted arguments take at most 400 characters.
SENTENCE = re.compile(
    r"(?:an )?error(?: occurred)?(?: (?:when|while))? (?:executing|calling|invoking|running|using) (?:the )?"
    r"(?:tool|function)\b(?:(?! with )[^:{}]){0,100}(?: with (?:args|arguments|kwargs|input)\b ?\{.{0,400}?\})?"
    r"(?: with error)?: +"
    r"|(?:tool (?:(?:execution|call|invocation) )?(?:error|failed|failure)|encountered error): +"
    r"|(?:uncaught|unhandled) (?=[A-Z])|error: +(?=(?-i:[A-Z])\w*Error\b)|(?:api error|caused by): +|\(error\) +"
    r"|(?:\w+ )?error (?:in|processing|deploying|running|creating) "
    r"(?:'[^']*'|[^:'\n]){1,80}: +(?=(?:\S+ +){3})",
    re.I,
)

# Each rule removes empty words, or unifies synonyms for later rules.
NOISE: tuple[Rule, ...] = (
    # A database's code before its words, which say the same, as shells and drivers write it.
    (("(",), re.compile(r"^\((\d+), ?([\"'])(.*)\2\)$"), r"code \1: \3"),
    (('b"', "b'"), re.compile(r"^\(\d+, ?b([\"'])(.*?)\.?(?:DB-Lib|\1\)$).*"), r"\2"),
    (
        ("error ", " (", "pq:", "er_", "sqlstate["),
        re.compile(
            r"^(?:ERROR \d{4}(?: \(\w{5}\))?(?: at line \d+)?|\d{4,6} \(\w{5}\)|pq|ER_[A-Z_]+"
            r"|SQLSTATE\[\w+\](?: \[\d+\])?(?:: [A-Z][\w ]+)?): (?:\d{4} |[0-9a-f-]{36}: |\d+ ERROR: +)?",
            re.I,
        ),
        "",
    ),
    (("[type=",), re.compile(r" ?\[type=.*"), ""),
    # A database's details about the one row or statement.
    (("detail:", "[sql:", "(sql:"), re.compile(r"[ .]+(?:DETAIL: |[\[(]SQL: ).*"), ""),
    (
        ("error", "prepare, ", "sqlite", "near line"),
        re.compile(
            r"^(?:(?:parse |runtime )?error(?: near line \d+)?: |in prepare, |near line \d+: "
            r"|(?:sqlite_error: )?sqlite3 result code \d+: )+",
            re.I,
        ),
        "",
    ),
    (("sql server :",), re.compile(r"^(?:Sqlcmd: Error: )?Microsoft ODBC Driver [\d.]+ for SQL Server ?: "), ""),
    (("cannot find -l",), re.compile(r"(cannot find -l[\w.+-]+).*"), r"\1"),
    (
        ("dup key: ", "with args", "get lock ", "(version "),
        re.compile(r"(?<=dup key:).*|, with args beginning with.*|(?<=get lock) .*| \(version .*", re.I),
        "",
    ),
    # Hedges: what else may be the reason.
    (
        (" or the ", "or resource", "or it "),
        re.compile(r" \(?or (?:the )?(?:resource|scope|it)\b[\w ]* (?:not exist|invalid)\)?", re.I),
        "",
    ),
    (("out of memory. ", "allocating tensor"), re.compile(r"(out of memory|allocating tensor)\W.*", re.I), r"\1"),
    (
        ("(caused by ",),
        re.compile(r"^HTTPS?ConnectionPool\(.*\(Caused by (?:\w+\(['\"]?(?:\d+, ?['\"])?)+(?:<[^>]*>: )?(.*?)['\")]*$"),
        r"\1",
    ),
    ((", message=",), re.compile(r"^.*?\bkey=\w+, message=(.*?)(?: \[MSG.*)?$"), r"\1"),
    (("unresolved reference",), re.compile(r"(unresolved reference):? '?([\w.]+)'?", re.I), r"\1 '\2'"),
    (("not found",), re.compile(r"File [`']([^'\s]+)\.(?:sty|cls)' not found"), r"no package '\1'"),
    (("referenced in ", "error)", ". ("), re.compile(r" referenced in .*| \([A-Z]\w*Error\)$|(?<=\.) \(\w+\)$"), ""),
    (
        ('. {"', "(status code"),
        re.compile(r"(?<=\.) \{\"(?:exception|context)\".*| \(status code: \d+\)$"),
        "",
    ),
    (("commits between ",), re.compile(r"(commits between ).*"), rf"\1{MASK}"),
    # A resolver gives its reason first, and then says for which project.
    (("because ",), re.compile(r"(\bbecause )\S+(?: \(\S+\))?(?= depends on .* which )", re.I), rf"\1{MASK}"),
    (("because ",), re.compile(r"((?:^|[: ])because .+?)(?: and |, ).*", re.I), r"\1"),
    (("provides package",), re.compile(r"(provides package \S+?)[;:] .*"), r"\1"),
    (("][",), re.compile(r"^(?:\('\w{5}', \")?(?:\[[\w .]+\] ?){2,}"), ""),
    (("(sql",), re.compile(r" \(\d+\) \(SQL\w+\).*"), ""),
    (
        ("full error", "[recovered]", "(http ", "] {"),
        re.compile(r"\.?, full error: .*| \[recovered\].*| \(HTTP \d{3}\)$|\] \{$", re.I),
        "",
    ),
    # A shell's script and line do not say what is wrong.
    (
        (": ",),
        re.compile(r"^(?:[\w./~-]*/)?(?:[\w.-]+\.sh|bash|dash|zsh|sh): (?:-c: )?(?:line )?\d+: "),
        "sh: ",
    ),
    (("bash: ",), re.compile(r"^bash: "), "sh: "),
    # Each shell words a missing command differently.
    (
        ("not found", "unknown command", "not recognized as"),
        re.compile(
            r"^(?:(?:-?sh|-?zsh|fish|k?sh|ash|nu): )?(?:(?:(?:line )?\d+: )?)(?:command not found|Unknown command):? "
            r"['\"`]?([^\s'\"`:]+)['\"`]?$"
            r"|^(?:sh|zsh|ash): (?:\d+: )?([^\s:]+): (?:command )?not found$"
            r"|^([^\s:]+): command not found$"
            r"|^(?:\S+ : )?(?:The term )?'([^\s']+)' is not recognized as (?:the name of|an internal or) .*"
        ),
        lambda match: f"sh: {next(filter(None, match.groups()))}: command not found",
    ),
    (
        ("_id", "requestid", "traceid"),
        re.compile(r",? ?['\"]?(?:(?<!\w)\w+_id|requestId|traceId)['\"]?: ?['\"][^'\"]*['\"]", re.I),
        "",
    ),
    # Words of an XML or HTML answer, without tags and the request's own names.
    (("<title>",), re.compile(r"^.*<title>(.*?)</title>.*", re.I), r"\1"),
    (("</",), re.compile(r"<(Key|RequestId|HostId|Resource|BucketName)>[^<]*</\1>"), ""),
    (
        (")", "]", "error", "fatal", "warning", "e: ", "message: "),
        re.compile(
            r"^(?:[\[(](?:error|err|fatal|critical|warn(?:ing)?)[\])]:?\s+)"
            r"|^(?!fatal error: \S+: no such file)(?:(?:fatal )?error|fatal|warning|E)\s?:\s+(?=\S+ )"
            r"|^error (?=(?-i:[A-Z]))|^message: (?=\S+ )",
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
    # A later sentence that only gives advice.
    (
        (". ", "; ", ": "),
        re.compile(
            r"[.;:] +(?:check|please|for (?:more|further|details|help)|see|try|run|did you|make sure|ensure|to|if|"
            r"use(?! of)|consider|visit|note|refer|"
            r"enable|this command|reason:|dependency annotations|the \S+ option|more details|"
            r"you (?:can|may|should|must|need)|is the|are you|contact|did you) .*",
            re.I,
        ),
        "",
    ),
    (
        ("=", "<", ">", "@"),
        re.compile(
            r"(?<=\w)@[\^~<>=]{0,2}v?\d[\w.-]*?(?=[.,;:]?(?:\s|$)|['`\",)])"
            r"|(?<=[\w\]])(?:===?|>=|<=|~=|!=|<|>)\s?\d[\w.*+!]*(?:,\s?(?:[<>=!~]=?)\s?\d[\w.*]*)*"
        ),
        "",
    ),
    # Programs name themselves with or without their folder.
    (("error '",), re.compile(r"(?<=error )'([1-5]\d\d)\b[^']*'", re.I), r"\1"),
    (("http/",), re.compile(r"\bHTTP/\d(?:\.\d)?\b", re.I), "HTTP"),
    (
        ("1", "2", "3", "4", "5"),
        re.compile(
            # Searching for a set as first character is ten times as fast as for a boundary.
            r"([1-5](?<=\b[1-5])\d\d) (?:"
            + "|".join(sorted((re.escape(each.phrase) for each in HTTPStatus), reverse=True))
            + r")\b",
            re.I,
        ),
        r"\1",
    ),
)
