"""Decide which failure an error text is: the kind of failure, and the names that it is about.

Drivers, shells, loggers and versions word one failure differently, but its kind and names stay. `PHRASES` lists the
wordings of each kind, each row with an example that needs it. The clause with a phrase and a name decides. Without a
phrase, the clause with the most words decides, by these words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from fleetlore.fingerprint.template_rules import MASK

__all__ = ["has_phrase", "identity_of", "sentences_of", "words_of"]


class Phrase(NamedTuple):
    """Wordings of one kind of failure.

    Attributes:
        wordings: lower-case wordings, separated by a bar. `_` is any one word.
        example: a text that has no such kind without this row.
    """

    kind: str
    wordings: str
    example: str


PHRASES = tuple(
    Phrase(*row)
    for row in (
        ("missing", "not found|cannot be found|could not be found|no _ _ found", "job 'a' not found"),
        ("missing", "no such|does not exist|do not exist|did not exist|nonexistent", "no such table: a"),
        ("missing", "cannot find|could not find|unable to find|failed to find|did not find", "cannot find 'a'"),
        ("missing", "cannot locate|could not locate|unable to locate|failed to locate", "unable to locate package a"),
        ("missing", "cannot resolve|could not resolve|unable to resolve|failed to resolve|unresolved"
         "|cannot be resolved|could not be resolved", "cannot resolve 'a'"),
        ("missing", "cannot load|could not load|unable to load|failed to load", "cannot load such file -- a"),
        ("missing", "cannot open|could not open|unable to open|failed to open", "cannot open shared object a"),
        ("missing", "unknown|unrecognized|unrecognised|not recognized|not recognised",
         "unknown column a"),
        ("missing", "undefined|undeclared|not defined|not declared|implicit declaration|unconfigured", "undefined: a"),
        ("missing", "not installed|not available|not registered|not present|not configured|not host",
         "a not installed"),
        ("missing", "has no|no module|no provider|no match for|no matches for|not a member|nothing provides",
         "value a is not a member of List"),
        ("missing", "no _ named|no _ called|no _ matching|no _ with|no _ _ named|no _ _ of type|no _ _ with"
         "|no _ of type|no version of|no versions of|not contain|not match|not provide", "no role named 'a'"),
        ("missing", "missing", "missing script: a"),
        ("denied", "permission denied|access denied|access is denied|denied|forbidden", "access denied for a"),
        ("denied", "not authorized|not authorised|unauthorized|unauthorised|not permitted", "not authorized to read a"),
        ("denied", "not have permission|lacks permission|insufficient permission|insufficient permissions"
         "|insufficient privileges|requires _ access", "role a does not have permission"),
        ("denied", "authentication failed|authentication required|authentication error|invalid credentials",
         "authentication failed for a"),
        ("exists", "already|duplicate|unique constraint|in use|not unique|redefinition", "table 'a' already exists"),
        ("unreachable", "connection refused|connection reset|connection closed|connection lost|connection aborted"
         "|connection was _", "connection refused"),
        ("unreachable", "cannot connect|could not connect|unable to connect|failed to connect|cannot reach"
         "|could not reach|unable to reach|not reachable|unreachable", "cannot connect to 'a'"),
        ("unreachable", "no route|name resolution|resolve host|could not resolve host|service not known",
         "could not resolve host: a"),
        ("time", "timed out|timeout|deadline exceeded|took too long|time limit", "lock 'a' timed out"),
        ("memory", "out of memory|memory limit|low on memory|cannot allocate|no space left|heap space",
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
        ("type", "cannot convert|could not convert|unable to convert|failed to convert|cannot be cast|cannot cast"
         "|conversion from|conversion of|conversion failed", "cannot cast 'a' to integer"),
        ("version", "no matching version|no compatible version|compatible versions|newer than|older than|higher than"
         "|lower than|greater than|up to date|out of date|outdated|unsupported version|version conflict"
         "|requires python|requires version", "lockfile a is out of date"),
        ("unavailable", "overloaded|service unavailable|temporarily unavailable", "overloaded"),
        ("disabled", "disabled|not enabled|not been enabled", "'a' is disabled"),
        ("condition", "condition failed|conditional request failed|conditional check failed|precondition",
         "precondition on 'a'"),
        ("required", "is required|are required|field required|required but|required field|must be|must have|must not"
         "|not set|not provided|not specified|needs", "field a is required"),
    )
)  # fmt: skip

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
}
_EMPTY = frozenset(
    """
    a an the for in of to is was be are were with by on at from and or not no this that it as has have had do does did
    can cannot could will would current currently named called any some all its your you we error failed fatal failure
    following when if but there which into via than then so because while line server occurred calling operation request
    response uncaught unhandled promise rejection open opening read reading
    """.split()  # noqa: SIM905
)
_SAY_NOTHING = _EMPTY | _THINGS.keys() | {MASK}
# A name behind one of these is the failure's place, not its subject.
_PLACES = frozenset({"in", "from", "at", "within", "inside"})
# Words of a clause that only adds a name or code behind another, or a program before it.
_MAX_BEHIND, _MAX_BEFORE = 3, 2
# A clause without a phrase says which failure it is with this many words.
_MIN_WORDS = 3

# Sentences in quotes behind a sign or in brackets are masked apart: quoted ones look like values. Brackets before a
# quote may be within it, as in a quoted query.
_WITHIN = re.compile(
    r"(?:(?<=[=(\[])|(?<=: ))([\"'])((?:(?!\1)\S)+(?: (?:(?!\1)\S)+){2,})\1(?!\w)"
    r"| \(((?:[^()\s]+ ){3}[^()]*)\)(?=[^'\"]*$)"
)
_ACCEPTED = re.compile(r" \([~^<>=!]+ ?v?\d[^()]*\)")  # `Lottie (~> 0.4)`
_END = re.compile(
    r"(?<=[\w'\"`)\]>]): +(?<!\btable: )(?<!\bindex: )(?<!\bcolumn: )(?<!\bpassword: )(?<!\bcollection: )|: *$|; +"
    r"|\.(?: +(?=[A-Z])|$)|, +(?!but)| because | while (?=\w+ing (?:it|an?|the)\b)| [-—|] |=(?=[\"'])"
)
_LABEL = re.compile(r"(?:\W?[\[(][\w .:@#,/+-]*[\])]:? +(?=\S))++|\d+ +")  # `(raylet) `
_TOKEN = re.compile(
    r"(?<![\w<])'(?P<single>[^\s'<>]{1,80})(?: [^']{0,40})?'(?!\w)"
    r"|(?<!\w)\"(?P<double>[^\s\"<>]{1,80})(?: [^\"]{0,40})?\"|`(?P<tick>[^\s`'<>]{1,80})(?: [^`']{0,40})?[`']"
    r"|(?<=\[)(?P<bracket>[A-Za-z][\w.-]*)(?=\])"
    r"|(?<![\w<'\"`.-])(?P<code>@?\$?(?:[A-Za-z_][\w$-]*(?:\.|::|/|#))+[\w$-]+(?:\(\))?|[A-Za-z]*_\w+|[a-z]+[A-Z]\w*"
    r"|[A-Z][a-z]+[A-Z]\w+|--?[a-z][\w-]+|@[\w/-]+|\$\w+)(?![\w>])"
    r"|(?P<mask><\*>)|(?P<word>(?<![\w<])[^\W\d_](?:[\w+-]|\.(?=\w)|['’](?=t\b))*(?:/\d+)?)|(?P<number>\d[\w.]*)"
)
_NAMES = frozenset({"single", "double", "tick", "bracket", "code"})
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
# One word made of several: `ResourceNotFoundException`, `COLUMN_NOT_FOUND`, `value_error.missing`.
_CODE = re.compile(
    r"\(?(?:[A-Za-z]\w*(?:\.|::))*(?:[A-Z][a-z]\w*|[A-Z][A-Z\d]*(?:_[A-Z\d]+)+|[a-z]+(?:_[a-z]+)+|[a-z_]+\.[a-z_]+)\)?"
)
_JOINTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
# A clause that is the type of an error.
_TYPE = re.compile(
    r"(?:\w+(?:\.|::))*[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z][A-Z\d]+(?:_[A-Z\d]+)+|E[A-Z]{4,}|\w*(?:Error|Exception)"
    r"|[a-z_]+_error"
)
_RELEASE = re.compile(r"(?<=\w)@.*|[~^<>=]=?\s?v?\d.*$|/v?\d[\d.]*$")  # `fmt/10.1`


class PhraseBook:
    """Finds the phrases of rows among words."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        rows = [(wording.split(), phrase.kind) for phrase in phrases for wording in phrase.wordings.split("|")]
        # By the first two words, since many wordings begin with the same one.
        self._by_start: defaultdict[tuple[str, str], list[tuple[list[str], str]]] = defaultdict(list)
        for (first, *others), kind in rows:
            self._by_start[first, others[0] if others else ""].append((others, kind))
        self._firsts = {first for first, _ in self._by_start}

    def found(self, words: list[str]) -> list[tuple[int, int, str]]:
        """Return start, end and kind of each phrase. The longest wording counts."""
        found: list[tuple[int, int, str]] = []
        for start, word in enumerate(words):
            if word not in self._firsts or (found and start < found[-1][1]):
                continue
            second = words[start + 1] if start + 1 < len(words) else ""
            fit = [
                (start + 1 + len(others), kind)
                for key in dict.fromkeys((second, "_", ""))
                for others, kind in self._by_start.get((word, key), ())
                if _fits(others, words[start + 1 : start + 1 + len(others)])
            ]
            if fit:
                found.append((start, *max(fit, key=lambda each: each[0])))
        return found


