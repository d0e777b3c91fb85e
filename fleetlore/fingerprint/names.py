"""Identify the kind of failure that an error is, and the names in the call that it is about.

A warning before a call identifies an error otherwise than a pattern: without its names, but with those that the call
holds too.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from string import ascii_letters, digits
from typing import NamedTuple

from fleetlore.fingerprint.frames import excerpt, head_line
from fleetlore.fingerprint.literals import FILE
from fleetlore.fingerprint.normal_form import normal_form
from fleetlore.wire.trajectory import Step
from fleetlore.words import NAME

MAX_KIND = 90
_MAX_ERROR = 400
_MAX_CALL = 4_000
_MAX_MISSING = 600

_QUOTED = re.compile(r"'[^']{1,60}'|\"[^\"]{1,60}\"|`[^`]{1,60}`")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
# `sh: foo: command not found`: the part between two colons, or before the first.
_BEFORE_COLON = re.compile(r"(?:^|(?<=: ))([A-Za-z_][\w+-]*)(?=: )")
# `No module named x`, `no such table: x`, `Unknown column x`: a name without quotes.
_BARE = re.compile(
    r"\b(?:no module named|command not found:"
    r"|(?:no such|unknown|undefined|missing|invalid|unrecognized) "
    r"(?:table|column|field|function|database|schema|relation|variable|key|module|command|package|method)s?:?)"
    r" ([\w.$-]{2,64})",
    re.I,
)
# Python's errors for a missing attribute or parameter. Other errors name files, programs, types or undefined things.
_NO_SUCH_NAME = re.compile(r"\b(?:no attribute|unexpected keyword(?: argument)?)\W{1,4}(\w+)")
_LIKE_A_NAME = re.compile(r"[A-Za-z_]*\d\w*|[A-Za-z]+_\w+")
UNMASKED_WORD = re.compile(r"(?<![\w<])[a-z]{2,}(?![\w>])")
# `docker-compose` is one name.
_COMPOUND = re.compile(rf"{NAME.pattern}(?:-\w+)*")
_FILE_ENDING = re.compile(rf"\.{FILE}$", re.I)
# The characters that may follow a name in a call.
_BEHIND = re.compile(rf"(?:\.{FILE})?(?!\w)", re.I)
_LETTERS = frozenset(ascii_letters + "_")
_LETTERS_AND_DIGITS = _LETTERS | frozenset(digits)
_VERSION = re.compile(r"v\d{1,3}")  # `/v2/accounts`
_NUMBER = re.compile(r"\b\d+\b")
_NAME, _COUNT = "<name>", "<n>"


class FailureKind(NamedTuple):
    """kind: the error without names, at most 90 characters. names: of the call, lower-case, sorted."""

    kind: str
    names: tuple[str, ...]


def failure_kind(error_class: str, template: str, error: str, call: str) -> FailureKind:
    """Return the kind of a failed call, and the names that it failed for."""
    return kind_with(error_class, template, names_in(folded(call), mentioned_names(error)))


def kind_with(error_class: str, template: str, names: frozenset[str]) -> FailureKind:
    return FailureKind(_kind_text(error_class, template, names), tuple(sorted(names)))


def kind_of(failed: Step) -> FailureKind:
    """Steps of earlier releases hold only the text."""
    error_class, error = failed.error_type or "", failed.error_message or ""
    if not failed.template:
        return failure_kind(error_class, normal_form(error_class, excerpt(error)).template, error, failed.arguments)
    return FailureKind(_kind_text(error_class, failed.template, frozenset(failed.about)), failed.about)


def missing_name(error: str) -> str | None:
    """Return the attribute or parameter, in lower case, that does not exist by the error."""
    found = _NO_SUCH_NAME.findall(error[-_MAX_MISSING:])
    return found[-1].lower() if found else None


def spelled(name: str, call: str) -> str:
    """Return a name as the call spells it, with a file's ending."""
    text = call[:_MAX_CALL]
    # The only letter whose lower case is two letters, after which places would differ.
    for start, end in occurrences(name, text.replace("İ", "i").lower()):
        before = text[start - 1 : start]
        if not (before.isalnum() or before == "_") and (behind := _BEHIND.match(text, end)):
            return text[start : behind.end()]
    return name


def mentioned_names(error: str) -> tuple[str, ...]:
    """Return lower-case words of the error that look like names."""
    return _mentioned(excerpt(error))


def folded(call: str) -> str:
    return call[:_MAX_CALL].lower()


def names_in(call: str, mentioned: Iterable[str]) -> frozenset[str]:
    """Return those of the names that are words of a folded call."""
    return frozenset(
        [name for name in mentioned if name in call and _COMPOUND.fullmatch(name) and _is_word(name, call)]
    )


def occurrences(name: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where a name begins and ends in a text, as a part of longer names too."""
    start = text.find(name)
    while start >= 0:
        yield start, start + len(name)
        start = text.find(name, start + 1)


def _is_word(name: str, call: str) -> bool:
    """Whether `NAME` finds a name in a call. Digits before it belong to it only if they follow a letter."""
    for start, end in occurrences(name, call):
        if call[end : end + 1] not in _LETTERS_AND_DIGITS:
            before = call[start - 1 : start]
            if before not in _LETTERS_AND_DIGITS or call[:start].rstrip(digits)[-1:] not in _LETTERS:
                return True
    return False


@lru_cache(maxsize=8_192)
def _mentioned(error: str) -> tuple[str, ...]:
    head = head_line(error)[:_MAX_ERROR]
    found: list[str] = []
    for quoted in _QUOTED.findall(head):
        words = _WORD.findall(_FILE_ENDING.sub("", quoted.strip("'\"`")))
        if words and " " not in quoted.strip("'\"` "):
            found.append(words[-1].lower())  # the table of `shop.cars`, the stem of `docs/README.md`
    plain = _QUOTED.sub(" ", head)
    found += [word.lower() for word in _BEFORE_COLON.findall(plain) if not word.endswith(("Error", "error"))]
    found += [_WORD.findall(name)[-1].lower() for name in _BARE.findall(plain) if _WORD.search(name)]
    found += [word.lower() for word in _LIKE_A_NAME.findall(plain)]
    return tuple(dict.fromkeys(word for word in found if len(word) > 1 and not _VERSION.fullmatch(word)))


@lru_cache(maxsize=8_192)
def _kind_text(error_class: str, template: str, names: frozenset[str]) -> str:
    text = _NUMBER.sub(_COUNT, _QUOTED.sub(_NAME, template))
    words = (_NAME if word.lower().strip(":.,;()") in names else word for word in text.split())
    kind = " ".join(words)[:MAX_KIND]
    if error_class[:1].isupper() and len(UNMASKED_WORD.findall(kind)) < 2:
        # Some exceptions' text is only a name.
        kind = f"{error_class.lower()}: {kind}".rstrip(" :")[:MAX_KIND]
    return kind
