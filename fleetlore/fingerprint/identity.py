"""Decide which failure an error text is: the kind of failure, and the names that it is about.

Drivers, shells, loggers and versions word one failure differently, but its kind and names stay. `PHRASES` lists the
wordings of each kind, each row with an example that needs it. The clause with a phrase and a name decides. Without a
phrase, the clause with the most words decides, by these words.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from fleetlore.fingerprint.template_rules import MASK
from fleetlore.fingerprint.wordings import PHRASES, PhraseBook

__all__ = ["has_phrase", "identity_of", "sentences_of", "words_of"]


# Words for a named thing: drivers use different ones.
_THINGS = {
    word: thing
    for thing, words in {
        "column": "column columns field fields",
        "table": "table relation view",
        "module": "module package packages library crate gem dependency pod specification",
        "attribute": "attribute property member",
        "function": "function method procedure operator",
        "type": "type types class struct trait",
        "variable": "variable name symbol identifier value global local",
        "command": "command program executable",
        "option": "option flag argument arguments parameter options keyword",
        "file": "file directory folder path",
        "version": "version versions",
    }.items()
    for word in words.split()
} | {
    word: word
    for word in """
    account action activity address agent analyzer asset attachment backup block branch bucket bundle certificate
    channel chunk claim client cluster collection commit config configuration connection constraint container cookie
    cursor database dataset device document domain driver endpoint entry environment event exchange extension
    feature feed flow form group header host image index instance interface item job kernel key layer mapping
    message model network node object organization page partition pattern pipeline plugin policy pool port process
    profile project provider query queue record region release remote replica repo repository resource role route
    row rule schema scope script secret section segment sequence service session setting shard site snapshot stage step
    stream subnet tag target task team template tenant thread token tool topic transaction trigger user volume
    workflow workspace zone
    """.split()  # noqa: SIM905
}
_EMPTY = frozenset(
    """
    a an the for in of to is was be are were with by on at from and or not no this that it as has have had do does
    did can cannot could will would current currently named called any some all its your you we error failed fatal
    failure following when if but there which into via than then so because while line server occurred calling
    operation request response uncaught unhandled promise rejection open opening read reading write writing start
    stop mkdir unlink scandir stat detail details message msg text reason desc context code after before during over
    under between about per specified requested access given provided exists exist found please sure make get
    through without against until since still never also just only again ever exception specific
    fehler erreur errore erro fout
    """.split()  # noqa: SIM905
)
_SAY_NOTHING = _EMPTY | _THINGS.keys() | {MASK}
# Words of texts that only give an HTTP status.
_HTTP = (
    frozenset(re.findall("[a-z]+", " ".join(each.phrase for each in HTTPStatus).lower()))
    | frozenset(
        """
    api client code http https status statuscode url get post put delete patch unexpected returned received got
    content entity time-out temporarily
    """.split()  # noqa: SIM905
    )
    | _EMPTY
    | {MASK}
)
# A name behind one of these is the failure's place, not its subject.
_PLACES = frozenset({"in", "from", "at", "within", "inside"})
# Things that differ even if they have one name.
_DISTINCT = frozenset({"column", "table"})
# Kinds without names, as the codes of systems name them.
_BARE = {("missing", "file"): "no file", ("denied", ""): "no access"}
# Kinds that need the word behind a colon, be it a name or not.
_NEED_NAMES = frozenset({"invalid", "unsupported"})
# Words of a clause that only adds a name or code behind another, or a program before it.
_MAX_BEHIND, _MAX_BEFORE = 3, 2
# Characters of a line in which a wording is sought.
_MAX_SEARCHED = 600
# A clause without a phrase says which failure it is with this many words.
_MIN_WORDS = 2
# The last of the clauses with this many words is the cause.
_MAX_WORDS = 4

# Sentences in quotes behind a sign or in brackets are masked apart: quoted ones look like values. Brackets before a
# quote may be within it, as in a quoted query.
_WITHIN = re.compile(
    r"(?:(?<=[=(\[])|(?<=, )|(?<=desc = )|(?<=returned )|(?<=: )(?<!directory: )(?<!denied: ))"
    r"([\"'])(?![/~])((?:(?!\1)\S)+(?: (?:(?!\1)\S)+){2,}) ?\1(?!\w)"
    r"| \((?!\d+, )((?:[^()\s]+ ){3}[^()]*)\)(?=[^'\"]*$)"
)
# `Lottie (~> 0.4)`, `(VERR_NO_VMX)`
_ASIDE = re.compile(r" \((?:[~^<>=!]+ ?v?\d[^()]*|[A-Z][A-Z\d]*_[A-Z_\d]+|or \w[^()]*)\)")
_END = re.compile(
    r"[;.!?, ](?:(?<=;) +|(?<=[.!?])(?: +(?=[A-Z])|$)|(?<=,) +(?!but)|(?<= )(?:because "
    r"|while (?=\w+ing (?:it|an?|the)\b)|[-—|] ))"
)
# The text behind a colon is the cause, or the details, of the text before it.
_COLON = re.compile(
    r"[:=](?:(?<=[\w'\"`)\]>]:) +(?<!\btable: )(?<!\bindex: )(?<!\bcolumn: )(?<!\bpassword: )(?<!\bcollection: )"
    r"|(?<=:) *$|(?<==)(?=[\"']))"
)
_LABEL = re.compile(r"(?:\W?[\[(](?![Ee]rrno|[Ww]in[Ee]rror)[\w .:@#,/+-]*[\])]:? +(?=\S))++|\d+ +")  # `(raylet) `
_TOKEN = re.compile(
    r"(?<![\w<])(?P<plain>[a-z]+)(?![\w+.'’/#$-]|::)"  # most words, tried first
    r"|(?<![\w<])'(?P<single>[^\s'<>]{1,80})(?: [^']{0,40})?'(?!\w)"
    r"|(?<!\w)\"(?P<double>[^\s\"<>]{1,80})(?: [^\"]{0,40})?\"|`(?P<tick>[^\s`'<>]{1,80})(?: [^`']{0,40})?[`']"
    r"|(?<=\[)(?P<bracket>\.?[A-Za-z][\w.-]*)(?=\])"
    r"|(?<![\w<'\"`.-])(?P<code>@?\$?(?:[A-Za-z_][\w$-]*(?:\.|::|/|#))+[\w$-]+(?:\(\))?|[A-Za-z]*_\w+|[a-z]+[A-Z]\w*"
    r"|[A-Z][a-z]+[A-Z]\w+|--?[a-z][\w-]+|@[\w/-]+|\$\w+)(?![\w>])"
    r"|(?P<mask><\*>)|(?P<word>(?<![\w<])[^\W\d_](?:[\w+-]|\.(?=\w)|['’](?=t\b))*(?:/\d+)?)"
    r"|(?P<number>(?:(?<![\w.])-)?\d[\w.]*)"
)
_NAMES = frozenset({"single", "double", "tick", "bracket", "code"})
_WORD = re.compile(r"[^\W\d_][\w'’-]*|\d+")
# One word made of several: `ResourceNotFoundException`, `COLUMN_NOT_FOUND`, `value_error.missing`.
_CODE = re.compile(
    r"\(?(?:[A-Za-z]\w*(?:\.|::))*(?:[A-Z][a-z]\w*|[A-Z][A-Z\d]*(?:_[A-Z\d]+)+|[a-z]+(?:_[a-z]+)+|[a-z_]+\.[a-z_]+)\)?"
)
_LONE_CODE = re.compile(r"[a-z]+(?:_[a-z]+)+")
_JOINTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
# A clause that is the type of an error.
_TYPE = re.compile(
    r"(?:\w+(?:\.|::))*[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z][A-Z\d]+(?:_[A-Z\d]+)+|E[A-Z]{4,}|\w*(?:Error|Exception)"
    r"|[a-z_]+_error"
)
_DENIES = frozenset({"not", "cannot", "fails"})
_ERRORS = ("Error", "Exception")
_QUOTES = ("'", '"')
_FAILS = re.compile(
    r"\b(?:not?|never|cannot|unable|fail(?:s|ed|ure)?|error|fatal|abort(?:ed|ing)?|crash\w*|panic|denied|refused)\b"
    r"|n['’]t\b|(?:Error|Exception)\b|(?-i:\bE[A-Z]{4,}(?![\w ]))",
    re.I,
).search
_RELEASE = re.compile(r"(?<=\w)@.*|[~^<>=]=?\s?v?\d.*$|/v?\d[\d.]*$")  # `fmt/10.1`


_phrases = PhraseBook(PHRASES).found
_DECIDING = {phrase.kind for phrase in PHRASES if phrase.decides}


class _Clause(NamedTuple):
    """A part of a sentence.

    `kind`, `code`: of its first phrase, and of the last that decides. `names`: none of the place if the subject has
    one. `words`: outside phrases and names. `rank`: from -1 (no phrase) to 3 (phrase and name).
    """

    text: str
    kind: str
    code: str
    thing: str
    names: frozenset[str]
    words: frozenset[str]
    spoken: tuple[str, ...]
    rank: int

    @property
    def length(self) -> int:
        return self.text.count(" ") + 1

    @property
    def telling(self) -> list[str]:
        """Its words and names, in order, without those that every failure has."""
        return [] if self.is_type else [word for word in self.spoken if word != MASK and word not in _EMPTY]

    @property
    def worth(self) -> int:
        """The number of telling words, at most `_MAX_WORDS`. A denial is worth one more."""
        count = len(set(self.telling))
        return _MAX_WORDS + 1 if count >= _MIN_WORDS and not _DENIES.isdisjoint(self.spoken) else min(_MAX_WORDS, count)

    @property
    def is_type(self) -> bool:
        return _TYPE.fullmatch(self.text) is not None

    @property
    def says_more(self) -> bool:
        """Whether it says more than an HTTP status."""
        return not (self.is_type or all(word in _HTTP or word.lstrip("-").isdigit() for word in self.spoken))


def sentences_of(line: str) -> list[str]:
    if "'" in line or '"' in line or " (" in line:
        line = _WITHIN.sub("\n\\2\\3\n", _ASIDE.sub("", line) if " (" in line else line)
    return [part for part in line.split("\n") if part.strip()]


def has_phrase(line: str) -> bool:
    """Whether the start of a line holds a wording of `PHRASES`, other than a number."""
    return bool(_phrases([word for word in words_of(line[:_MAX_SEARCHED]) if not word.isdigit()]))


def says_failure(line: str) -> bool:
    return _FAILS(line, 0, _MAX_SEARCHED) is not None


def words_of(line: str) -> list[str]:
    """Return the words of a line in lower case, without its names and signs."""
    return [part for word in _WORD.findall(line.lower()) for part in _expanded(word)]


def identity_of(masked: Iterable[str], status: str = "") -> str | None:
    """The failure's identity in masked sentences, or None if they say too little. `status`: their HTTP status."""
    clauses: list[_Clause] = []
    ends: list[int] = []  # the numbers of the clauses' sentences
    code, number = "", 0
    for line in masked:
        for part in _END.split(line):
            number += 1
            for each in _COLON.split(part) if ":" in part or "=" in part else (part,):
                if text := each.strip():
                    clauses.append(clause := _clause(text))
                    ends.append(number)
                    code = clause.code or code
    if code:
        return code
    if not clauses:
        return f"http {status}" if status else None
    if _LONE_CODE.fullmatch(last := clauses[-1].text.strip("'")) and not any(each.rank > 0 for each in clauses[:-1]):
        return last
    if status:
        first = next((number for number, each in enumerate(clauses) if each.length > 1), 0)
        if not any(each.says_more for each in clauses[first:]):
            return f"http {status}"
    # The cause within the first of the best sentences.
    place = max(range(len(clauses)), key=lambda place: (clauses[place].rank, -ends[place], place))
    best, behind = clauses[place], [each for each in clauses[place + 1 : place + 2] if ends[place + 1] == ends[place]]
    if best.rank < 0 or (best.rank == 0 and any(each.length > _MAX_BEHIND for each in clauses)):
        return _by_words(clauses, ends)
    names = best.names or _beside(clauses, place, ends.index(ends[place]))
    if best.names and behind and behind[0].names and not (behind[0].words or behind[0].kind):
        names |= behind[0].names  # `not unique table/alias: 'a'`
    if best.thing == "file":  # headers are dependencies
        names = frozenset(name for name in names if "/" not in name or name.endswith((".h", ".hpp", ".mod", ".proto")))
    if not names and (bare := _BARE.get((best.kind, best.thing))):
        return bare
    thing = "" if names and best.thing not in _DISTINCT else best.thing
    return "\x1e".join((best.kind, thing, *sorted(names)))