def _fits(wording: list[str], there: list[str]) -> bool:
    return len(wording) == len(there) and all(
        wanted in ("_", word) for wanted, word in zip(wording, there, strict=True)
    )


_phrases = PhraseBook(PHRASES).found


class _Clause(NamedTuple):
    """A part of a sentence.

    Attributes:
        kind: of its first phrase, or "".
        names: in lower case. A name of the place is left out if the subject has a name.
        words: those that tell the failure, outside phrases and names.
        spoken: all words and names, in order.
        rank: how well it names a failure, from -1 (no phrase) to 3 (phrase and name).
    """

    text: str
    kind: str
    thing: str
    names: frozenset[str]
    words: frozenset[str]
    spoken: tuple[str, ...]
    rank: int

    @property
    def length(self) -> int:
        return self.text.count(" ") + 1


def sentences_of(line: str) -> list[str]:
    """Return the sentences within a line, in order."""
    return [part for part in _WITHIN.sub("\n\\2\\3\n", _ACCEPTED.sub("", line)).split("\n") if part.strip()]


def has_phrase(line: str) -> bool:
    """Whether a line holds a wording of `PHRASES`."""
    return bool(_phrases(words_of(line)))


def words_of(line: str) -> list[str]:
    """Return the words of a line in lower case, without its names and signs."""
    return [part for word in _WORD.findall(line.lower()) for part in _expanded(word)]


