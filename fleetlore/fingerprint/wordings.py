"""List the words of error texts: wordings that say the kind of failure, and words that do not distinguish failures."""

import re
from collections import defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from fleetlore.fingerprint.template_rules import MASK, Rule

__all__ = ["CODES_BEFORE", "GLUE", "INSTANCES", "NOISE", "PHRASES", "SENTENCE", "WRAPPERS", "Phrase", "PhraseBook"]

END = "$"
# Other words for "cannot".
_CANNOT, _UNABLE = "cannot ", ("cannot ", "can not ", "could not ", "unable to ", "not able to ", "failed to ")


class Phrase(NamedTuple):
    """Lower-case wordings of one kind of failure, separated by a bar: `_` is any one word, `END` the end of the clause.
    `example`: a text that has no such kind without this row. `decides`: whether the kind is the whole failure.
    """

    kind: str
    wordings: str
    example: str
    decides: bool = False


class PhraseBook:
    """Finds the phrases of rows among words."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        rows = [
            (f"{able}{wording.removeprefix(_CANNOT)}".split(), phrase.kind)
            for phrase in phrases
            for wording in phrase.wordings.split("|")
            for able in (_UNABLE if wording.startswith(_CANNOT) else ("",))
        ]
        # By the first two words, since many wordings begin with the same one.
        self._by_start: defaultdict[tuple[str, str], list[tuple[list[str], str]]] = defaultdict(list)
        for (first, *others), kind in rows:
            self._by_start[first, others[0] if others else ""].append((others, kind))
        self._firsts = {first for first, _ in self._by_start}

    def found(self, words: list[str]) -> list[tuple[int, int, str]]:
        """Return start, end and kind of each phrase. The longest wording counts."""
        found: list[tuple[int, int, str]] = []
        if self._firsts.isdisjoint(words):
            return found
        words = [*words, END]
        for start, word in enumerate(words[:-1]):
            if word not in self._firsts or (found and start < found[-1][1]):
                continue
            best, best_kind = start, ""
            for second in (words[start + 1], "_", ""):
                for others, kind in self._by_start.get((word, second), ()):
                    stop = start + 1 + len(others)
                    if stop > best and _fits(others, words[start + 1 : stop]):
                        best, best_kind = stop, kind
            if best_kind:
                found.append((start, best, best_kind))
        return found


def _fits(wording: list[str], there: list[str]) -> bool:
    if wording == there or "_" not in wording or len(wording) != len(there):
        return wording == there
    return all(wanted == word or (wanted == "_" and word != END) for wanted, word in zip(wording, there, strict=True))


_NOUNS = ("code", "status", "error code")
_ENDINGS = ("exit", "exited", "failed", "finished", "terminated", "ended", "died", "completed", "stopped", "closed")


def _ended_by(signal: int) -> str:
    number = 128 + signal  # the exit code of a shell
    exits = [f"{word} {number}" for word in ("exit", "exited")]
    exits += [f"{verb} {noun} {number}" for verb in ("exit", "exited", "return", "returned") for noun in _NOUNS]
    exits += [f"{verb} with {noun} {number}" for verb in _ENDINGS for noun in _NOUNS]
    signals = [f"{word} signal {signal}" for word in ("by", "with", "to", "on", "fatal", "caught", "received")]
    return "|".join((*exits, *signals))


# Errors of systems, signals and networks.
_CODES = tuple(
    Phrase(*row, decides=True)
    for row in (
        ("disk full", "no space left on|enospc|errno 28|os error 28|winerror 112|enough space on the disk", "errno 28"),
        ("files", "too many open files|emfile|enfile|errno 24|os error 24", "EMFILE: open"),
        ("address in use", "address already in use|eaddrinuse|errno 98|errno 48|winerror 10048|each socket address",
         "listen EADDRINUSE"),
        ("refused", f"connection refused|econnrefused|errno 111|errno 61|error 111 connecting|error 111 {END}"
         "|os error 111|winerror 10061|actively refused|curl code 7", "connect ECONNREFUSED"),
        ("reset", "connection reset|econnreset|errno 104|errno 54|os error 104|winerror 10054|forcibly closed"
         "|socket hang up|econnaborted|curl code 56", "socket hang up"),
        ("requests", "too many requests|toomanyrequests", "TOOMANYREQUESTS: retry-after"),
        ("pipe", f"broken pipe {END}|broken pipe error|broken pipe write failed|epipe|errno 32|os error 32",
         "write EPIPE"),
        ("connect time", "connection timed out|connect timed out|connect timeout|etimedout|errno 110|errno 60"
         "|winerror 10060|curl code 28|connection timeout|i/o timeout", "connect ETIMEDOUT"),
        ("no network", "network is unreachable|network unreachable|enetunreach|errno 101|errno 51|winerror 10051",
         "connect ENETUNREACH"),
        ("no route", "no route to host|host is unreachable|ehostunreach|errno 113|errno 65|winerror 10065",
         "connect EHOSTUNREACH"),
        ("no host", "could not resolve host|could not resolve hostname|enotfound|service not known|nor servname"
         f"|unknown host exception|no such host {END}|no such host is known|errno 11001|getaddrinfo failed|curl code 6"
         "|cannot translate host name|resolve host address|name not resolved|failed to resolve host"
         "|no address associated",
         "getaddrinfo ENOTFOUND"),
        ("no resolver", "temporary failure in name resolution|eai again", "temporary failure in name resolution"),
        ("issuer", "local issuer certificate|issuer cert locally|signed by unknown authority|unknown issuer"
         "|verify the first certificate|verify leaf signature|unknownissuer|pkix path building", "PKIX path building"),
        ("self-signed", "self-signed certificate|self signed certificate", "self signed certificate"),
        ("certificate expired", "certificate has expired|cert has expired|certificate is expired|certificate expired"
         "|expired or is not yet valid", "certificate has expired"),
        ("no file", "errno 2|os error 2|winerror 2|winerror 3", "[WinError 2] Das System"),
        ("no access", "errno 13|os error 13|winerror 5|errno 1|os error 1", "[WinError 5] Zugriff"),
        ("read only", "read-only file system|erofs|errno 30|os error 30", "EROFS: write"),
        ("not folder", "not a directory|enotdir|errno 20|os error 20|winerror 267", "ENOTDIR: scandir"),
        ("not empty", "directory not empty|enotempty|errno 39|errno 66|os error 39|winerror 145", "ENOTEMPTY: rmdir"),
        ("long name", "file name too long|enametoolong|errno 36|errno 63|os error 36|winerror 206",
         "ENAMETOOLONG: open"),
        ("busy", "device or resource busy|resource busy or locked|ebusy|errno 16", "EBUSY: rm"),
        ("text busy", "text file busy|etxtbsy|errno 26", "ETXTBSY: write"),
        ("format", "exec format error|enoexec|errno 8|os error 8", "ENOEXEC: spawn"),
        ("quota", "disk quota exceeded|edquot|errno 122|errno 69", "EDQUOT: write"),
        ("killed", f"signal killed|sigkill|oomkilled|{_ended_by(9)}", "exit code 137"),
        ("segmentation", f"segmentation fault|sigsegv|{_ended_by(11)}", "exit code 139"),
        ("aborted", f"signal aborted|sigabrt|{_ended_by(6)}", "exit code 134"),
        ("terminated", f"signal terminated|sigterm|{_ended_by(15)}", "exit code 143"),
        ("interrupted", f"sigint|{_ended_by(2)}", "exit code 130"),
    )
)  # fmt: skip

PHRASES = _CODES + tuple(
    Phrase(*row)
    for row in (
        ("missing", "not found|cannot be found|no _ _ found", "job 'a' not found"),
        ("missing", "no such|does not exist|do not exist|did not exist|nonexistent|enoent", "no such table: a"),
        ("missing", "cannot find|did not find|cannot locate|cannot load|cannot open|cannot resolve|unresolved"
         "|cannot be resolved", "unable to locate package a"),
        ("missing", "no matching distribution found for|cannot find a version that satisfies the requirement"
         "|unknown|unrecognized|unrecognised|not recognized|not recognised", "unknown column a"),
        ("missing", "undefined|undeclared|not defined|not declared|implicit declaration|unconfigured", "undefined: a"),
        ("missing", "not in this registry|not in the npm registry|not installed|not available|not registered"
         "|not present|not configured|not host", "a not installed"),
        ("missing", "has no|no module|no provider|no match for|no matches for|not a member|nothing provides",
         "value a is not a member of List"),
        ("missing", "no _ specified|no _ given|no _ provided|no _ named|no _ called|no _ matching|no _ with"
         "|no _ _ named|no _ _ of type|no _ _ with|no _ of type|no version of|no versions of|not contain|not match"
         "|not provide", "no role named 'a'"),
        ("missing", "missing|not in scope", "missing script: a"),
        ("denied", "permission denied|access denied|access is denied|denied|forbidden|eacces|eperm"
         "|operation not permitted", "access denied for a"),
        ("denied", "not authorized|not authorised|unauthorized|unauthorised|not permitted|not have permission"
         "|lacks permission|insufficient permission|insufficient permissions|insufficient privileges|requires _ access",
         "not authorized to read a"),
        ("denied", "authentication failed|authentication required|authentication error|invalid credentials",
         "authentication failed for a"),
        ("exists", "already|already _|already been _|duplicate|unique constraint|in use|not unique|redefinition"
         "|file exists|eexist|errno 17|winerror 183|winerror 80", "table 'a' already exists"),
        ("unreachable", "connection closed|connection lost|connection aborted|connection was _", "connection lost"),
        ("unreachable", "cannot connect|cannot reach|not reachable|unreachable|no route|name resolution|resolve host",
         "cannot connect to 'a'"),
        ("folder", "is a directory|illegal operation on a directory|eisdir|errno 21|os error 21", "EISDIR: read"),
        ("time", "timed out|timeout|deadline exceeded|took too long|time limit", "lock 'a' timed out"),
        ("memory", "out of memory|memory limit|low on memory|cannot allocate|heap space|enomem|errno 12|os error 12",
         "task a is low on memory"),
        ("limit", "rate limit|too many|quota|exceeded|exceeds|too large|too long|too big|too deep|overflow"
         "|out of range|out of bounds", "too many clients for 'a'"),
        ("surplus", "unexpected keyword|unexpected argument|unexpected option|unexpected named|multiple values"
         "|takes _ positional", "unexpected argument 'a'"),
        ("lacking", "too few arguments|missing _ required", "too few arguments for a"),
        ("syntax", "syntax error|sql syntax|parse error|invalid syntax|unterminated|unclosed|mismatched input"
         "|extraneous|unexpected token|unexpected end|unexpected eof|unexpected character|unexpected identifier"
         "|unexpected indent|unexpected symbol|unexpected string|unexpected input", "syntax error at 'a'"),
        ("type", "mismatched types|type mismatch|incompatible types|incompatible type|not assignable|expected type"
         "|unsupported operand", "unsupported operand type: 'a'"),
        ("callable", "not callable", "'a' object is not callable"),
        ("iterable", "not iterable", "'a' object is not iterable"),
        ("subscript", "not subscriptable", "'a' object is not subscriptable"),
        ("type", "cannot convert|cannot be cast|cannot cast|conversion from|conversion of|conversion failed",
         "cannot cast 'a' to integer"),
        ("version", "no matching version|no compatible version|compatible versions|newer than|older than|higher than"
         "|lower than|greater than|not up to date|out of date|outdated|unsupported version|version conflict"
         "|requires python|requires version", "lockfile a is out of date"),
        ("unavailable", "overloaded|service unavailable|temporarily unavailable", "overloaded"),
        ("unsupported", "unsupported|not supported|not support", "unsupported a"),
        ("locked", "is locked|locked by", "'a' is locked"),
        ("invalid", "invalid|not valid|not a valid|malformed", "invalid a"),
        ("disabled", "disabled|not enabled|not been enabled", "'a' is disabled"),
        ("condition", "condition failed|conditional request failed|conditional check failed|precondition",
         "precondition on 'a'"),
        ("required", "missing required|is required|are required|field required|required but|required field"
         "|required property|must be|must have|must not|not set|not provided|not specified|needs",
         "field a is required"),
    )
)  # fmt: skip

# A quoted word behind one of these is an instance.
INSTANCES = frozenset(
    """
    pathspec branch tag ref remote commit user role account group host hostname server node pod container image
    volume network namespace bucket instance cluster project repository repo job queue stream session device process
    thread file directory folder path url request order item customer ticket entry value endpoint deployment service
    worker address email string upstream stack
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
    functionexecutionerror mcperror modelretry other replyerror responseerror toolcallerror toolerror toolexception
    toolexecutionerror toolfailed toolfailederror toolinvocationerror toolretryerror unhandledpromiserejectionwarning
    unknown unknownerror
    """.split()  # noqa: SIM905
) | {""}
# Codes before a sentence of four or more words that says the same. Only some senders write them.
CODES_BEFORE = re.compile(
    # A part that failed, a code of letters and digits, a file with a line, a tag or a host.
    r"(?:(?>[A-Z]{4,}(?: [A-Z]{4,}){1,2}(?=: )|[A-Z]+\d{3,5}(?=: )"
    r"|[\w./-]{1,100}:\d+(?::\d+)?(?=: )|\[[a-z]\w*\](?::? FAILED! =>)?"
    r"|[45]\d\d(?! (?:Client|Server) Error)(?:(?: [A-Z][a-z]+){1,3}(?=: ))?|E(?!RR)[A-Z]{3,}"
    r"|[(\[]?[A-Za-z]++[_.](?:[A-Za-z]++[_.])*+\w*+(?<=\w)(?:[)\]]|(?=:|  | \())|\([A-Z]\w+\)"
    r"|[A-Za-z][a-z]+(?:[A-Z][a-z]*+){2,40}+(?=: )|[A-Z]\w+(?:Error|Exception|Failed"
    r"|Failure)(?: \(see above for traceback\))?|(?:[A-Z]\w*::)+[A-Z]\w*|GraphQL"
    r"(?: error)?|\d{1,4}(?=: )|(?i:error|fatal)(?=:)|ERR(?=[: ])|\d{1,2} (?=[A-Z_]+: ))[: ]++(?:- )?){1,8}"
    r"(?=(?:\S+ +){3}\S)"
)
# Words of frameworks in front of the tool's own. Quoted arguments take at most 400 characters.
SENTENCE = re.compile(
    r"(?:an )?error(?: occurred)?(?: (?:when|while))? (?:executing|calling|invoking|running|using) (?:the )?"
    r"(?:\w+ )?(?:tool|function)\b(?:(?! with )[^:{}]){0,100}"
    r"(?: with (?:args|arguments|kwargs|input)\b ?\{.{0,400}?\})?(?: with error)?: +"
    r"|(?:tool (?:(?:execution|call|invocation) )?(?:error|failed|failure)|encountered error"
    r"|an error (?:has )?occurred): +"
    r"|error (?:response )?from \w+: |(?:uncaught|unhandled)(?: \(in promise\)"
    r"| exception[.:]?| rejection:?)? (?=[A-Z(])"
    r"|(?:php )?fatal error: +uncaught (?:exception )?|<class '[\w.]{1,80}'>: |panic: "
    r"|build '[^']*' errored(?: after [^:]+)?: |attempt \d+(?:/\d+)? failed(?: with error)?: |mcp error -?\d+: "
    r"|http [45]\d\d: (?=(?:\S+ +){3})"
    r"|[45]\d\d (?:client|server) error: [\w -]+ for url: \S+: |[45]\d\d (?:client|server) error for \S+: [\w -]+ \(\""
    r"|[45]\d\d (?:get|post|put|delete|patch|head) \S+: |\w+: error [45]\d\d: |error: +(?=(?-i:[A-Z])\w*Error\b"
    r"|uncaught|unhandled)|(?:api error|caused by): +|\(error\) +"
    r"|(?:\w+ )?error (?:in|processing|deploying|running|creating) "
    r"(?:'[^']*'|[^:'\n]){1,80}: +(?=(?:\S+ +){3})",
    re.I,
)

# Each rule removes empty words, or unifies synonyms for later rules.
NOISE: tuple[Rule, ...] = (
    (("",), re.compile(r"^[A-Z]{5,} (?=[A-Z][a-z])"), ""),
    (("[type=",), re.compile(r" ?\[type=.*"), ""),
    (("error", "prepare, ", "sqlite", "near line"),
     re.compile(r"^(?:(?:parse |runtime )?error(?: near line \d+)?: |in prepare, |near line \d+: "
     r"|(?:sqlite_error: )?sqlite3 result code \d+: )+", re.I), ""),
    (("sql server :",), re.compile(r"^(?:Sqlcmd: Error: )?Microsoft ODBC Driver [\d.]+ for SQL Server ?: "), ""),
    (("cannot find -l",), re.compile(r"(cannot find -l[\w.+-]+).*"), r"\1"),
    (("not found - ",), re.compile(r"^(?:404 )?Not Found - (?:GET"
     r"|PUT) \S+?/(?:(@[^/\s%]+)%2f)?([^/\s]+)(?: - Not found)?$", re.I), r"no package '\1\2'"),
    (("assert",), re.compile(r"AssertionError: (?=assert )"), ""),
    ((".",), re.compile(r"\.(?<=[a-z_]\.)\d+(?=\.[A-Za-z_])"), ""),  # `items.0.price`
    (("desc = ",), re.compile(r"rpc error: code = \w+ desc = "), ""),
    (("with ",), re.compile(r"^.* with (?:the )?(?:reason|message)(?: string)? (['\"])(.+)\1"), r"\2"),
    (("with id",), re.compile(r"\bwith id:? \S*[^\s.,;]", re.I), MASK),
    (("json",), re.compile(r"(Unexpected token) .*(?: in JSON at position \d+.*| is not valid JSON)"), r"\1 in JSON"),
    # Coordinates of Maven, and fields of a log line behind the message.
    (("com.", "org.", "net.", "io.", ":jar:"),
     re.compile(r"(?<![\w:/.])([a-z][\w.-]*:[a-z][\w.-]+)(?::[a-z]+)?:\d[\w.-]*"), r"'\1'"),
    (("=",), re.compile(r" \w+=[^\s\"']\S*(?: \w+=[^\s\"']\S*){2,}"), ""),
    # Hedges: what else may be the reason.
    ((" or the ", "or resource", "or it ", "or may ", ", please "),
     re.compile(r" \(?or (?:the )?(?:resource|scope|it)\b[\w ]* (?:not exist|invalid)\)?| or may require .*"
                r"|, please .*", re.I), ""),
    (("nil:nilclass",), re.compile(r"(?<=\bnil):NilClass"), ""),
    (("panicked at '",), re.compile(r"^thread '[^']*' panicked at '(.*)', \S+$"), r"\1"),
    (("out of memory. ", "allocating tensor"), re.compile(r"(out of memory|allocating tensor)\W.*", re.I), r"\1"),
    (("unresolved reference",), re.compile(r"(unresolved reference):? '?([\w.]+)'?", re.I), r"\1 '\2'"),
    (("not found",), re.compile(r"File [`']([^'\s]+)\.(?:sty|cls)' not found"), r"no package '\1'"),
    (("referenced in ", "error)", ". (", ' {"', "(status code", "(service:"),
     re.compile(r" referenced in .*| \((?:[A-Z]\w*::)*[A-Z]\w*Error\)$|(?<=\.) \(\w+\)$|(?<=[\w).]) \{\"\w+\":.*"
     r"|(?<=:) \{\"\w+\":[^{}]*\}$| \(status code: \d+\)$| \(Service: [^()]*\)"), ""),
    # OpenSSL's reason.
    (("error:0", "error:1", "error:8"), re.compile(r".*\berror:[0-9A-F]{8}:[^:]*:[^:]*:([^:)]+).*", re.S), r"\1"),
    (("commits between ",), re.compile(r"(commits between ).*"), rf"\1{MASK}"),
    # A resolver gives its reason first, and then says for which project.
    (("because ",), re.compile(r"(\bbecause )\S+(?: \(\S+\))?(?= depends on .* which )", re.I), rf"\1{MASK}"),
    (("because ",), re.compile(r"((?:^|[: ])because .+?)(?: and |, ).*", re.I), r"\1"),
    (("provides package",), re.compile(r"(provides package \S+?)[;:] .*"), r"\1"),
    (("][", "] ["), re.compile(r"(?:\('\w{5}', \")?(?:\[[A-Za-z\d][\w ./]+\] ?){2,}(?:\(-?\d+\))?"), ""),
    (("full error", "[recovered]", "(http ", "] ", " in $path", "(publickey,", "(sql", "`.`"),
     re.compile(r"\.?, full error: .*| \[recovered\].*| \(HTTP \d{3}\)$|\] (?:\{|\w+: .*\})$| in \$PATH\b"
     r"|(?<=\(publickey),[\w,-]+| \(\d+\) \(SQL\w+\).*|`[^`\s]+`\.(?=`)", re.I), ""),
    # Only a denial is about the operation.
    (("when calling the ",), re.compile(r".*\bAn error occurred \((?!\w*(?:Denied|Unauthorized|Forbidden))\w+\) when "
     r"calling the \w+ operation(?: \([^()]*\))?: (?=(?:\S+ +){2})"), ""),
    # A shell names the signal by words, before the command.
    (("killed", "fault", "aborted", "bus error", "instruction", "exception"),
     re.compile(r"^(?:\S+: )?(?:line \d+: )?(?:\d+ )?(Killed|Segmentation fault|Aborted|Bus error|Illegal instruction"
     r"|Floating point exception)(?:: \d+)?(?: \(core dumped\).*|(?<=\d .{6}) .*)?$", re.I), r"signal \1"),
    # `make` and npm name the exit code of a program that a signal ended.
    (("] error 1", "code 1"),
     re.compile(r"^(?:(?:\w+(?:\[\d+\])?: )?(?:\*\*\* )?\[[^\]]*\] Error|code) (1[34]\d)$"), r"exit code \1"),
    # A shell's script and line do not say what is wrong.
    ((": ",), re.compile(r"^(?:[\w./~-]*/)?(?:[\w.-]+\.sh: (?:line )?\d+"
     r"|(?:bash|dash|zsh|sh)(?:: -c)?(?:: (?:line )?\d+)?): "), "sh: "),
    # Each shell words a missing command differently.
    (("not found", "unknown command", "not recognized as"),
     re.compile(
            r"^(?:(?:-?sh|-?zsh|fish|k?sh|ash|nu): )?(?:(?:(?:line )?\d+: )?)(?:command not found|Unknown command):? "
            r"['\"`]?([^\s'\"`:]+)['\"`]?$|^(?:sh|zsh|ash): (?:\d+: )?([^\s:]+): (?:command )?not found$"
            r"|^([^\s:]+): command not found$"
            r"|^(?:\S+ ?: )?(?:The term )?'([^\s']+)' is not recognized as (?:(?:the|a) name of|an internal or) .*"),
     lambda match: f"sh: {next(filter(None, match.groups())).lower()}: command not found"),
    # Words of an XML or HTML answer, without tags and the request's own names.
    (("<title>",), re.compile(r"^.*<title>(.*?)</title>.*", re.I), r"\1"),
    (("</",), re.compile(r"<(Key|RequestId|HostId|Resource|BucketName)>[^<]*</\1>"), ""),
    ((" :",), re.compile(r" +:(?= )"), ":"),
    # The fields of a log line.
    (("=",),
     re.compile(r"\b((?:user|username|host|hostname|ip|addr|peer|client|id|pid|\w+_id|session|trace|span|account|email|"
     r"node|pod|queue|job|task|worker|thread|took|duration|elapsed|path|file|url|uri)=)[^\s,;)'\"]+", re.I), r"\1<*>"),
    # A later sentence that only gives advice.
    ((". ", "; ", ": "),
     re.compile(r"[.;:] +(?:check(?! failed)|please|for (?:more|further|details|help)|see|try|run|did you|make sure"
    r"|ensure|to|if|"
     r"use(?! of)|consider|visit|note|refer|"
     r"enable|this command|reason:|dependency annotations|the \S+ option|more details|"
     r"you (?:can|may|should|must|need)|is the|are you|contact|did you) .*", re.I), ""),
    (("=", "<", ">", "@"), re.compile(r"(?<=\w)@(?:[\^~<>=]{0,2}v?\d[\w.-]*?|\*|latest)(?=[.,;:]?(?:\s|$)|['`\",)])"
     r"|(?<=[\w\]])(?:===?|>=|<=|~=|!=|<|>)\s?\d[\w.*+!]*(?:,\s?(?:[<>=!~]=?)\s?\d[\w.*]*)*"), ""),
    ((".exe: ",), re.compile(r"^(\w+)\.exe(?=: )"), r"\1"),
    (("install_",), re.compile(r"^.*\b(INSTALL_(?:PARSE_)?FAILED_\w+).*"), r"\1"),
    (("(code=",), re.compile(r"^<?\w+: \(code=-?\d+, message=(.*?)\)>?(?:, <.*)?$"), r"\1"),
    ((":latest",), re.compile(r"(?<=\w):latest\b"), ""),
    (("http/",), re.compile(r"\bHTTP/\d(?:\.\d)?\b", re.I), "HTTP"),
    # A set as the first character makes the search fast.
    (("1", "2", "3", "4", "5"), re.compile(r"([1-5](?<=\b[1-5])\d\d) (?:"
     + "|".join(sorted((re.escape(each.phrase) for each in HTTPStatus), reverse=True))
     + r"|Gateway Time-out|Service Temporarily Unavailable)\b", re.I), r"\1"),
)  # fmt: skip