def _beside(clauses: list[_Clause], place: int, start: int) -> frozenset[str]:
    best, near = clauses[place], list(_near(clauses, place))
    names = best.words
    if best.rank:
        behind = list(_near(clauses[place : place + 2], 0))
        files = next((each.names for each in near if any("." in name for name in each.names)), frozenset[str]())
        is_library = best.thing == _THINGS.get(best.spoken[-1]) == "module"
        if best.kind in _NEED_NAMES or is_library or (best.rank == 1 and best.thing):
            names |= next((each.words for each in behind if each.length == 1), names)
        names = next((each.names for each in behind if each.names), names | files)
        if not names or best.kind == "syntax":  # the program in front: `awk: syntax error`
            before = _near(clauses[: place + 1], place)
            names |= next((each.words for each in before if len(each.words) == each.length), frozenset())
    others = (*near, *clauses[place + 1 : place + 2], *clauses[max(start, place - 1) : place])
    others = tuple(each for each in others if not each.is_type)
    if best.thing:  # what is before says what was tried, not what is missing
        others = tuple(each for each in others if each.names or each not in clauses[:place])
    return names or next((found for each in others if not each.kind and (found := each.names or each.words)), names)


def _by_words(clauses: list[_Clause], ends: list[int]) -> str | None:
    counts = [each.worth for each in clauses]
    place = max(range(len(clauses)), key=lambda place: (counts[place], -ends[place], place))
    best, start = clauses[place], ends.index(ends[place])
    if counts[place] < _MIN_WORDS:
        return None
    clauses, place = clauses[start : start + ends.count(ends[place])], place - start
    before = [each for each in _near(clauses[1 : place + 1], place - 1) if each.length == 1] if place > 1 else []
    behind = [each for each in clauses[place + 1 : place + 3] if each.length <= _MAX_BEHIND]
    return "\x1e".join(("", "", *sorted({word for each in (*before, best, *behind) for word in each.telling})))