def identity_of(masked: Iterable[str]) -> str | None:
    """Return the identity of the failure in masked sentences, or None if they say too little."""
    clauses = [_clause(text) for line in masked for part in _END.split(line) if (text := part.strip())]
    place = max(range(len(clauses)), key=lambda place: clauses[place].rank, default=-1)
    if place < 0:
        return None
    best, behind = clauses[place], clauses[place + 1 : place + 2]
    if best.rank < 0 or (best.rank == 0 and any(each.length > _MAX_BEHIND for each in behind)):
        return _by_words(clauses)
    names = best.names or _beside(clauses, place)
    if best.names and behind and behind[0].names and not (behind[0].words or behind[0].kind):
        names |= behind[0].names  # `not unique table/alias: 'a'`
    if best.thing == "file":
        names = frozenset(name for name in names if "/" not in name)
    return "\x1e".join((best.kind, best.thing, *sorted(names)))


def _beside(clauses: list[_Clause], place: int) -> frozenset[str]:
    """The names beside a clause that has none, or else its own words."""
    best, near = clauses[place], list(_near(clauses, place))
    names = best.words
    if best.rank:
        names = next((each.names for each in near if each.names), names)
        if len(names) < 2:  # the program in front: `awk: syntax error`
            before = _near(clauses[: place + 1], place)
            names |= next((each.words for each in before if len(each.words) == each.length), frozenset())
    others = (*near, *clauses[place + 1 : place + 2], *clauses[max(0, place - 1) : place])
    return names or next((found for each in others if not each.kind and (found := each.names or each.words)), names)


