"""Give the class and text of an error one form, whatever framework handed it over.

The same exception arrives as a type and text, a `repr`, a sentence, or a traceback. Its form is the class without
package, and the template of the line that says what went wrong. The template masks as `<*>` what differs between
instances: paths, hosts, users, ids, times, sizes, values. It keeps names that advice would give: commands, packages,
functions, options, tables, keys, codes. Texts that the same advice serves shall share a template.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import NamedTuple

from fleetlore.fingerprint.frames import head_line, unescaped
from fleetlore.fingerprint.identity import identity_of, sentences_of
from fleetlore.fingerprint.template_rules import LOOKS, MASK, PLACES, QUOTED, SYSTEM_SAYS, Rule
from fleetlore.fingerprint.wordings import CODES_BEFORE, GLUE, INSTANCES, NOISE, SENTENCE, WRAPPERS

__all__ = ["head_line", "is_sentence", "template"]

# Texts in lower case: each match holds one of them. Then the functions that mask.
_Masks = tuple[tuple[str, ...], tuple[Callable[[str], str], ...]]

MAX_TEMPLATE = 240
# Characters read of the head line: every mask scans them.
_MAX_LINE = 600

# A text that was searched for in vain. It is the failure itself, so it is kept.
_SOUGHT = re.compile(
    rf"\bno (?:match(?:es)?|occurrences?|references?)(?: \w+)? (?:for|of):? ({QUOTED}|.{{1,80}}?)(?= in |$)"
    r"|\bprovides package ([^\s;:]+)|\bto perform (?:the )?(?:action )?('[^']*'|\S+)",
    re.I,
)
_SOUGHT_WORDS = ("no ", "to perform ", "provides")
_KEPT = "\x1a"
# Chinese, Japanese and Korean put no blank between words and numbers, but masks need word ends.
_CJK, _WORDS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af", "A-Za-z0-9"
_BESIDE_CJK = re.compile(f"(?<=[{_CJK}])(?=[{_WORDS}])|(?<=[{_WORDS}])(?=[{_CJK}])")

_QUOTED_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
# `QUOTED` between no letters. A set as the first character makes the search fast.
_ANY_QUOTED = re.compile(
    r"['\"`‘“](?<!\w.)(?:(?<=')[^']*'|(?<=\")[^\"]*\"|(?<=`)[^`']*[`']|(?<=‘)[^’]*’|(?<=“)[^”]*”)(?!\w)"
)
# A possible name for advice: a word with the characters that join names, a few words in lower case, or a command.
_NAME = re.compile(
    r"[A-Za-z_$@-][\w$@.:+#/-]{0,63}(?:\(\))?|[A-Za-z]+(?: [a-z]+){1,5}|[\w.-]+(?: --?[\w-]+){1,2}|--[\w-]+[ =]<\w+>"
    r"|(?:[A-Z]\w*\\{1,2}){1,6}[A-Z]\w*"
)
_TITLE = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+){1,3}")
_LEADING = frozenset({"the", "name", "named", "id", "with", "called"})
_VALUES = re.compile(r"\[[\s,.;:<*>-]*\]|\([\s,.;:<*>-]*<\*>[\s,.;:<*>-]*\)|\{[\s,.;:<*>-]*\}")
_WITH_MASK = re.compile(r"\[[^\[\]]*<\*>[^\[\]]*\]")
_QUOTED_MASK = re.compile(r"['\"`‘“]<\*>['\"`’”]")
_RUN = re.compile(r"<\*>(?:[\s,.;:/=*_-]*<\*>)+")
_AT_LINE = re.compile(r" (?:at|on) line <\*>(?:,? col(?:umn)? <\*>)?|(?<=\bline )<\*>(?:,? col(?:umn)? <\*>)?", re.I)
_LINE_MASK = f"line {MASK}"
# Brackets with a mask at the end: details of one instance.
_ASIDE = re.compile(rf" ?\((?![^()]*(?:{SYSTEM_SAYS}))[^()]*<\*>[^()]*\)[.!]?$", re.I)
_ASIDE_ENDS = (")", ").", ")!")
# Words that cannot end a sentence, searched in its last characters.
_INCOMPLETE = re.compile(r"\b(?:an?|the|this|that|existing|valid|needs?|requires?|missing|without) $", re.I)
_LONGEST_INCOMPLETE = 16
# A template's code begins within these characters.
_MAX_BEFORE_CODE = 48
_PLAIN, _LETTERS = re.compile(r"\b[^\W\d_]{2,}\b"), re.compile(r"[a-z]{2,}")
# With three words outside quotes the class adds nothing, and varies by framework.
_ENOUGH_WORDS = 2

MAX_CLASS = 128
_SEARCHED = 2_000
_MAX_WRAPPERS = 4
# The failure is behind the last of these.
_NESTS = re.compile(
    r"(?:; nested exception is |MCP error -?\d+: (?:Invalid arguments for tool \S+: )?|\bapi error \w+: |, stderr: "
    r"|Error running query: |\b(?:original|this is the|root) (?:error|cause)(?: is| was)?: "
    r"|\b(?:error|exception) message(?: from server)?: |\[[45]\d\d (?-i:(?:[A-Z]\w*+ ?)++)\] )",
    re.I,
).finditer
_NEST_WORDS = (
    "; nested", "mcp error", "api error", ", stderr", "error running", "nal error", "the error", "root ",
    "error message", "exception message", "[4", "[5",
)  # fmt: skip

# A code that names the failure in any language.
_CODED = re.compile(r"((?:ora|pls|tns|sp2)-\d{4,5}|(?:error )?(?:ts|cs|ms|msb|nu|c|lnk)\d{4,5}):")
_SUFFIXES = ("Error", "Exception", "Warning", "Interrupt", "Exit", "Timeout", "Iteration")
_SUFFIX = f"(?:{'|'.join(_SUFFIXES)})"
_NAMED = re.compile(
    rf"(\(?)((?:[A-Za-z_]\w{{0,63}}\.){{0,8}}(?:[A-Z][\w$]*{_SUFFIX}|Error|Exception)"
    r"|(?:[a-z_]\w{0,63}\.){1,8}(?:[A-Z]\w*|error)|(?:[A-Z]\w{0,63}(?:::|\\)){1,8}[A-Z]\w*)"
    r"(?: ?\[\w+\](?=:))?(?: ?: +|:$|$| \(0x[0-9a-f]+\): +|(?=\()|\[(?=.*\]$)|(?<=\w)\) +)"
)
_OF_REPR = re.compile(r"\((['\"])(.*)\1,?\)$")
_QUOTED_LINE = re.compile(r"(?:[a-z]\w*: )?(['\"])((?:(?!\1)[^\\]|\\.)*)\1")
# The name of a program in front.
_PROGRAM = re.compile(r"^[a-z][\w.+-]{1,20}: (?=\S+ \S)")
# The sign in `doesn't` begins no quoted name.
_CONTRACTED = re.compile(r"(?<=[a-z])['’](?=(?:t|s|re|ve|ll|d|m)(?![\w'’]))")
_EXCEPTION = re.compile(rf"\b(?<![A-Za-z_]\.)((?:[A-Za-z_]\w*\.){{0,16}}[A-Z]\w*{_SUFFIX})\b")
_HTTP = re.compile(
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|(?<!exit )(?<!exited with )status(?:[ _]?code)?|response(?: code)?)[ :=]{1,3}"
    # 127 and 137 are exit codes of programs, not HTTP statuses.
    r"(10[0-3]|20[0-8]|226|30[0-8]|[45]\d\d)\b"
    r"|\berror(?: code)?[ :=]{1,3}([45]\d\d)\b"
    r"|\b([45]\d\d) (?=(?-i:[A-Z][a-z]|(?:GET|POST|PUT|PATCH|DELETE|HEAD) \S*[/:]))",
    re.I,
)
# Arguments and names within a framework's words say nothing about the failure.
_GIVEN = re.compile(r"\{.*|'[^']*'|\"[^\"]*\"|\berror in .*", re.I)
_ERRNO = re.compile(r"\berrno[ :=]*(\d+)", re.I)
_ENDED = r"(?: with)?(?: an?)?(?: non-zero)?"
_EXIT = re.compile(
    rf"\b(?:exit(?:ed)?{_ENDED}(?:[ _-]?(?:exit )?(?:status|code))?"
    rf"|(?:return(?:ed)?|finished|terminated|ended|failed|died){_ENDED}(?: (?:exit|return))?"
    r"[ _-]?(?:status(?: code)?|code)|rc)"
    r"['\"]?[ :=(]{1,3}(-?\d{1,10})\b",
    re.I,
)
# Faults that are nearly always transient, as network time-outs are. A tool's own time-outs recur.
_PASSING = re.compile(
    r"(?:connection|connect|read|request|socket|network|gateway)[ _-]?timed?[ _-]?out|temporarily|rate.?limit"
    r"|temporary (?:condition|error|failure|fault|glitch|issue|network|outage|overload|problem|server|unavailab)"
    r"|\bis (?:only )?temporary\b|too many requests|try again (?:later|in)|service unavailable"
    r"|connection (?:reset|aborted)|bad gateway|(?<!call of )(?<!matching )overloaded(?! (?:func|meth|oper))",
    re.I,
)
# Names are no faults: a parameter `request_timeout`, an option `--rate-limit`.
_THING = re.compile(
    r"\b(?:KeyError|argument|attribute|column|field|flag|function|key|keyword|method|module|name|option|parameter"
    r"|variable)s?:? "
    r"(['\"`‘“]).{1,60}?['\"`’”]|(?<!\w)--[\w-]{2,60}",
    re.I,
)
_STATUS, _DIGIT = re.compile(r"[1-5]\d\d"), re.compile(r"\d")
_EXIT_WORDS = ("exit", "return", "finish", "terminat", "ended", "fail", "died", "rc")
_PASSING_WORDS = (
    "time", "temporar", "limit", "too many", "try again", "unavailable", "connection", "gateway", "overloaded",
)  # fmt: skip
_PASSING_STATUS = frozenset({"429", "502", "503", "504"})
# These identities are transient in each of their wordings.
_PASSING_CODES = frozenset({"reset", "requests", "connect time", "no resolver"})


def _grouped(rules: tuple[Rule, ...]) -> tuple[_Masks, ...]:
    return tuple(
        (marks, tuple(_mask(pattern, instead) for _, pattern, instead in group))
        for marks, group in groupby(rules, key=itemgetter(0))
    )


def _mask(pattern: re.Pattern[str], instead: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    """An anchored pattern is tried only at the start: a search would try every place."""
    if isinstance(instead, str) and "\\" in instead:
        instead = methodcaller("expand", instead)
    if pattern.pattern[0] != "^":
        return partial(pattern.sub, instead)
    return lambda line: line if pattern.match(line) is None else pattern.sub(instead, line)


_NOISE, _PLACES, _LOOKS = map(_grouped, (NOISE, PLACES, LOOKS))


def template(line: str) -> str:
    """A head line, masked, in lower case, at most `MAX_TEMPLATE` characters."""
    return _masked_line(line).casefold()


def _masked_line(line: str) -> str:
    if not line.isascii():
        line = _BESIDE_CJK.sub(" ", line)
    return _template(" ".join(line[:_MAX_LINE].split()))


@lru_cache(maxsize=8192)  # an error is read again when its session is distilled
def _template(line: str) -> str:
    if not line:
        return ""
    line, sought = _without_sought(line)
    line = _masked(line, line.lower(), _NOISE)
    line = _masked(line, line.lower(), _PLACES)
    # A sentence's dot does not belong to a file, host or address.
    line = _masked(line, line.lower().replace(". ", " ").rstrip("."), _LOOKS)
    line = _ANY_QUOTED.sub(_quoted, line)
    if MASK in line:
        for _ in range(4):  # values may lie in one another
            shorter = _RUN.sub(MASK, _VALUES.sub(MASK, _QUOTED_MASK.sub(MASK, line)))
            if shorter == line:
                break
            line = shorter
        if _LINE_MASK in line.lower():
            line = _AT_LINE.sub("", line)
        line = _WITH_MASK.sub(MASK, line)
        if line.endswith(_ASIDE_ENDS):
            line = _ASIDE.sub("", line)
    line = _without_tail(line)
    return line.rstrip(" .,;:").replace(_KEPT, sought)[:MAX_TEMPLATE].strip() or MASK


def _masked(line: str, marked: str, rules: tuple[_Masks, ...]) -> str:
    for marks, masks in rules:
        for mark in marks:
            if mark in marked:
                for mask in masks:
                    line = mask(line)
                break
    return line


def _without_sought(line: str) -> tuple[str, str]:
    found = _SOUGHT.search(line) if _has_any(line.lower(), _SOUGHT_WORDS) else None
    if found is None:
        return line.replace(_KEPT, ""), ""
    start, end = found.span(found.lastindex or 1)
    return line[:start].replace(_KEPT, "") + _KEPT + line[end:].replace(_KEPT, ""), found[found.lastindex or 1]


def _quoted(match: re.Match[str]) -> str:
    """Keep what may be a name, unless a kind of instance precedes it."""
    quoted, start = match.group(), match.start()
    if not _NAME.fullmatch(quoted[1:-1]):
        titled = _TITLE.fullmatch(quoted[1:-1]) and match.string.endswith(" name ", 0, start)
        return quoted.replace(" ", "_") if titled else MASK
    words = match.string[max(0, start - 40) : start].lower().replace(":", " ").split()
    while words and words[-1] in _LEADING:
        words.pop()
    # `type or namespace name 'x'` and `depends on a node named 'x'` are code.
    if not words or words[-2:-1] == ["or"] or "depends" in words:
        return quoted
    kind = words[-1].partition(".")[0].strip("\"'(,")
    if kind == "pod" and not quoted.islower():  # of CocoaPods
        return quoted
    return MASK if kind in INSTANCES or kind.removesuffix("s") in INSTANCES else quoted


def _without_tail(line: str) -> str:
    """A line that would be incomplete (`needs a <*>`) keeps its."""
    while True:
        line = line.rstrip(" .,;:!")
        bare = line.rstrip(")]")
        if bare.endswith(MASK):
            before = bare[: -len(MASK)]
            if before.endswith(" ") and _INCOMPLETE.search(before[-_LONGEST_INCOMPLETE:]):
                return bare
            line = before.rstrip(" ([#")
            continue
        before, _, last = line.rpartition(" ")
        if not before or last.lower().lstrip("([") not in GLUE:
            return line
        line = before


class _NormalForm(NamedTuple):
    error_class: str
    template: str
    transient: bool
    identity: str


# The masks are for ASCII's digits. Errors in other scripts have others, such as full-width ones.
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")


@lru_cache(maxsize=16_384)
def normal_form(error_type: str, message: str) -> _NormalForm:
    """The form of an error. Its class with the same message gives the same form."""
    if not message.isascii():
        message = _OTHER_DIGIT.sub(lambda digit: str(int(digit[0])), message)
    head = head_line(message)[:_SEARCHED]
    error_class = _simple(error_type.strip())
    if error_class and (_is_wrapper(error_class) or _repeats(error_class, message)):
        error_class = ""
    elif len(error_class) == 3 and error_class.isascii() and error_class.isdigit():
        error_class = f"http_{error_class}"  # an HTTP client's `error.type` is the status
    error_class, line = _without_wrappers(error_class, head)
    frame = head.removesuffix(line)
    line = _unquoted(line, error_class)
    codes = CODES_BEFORE.match(line)
    text = template(line[codes.end() :] if codes else line)
    # A sentence behind a status names the failure. The status still says whether it passes.
    status = _HTTP.search(line) or _HTTP.search(_GIVEN.sub(" ", frame) + line) if _STATUS.search(head) else None
    stated = error_class
    error_class = stated or _class_by_text(message, line, status, text)
    transient = (
        (status is not None and _group(status) in _PASSING_STATUS)
        or error_class.removeprefix("http_") in _PASSING_STATUS
        or _passes(line if error_class.islower() else f"{error_class}: {line}")
    )
    if (coded := _coded(f"{codes.group().casefold()}{text}" if codes else text)) is not None:
        return _NormalForm(error_class[:MAX_CLASS], text, transient, coded)
    sentences = map(_masked_line, sentences_of(line[codes.end() :] if codes else line))
    identity = identity_of((*([stated] if stated else []), *sentences), _group(status) if status else "")
    if identity is None:
        words = len(_PLAIN.findall(_QUOTED_TEXT.sub(" ", text)))
        stated = (
            "" if text == error_class.lower() or words >= (_ENOUGH_WORDS if stated else 1) else error_class[:MAX_CLASS]
        )
        identity = f"{stated}\x1f{_PROGRAM.sub('', text)}"
    transient |= identity in _PASSING_CODES
    return _NormalForm(error_class[:MAX_CLASS], text, transient, identity)


def _repeats(error_class: str, message: str) -> bool:
    if not error_class.islower() or error_class.startswith("http_"):
        return False
    message = message.lower()
    return all(word in message for word in error_class.split("_"))


def _coded(text: str) -> str | None:
    if _DIGIT.search(text, 0, _MAX_BEFORE_CODE) is None or (found := _CODED.search(text, 0, _MAX_BEFORE_CODE)) is None:
        return None
    words = {word.strip(".,:;()[]") for word in text[found.end() :].split()}
    names = sorted({word.strip("'\"`‘’“”«»") for word in words if not word.isalpha() and "(" not in word} - {MASK})
    return " ".join((found[1].removeprefix("error "), *names))


def _has_any(text: str, words: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, words))


def _passes(said: str) -> bool:
    has_word = _has_any(said.lower(), _PASSING_WORDS)
    return has_word and bool(_PASSING.search(said) and _PASSING.search(_THING.sub(" ", said)))


def _simple(name: str) -> str:
    """The name of a class without its package and, in Java, the class around it."""
    return name.rpartition(".")[2].rpartition("$")[2]


def _is_wrapper(error_class: str) -> bool:
    return "".join(filter(str.isalnum, error_class)).lower() in WRAPPERS


def _without_wrappers(error_class: str, line: str) -> tuple[str, str]:
    if _has_any(line.lower(), _NEST_WORDS):
        behind = [nests.end() for nests in _NESTS(line) if nests.end() < len(line)]
        line = line[behind[-1] :] if behind else line
    for _ in range(_MAX_WRAPPERS):
        if sentence := SENTENCE.match(line):
            line = line[sentence.end() :]
            continue
        named = _NAMED.match(line)
        if named is None or bool(named[1]) != named.group().rstrip().endswith(")"):
            break
        name = _simple(named[2])
        own = not _is_wrapper(name)
        if own and error_class not in ("", name) and not named[1]:
            break
        rest = line[named.end() :]
        said = _OF_REPR.match(rest)
        # The text of a `KeyError` is the `repr` of its key.
        line = rest if said is None else rest[1:-1].rstrip(",") if name == "KeyError" else said[2]
        if own:
            error_class = error_class or name
            if not line.startswith(("(", "<class '")):
                return error_class, line
    return error_class, line


def is_sentence(text: str) -> bool:
    """Whether a quoted text is no name or key: it has four words or more."""
    return len(text.split(None, 3)) > 3


def _unquoted(line: str, error_class: str) -> str:
    """Remove the quotes of a wholly quoted line, such as a `KeyError`'s `repr`; a name or key keeps them."""
    quoted = _QUOTED_LINE.fullmatch(line)
    if quoted is None or not (is_sentence(text := quoted[2]) or (" " in text and error_class != "KeyError")):
        return line
    return head_line(unescaped(text))


def _class_by_text(message: str, line: str, status: re.Match[str] | None, text: str) -> str:
    # The last one was raised; the others are causes or handlers.
    searched = message[:_SEARCHED]
    found = _EXCEPTION.findall(searched) if _has_any(searched, _SUFFIXES) else ()
    for name in reversed(found):
        if not _is_wrapper(own := _simple(name)):
            return own
    # The code comes from the template's line: later lines differ between versions of a tool.
    if status is not None:
        return f"http_{_group(status)}"
    folded, has_digit = line.lower(), _DIGIT.search(line) is not None
    for pattern, kinds, name in ((_ERRNO, ("errno",), "errno"), (_EXIT, _EXIT_WORDS, "exit")):
        if has_digit and _has_any(folded, kinds) and (match := pattern.search(line)) is not None:
            return f"{name}_{_group(match)}"
    if "'" in text or "’" in text:
        text = _CONTRACTED.sub("", text)
    words = _LETTERS.findall(_QUOTED_TEXT.sub(" ", text))
    return "_".join(words[:6]) or "error"


def _group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)