def _near(clauses: list[_Clause], place: int) -> Iterator[_Clause]:
    for each in clauses[place + 1 : place + 2]:
        short = each.length <= _MAX_BEHIND or each.text[0] in _QUOTES
        if short and not each.kind and not _TYPE.fullmatch(each.text):
            yield each
    for each in reversed(clauses[:place]):
        if (each.names or each.words) and not _TYPE.fullmatch(each.text):
            if each.length <= _MAX_BEFORE and not each.kind:
                yield each
            return


@lru_cache(maxsize=8_192)  # an error is read several times
def _clause(text: str) -> _Clause:
    if label := _LABEL.match(text):
        text = text[label.end() :]
    if text[-1:] in _QUOTES and text[:1] == text[-1] and text.count(text[0]) == 2 and " " in text:
        text = text[1:-1]
    found: list[tuple[int, int, str]] = []
    names: dict[int, str] = {}
    if " " not in text and _CODE.fullmatch(text):
        found = _phrases(spoken := _parts(text))
    is_code = bool(found)
    if not is_code:
        spoken, names = _read(text)
        # An attribute 'SIGKILL' is a name.
        found = [
            (start, stop, kind)
            for start, stop, kind in _phrases(spoken)
            if kind not in _DECIDING or not names.keys() >= set(range(start, stop))
        ]
    end = next((place for place, word in enumerate(spoken) if word in _PLACES and place not in names), len(spoken))
    if found and found[0][1] > end:
        end = len(spoken)
    long = {place for start, stop, _ in found if stop - start > _MAX_BEHIND for place in range(start, stop)}
    phrased = {place for start, stop, _ in found for place in range(start, stop)}
    thing, chosen, words, behind = "", [], [], []
    for place, word in enumerate(spoken):
        if place in names:
            if place < end:
                chosen.append(names[place])
            continue
        if place < end and not thing and word in _THINGS and place not in long:
            thing = _THINGS[word]
        if place in phrased or word.lstrip("-").isdigit():
            continue
        behind.append(word)
        if place < end and word not in _SAY_NOTHING:
            words.append(word)
    chosen, words = chosen or list(names.values()), words or behind
    kind = found[0][2] if found else ""
    if is_code or "following" in spoken:  # the name is behind
        chosen, words = [], []
    left = frozenset(words) - _SAY_NOTHING
    if not left and kind in _NEED_NAMES:
        left = frozenset(word for word in words if _THINGS.get(word, thing) != thing)
    says_nothing = kind == "invalid" and "request" in spoken and not (chosen or left)
    rank = -1 if not found else 0 if is_code or says_nothing else 3 if chosen else 2 if left else 1
    if kind in ("surplus", "lacking"):
        chosen = [name.rpartition(".")[2] for name in chosen]  # Python 3.10 names the class of a method, too
    code = next((each for _, _, each in reversed(found) if each in _DECIDING), "") if found else ""
    return _Clause(text, kind, code, thing, frozenset(chosen), left, tuple(spoken), rank)


def _read(text: str) -> tuple[list[str], dict[int, str]]:
    spoken: list[str] = []
    names: dict[int, str] = {}
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "word"
        token = match[kind]
        if kind == "plain":
            spoken.append(token)
            continue
        if kind not in _NAMES:
            spoken += _expanded(token.lower())
            continue
        found = _phrases(parts := _parts(token))
        # A parameter `connection_timeout` is a name. `EAI_AGAIN` and `ConnectTimeoutError` are errors.
        is_error = kind == "code" and (token.isupper() or token.endswith(_ERRORS))
        if found and (is_error or not any(each in _DECIDING for _, _, each in found)):
            spoken += parts
            continue
        name = _RELEASE.sub("", token).strip(".,;:()[]").lstrip("-").lower()
        if name and not (kind == "code" and token.endswith(_ERRORS)):
            names[len(spoken)] = name
        spoken.append(token.lower())
    return spoken, names


def _parts(token: str) -> list[str]:
    return [word.lower() for word in _JOINTS.split(token) if word]


def _expanded(word: str) -> list[str]:
    if not word.endswith(("n't", "n’t")):
        return [word]
    return ["cannot"] if word.startswith("can") else [word[:-3], "not"]