def _by_words(clauses: list[_Clause]) -> str | None:
    """The identity of a failure that no phrase describes."""
    place = max(range(len(clauses)), key=lambda place: len(clauses[place].words | clauses[place].names))
    best = clauses[place]
    if len(best.words | best.names) < _MIN_WORDS:
        return None
    before = [each for each in _near(clauses[: place + 1], place) if each.length == 1]
    behind = [each for each in clauses[place + 1 : place + 3] if each.length <= _MAX_BEHIND]
    spoken = (word for each in (*before, best, *behind) for word in each.spoken)
    return "\x1e".join(("", "", *(word for word in spoken if word != MASK and word not in _EMPTY)))


def _near(clauses: list[_Clause], place: int) -> Iterator[_Clause]:
    """The short clauses beside one: the name behind a colon, the program or file in front."""
    for each in clauses[place + 1 : place + 2]:
        if each.length <= _MAX_BEHIND and not each.kind and not _TYPE.fullmatch(each.text):
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
    spoken, names = (_parts(text) if _CODE.fullmatch(text) else []), dict[int, str]()
    found = _phrases(spoken)
    is_code = bool(found)
    if not is_code:
        spoken, names = _read(text)
        found = _phrases(spoken)
    plain = [(place, word) for place, word in enumerate(spoken) if place not in names]
    thing = next((_THINGS[word] for _, word in plain if word in _THINGS), "")
    end = next((place for place, word in plain if word in _PLACES), len(spoken))
    subject = [name for place, name in names.items() if place < end] if found and found[0][1] <= end else []
    chosen = subject or list(names.values())
    phrased = {place for start, stop, _ in found for place in range(start, stop)}
    words = [word for place, word in plain if place not in phrased and not word.isdigit()]
    if is_code or "following" in spoken:  # the name is behind
        chosen, words = [], []
    left = frozenset(words) - _SAY_NOTHING
    rank = -1 if not found else 0 if is_code else 3 if chosen else 2 if left else 1
    return _Clause(text, found[0][2] if found else "", thing, frozenset(chosen), left, tuple(spoken), rank)


def _read(text: str) -> tuple[list[str], dict[int, str]]:
    """Words and names in lower case, and the names by their places among these."""
    spoken: list[str] = []
    names: dict[int, str] = {}
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "word"
        token = match[kind]
        if kind not in _NAMES:
            spoken += _expanded(token.lower())
            continue
        name = _RELEASE.sub("", token).strip(".,;:()[]").lower()
        if name and not _phrases(_parts(token)) and not (kind == "code" and token.endswith(("Error", "Exception"))):
            names[len(spoken)] = name
        spoken.append(token.lower())
    return spoken, names


def _parts(token: str) -> list[str]:
    return [word.lower() for word in _JOINTS.split(token) if word]


def _expanded(word: str) -> list[str]:
    """Expand `doesn't` to `does not`, and `can't` to `cannot`."""
    if not word.endswith(("n't", "n’t")):
        return [word]
    return ["cannot"] if word.startswith("can") else [word[:-3], "not"]
