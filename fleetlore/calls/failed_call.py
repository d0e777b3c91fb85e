"""Hold a call that failed, and hash its words, so that it can be compared with those that others got past.

The words themselves are not kept: an item carries CRC-32 hashes, and none of a word with a digit in it, which may be an
id.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fleetlore.calls.context import CALL_CHARACTERS, ERROR_CHARACTERS, GOAL_CHARACTERS, KEYWORDS, hash_of
from fleetlore.calls.objects import Mark
from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.fingerprint.names import failure_kind

# Of each text, the first: a goal says early what it wants.
MAX_WORDS = 48
# `math.sqrt` is one word: of a call it says more than its parts.
_WORD = re.compile(r"(?<![\w.])[^\W\d][^\W\d.]*(?:\.[^\W\d.]+)*(?!\w)")
_SEPARATOR = "."
_READ_ERROR = 8 * ERROR_CHARACTERS


class FailureWords(NamedTuple):
    """Hashes of words, each once.

    Attributes:
        goal, call, error: of the session's goal, of the call that failed (those that the error names first) and of the
            line of the error that says what is wrong; at most `MAX_WORDS` of each.
        names: names in the call that the error is about.
        kind: hash of the error without its names.
    """

    goal: tuple[int, ...]
    call: tuple[int, ...]
    error: tuple[int, ...]
    names: tuple[int, ...]
    kind: int

    @classmethod
    def of(cls, goal: str, call: str, error: str, failure: Failure) -> FailureWords:
        """Hash the words of a failure.

        Args:
            call: the arguments as text (`fleetlore.calls.context.text_of`).
            error: what the environment said.
        """
        wanted, made, said = map(words, read_parts(goal, call, error))
        named = frozenset(said)
        # A stable sort: within both parts the order of the text stays.
        made = tuple(sorted(made, key=lambda word: word not in named))
        kind = failure_kind(failure.error_class, failure.template, error, call)
        names = [name for name in kind.names if _WORD.fullmatch(name)]
        return cls(_hashed(wanted), _hashed(made), _hashed(said), _hashed(names), hash_of(kind.kind))

    @property
    def texts(self) -> tuple[tuple[int, ...], ...]:
        """Goal, call and error."""
        return self.goal, self.call, self.error

    def to_text(self) -> str:
        """Base64 of the little-endian hashes, the parts joined by dots."""
        parts = (*self[:-1], (self.kind,))
        return _SEPARATOR.join(b64encode(np.array(part, "<u4").tobytes()).decode() for part in parts)

    @classmethod
    def from_text(cls, text: str) -> FailureWords | None:
        """None for what `to_text` did not write: an item may come from a newer version."""
        try:
            found = [np.frombuffer(b64decode(part, validate=True), "<u4") for part in text.split(_SEPARATOR)]
        except (NoBase64, ValueError):
            return None
        if len(found) != len(cls._fields) or len(found[-1]) != 1:
            return None
        goal, call, error, names = (tuple(dict.fromkeys(part[:MAX_WORDS].tolist())) for part in found[:-1])
        return cls(goal, call, error, names, int(found[-1][0]))


def read_parts(goal: str, call: str, error: str) -> tuple[str, str, str]:
    """What is read of the three texts: the first of goal and call, and of an exception's trace what was raised."""
    last = next((line for line in reversed(error[-_READ_ERROR:].splitlines()) if line.strip()), "")
    return goal[:GOAL_CHARACTERS], call[:CALL_CHARACTERS], last[:ERROR_CHARACTERS]


@lru_cache(maxsize=512)  # of a failure they are asked for twice, of a goal before every advice
def words(text: str) -> tuple[str, ...]:
    """Lower-case words of a text without digits in them, each once, without keywords."""
    found = dict.fromkeys(_WORD.findall(text.lower()))
    return tuple([word for word in found if len(word) > 1 and word not in KEYWORDS])


def _hashed(of: Iterable[str]) -> tuple[int, ...]:
    return tuple([hash_of(word) for word in of][:MAX_WORDS])


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what its session knows.

    Attributes:
        text: of the arguments (`fleetlore.calls.context.text_of`).
        error: what the environment said.
        session: its id; what it alone has taught the fleet is left out.
        seen: lower-case names in its results and in its calls so far.
        cause: id of what made it fail (`fleetlore.fingerprint.fingerprint.cause_of`).
        arguments: as they were sent; `marks`: what was known of the things that they name.
        times: how often this very call has failed in its session since it last worked.
    """

    text: str
    error: str
    failure: Failure
    goal: str = ""
    session: str = ""
    seen: Collection[str] = ()
    cause: str = ""
    arguments: str = ""
    marks: tuple[Mark, ...] = ()
    times: int = 1

    @property
    def words(self) -> FailureWords:
        """By what it is compared with other failures."""
        return FailureWords.of(self.goal, self.text, self.error, self.failure)
