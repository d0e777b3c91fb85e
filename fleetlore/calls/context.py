"""Keep the session history that the next call's risk depends on. Agent and learner keep the same.

Each object of a JSON result keeps its one-word fields under its id (`"status": "pending"`): a call that takes the id is
then about a pending order. Other agents see such values, so fields that name a person or a place are left out.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fleetlore.calls.call import CALL_CHARACTERS, KEYWORDS, MadeCall, values_of
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.literals import is_identity
from fleetlore.wire.adapter_manifest import State
from fleetlore.words import NAME, TOKEN, names_of

__all__ = ["ERROR_CHARACTERS", "RESULT_CHARACTERS", "CallContext", "keep_newest", "warning_id"]

_MAX_RESULT = 3_000
# Only a listing has more objects.
_KEPT_OBJECTS = 512
_MAX_FIELDS = 12
_MAX_WORDS = 3
_MAX_AFTER = 6
# Elements read of one list argument, and marks of one call.
_MAX_OF_LIST = 4
_MAX_MARKS = 24

# Matches a bracket, or a key with a value that is no object, in JSON or Python.
_PART = re.compile(
    r"(?P<bracket>[{}])|(?P<quote>[\"'])(?P<key>\w{1,40})(?P=quote)\s*:\s*"
    r"(?:\"(?P<text>[^\"\n]{0,64})\"|'(?P<other>[^'\n]{0,64})'|(?P<word>true|false|True|False)\b)"
)
_ID_KEY = re.compile(r"(?:^|_|\b)(?:id|uuid|number|code|key|path|name)$|[a-z]I[dD]$", re.IGNORECASE)
_FIELD = re.compile(r"[A-Za-z][A-Za-z _()-]{0,39}")
# Matches an id: it holds a digit and no space.
_ID = re.compile(r"(?=.*\d)[^\s]{3,64}")

Ids = npt.NDArray[np.uint32]

GOAL_CHARACTERS = 1_500
_GOAL_WORDS = 40
RESULT_CHARACTERS = 3_000
ERROR_CHARACTERS = 600
_LAST_CHARACTERS = 300
KEPT_NAMES = 4_096
KEPT_CALLS = 64

# `Table 'shop.cars' doesn't exist`.
_QUALIFIED = re.compile(r"(?<=['\"`])([A-Za-z_][\w-]*)\.([A-Za-z_]\w*)(?=['\"`])")

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _KnownObjects:
    __slots__ = ("_after", "_fields")

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, str]] = {}
        self._after: dict[str, dict[str, None]] = {}

    def record(self, tool: str, arguments: str, result: str) -> None:
        for value in {value for _, value in _ids(arguments)}:
            taken = self._after.pop(value, {})
            if len(taken) < _MAX_AFTER:
                taken[tool] = None
            keep_newest(self._after, value, taken, _KEPT_OBJECTS)
        for id, fields in _objects(result):
            keep_newest(self._fields, id, fields, _KEPT_OBJECTS)

    def marks(self, arguments: str) -> list[str]:
        """Return what is known of the things that the arguments name: `order_id status=pending`, and `order_id after
        TOOL` for an earlier call that took the thing.
        """
        if not self._fields and not self._after:
            return []
        found: dict[str, None] = {}
        for argument, value in _ids(arguments):
            for field, said in self._fields.get(value, {}).items():
                if field != argument:
                    found[f"{argument} {field}={said}"] = None
            for tool in self._after.get(value, {}):
                found[f"{argument} after {tool}"] = None
        return list(found)[:_MAX_MARKS]


def keep_newest(kept: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


def _ids(arguments: str) -> Iterator[tuple[str, str]]:
    for name, value in values_of(arguments).items():
        for each in value[:_MAX_OF_LIST] if isinstance(value, list) else (value,):
            if isinstance(each, str) and _ID.fullmatch(each):
                yield name, each


def _is_state(said: str) -> bool:
    if not _FIELD.fullmatch(said):
        return False
    words = said.split()
    return len(words) == 1 or (len(words) <= _MAX_WORDS and not all(word[0].isupper() for word in words))


def _objects(result: str) -> Iterator[tuple[str, dict[str, str]]]:
    if result[:1] not in ("{", "[") or "{" not in result[:_MAX_RESULT]:  # rows of a database are lists
        return
    open_objects: list[tuple[list[str], dict[str, str]]] = []
    done: list[tuple[list[str], dict[str, str]]] = []
    for part in _PART.finditer(result[:_MAX_RESULT]):
        if part["bracket"] == "{":
            open_objects.append(([], {}))
            done.append(open_objects[-1])
        elif part["bracket"]:
            if open_objects:
                open_objects.pop()
        elif open_objects:
            ids, fields = open_objects[-1]
            key, said = part["key"], part["text"] or part["other"] or part["word"] or ""
            if _ID_KEY.search(key) and _ID.fullmatch(said):
                ids.append(said)
            elif len(fields) < _MAX_FIELDS and _is_state(said) and not is_identity(key):
                fields[key] = said.lower()
    yield from ((ids[0], fields) for ids, fields in done if ids and fields)


@lru_cache(maxsize=200_000)
def hash_of(token: str) -> int:
    return crc32(token.encode("utf-8", "replace"))


def hashes_of(tokens: list[str]) -> Ids:
    return np.array([hash_of(token) for token in tokens], np.uint32)


class CallContext:
    """The history of one session.

    Attributes:
        goal: hashes of its first words.
        seen, worked, failed: names in results, in calls that worked, and in an error and its call.
        last: class of the last error after `E`, `ok`, `empty`, or `first`.
        tried: failures since the last success, by `MadeCall.trajectory_key`.
        run: failures in a row.
        place: that the newest error named.
    """

    __slots__ = (
        "_last_text", "_last_words", "calls", "failed", "failures", "goal", "goal_words", "last", "objects", "place",
        "run", "seen", "tried", "worked",
    )  # fmt: skip

    def __init__(self, goal: str) -> None:
        words = list(dict.fromkeys(NAME.findall(goal[:GOAL_CHARACTERS].lower())))
        self.goal_words = frozenset(words)
        self.goal = hashes_of(words[:_GOAL_WORDS])
        self.seen: set[str] = set()
        self.worked: set[str] = set()
        self.failed: set[str] = set()
        self.last = "first"
        self._last_text = ""
        self._last_words: Ids | None = None
        self.tried: dict[tuple[str, str], int] = {}
        self.calls = 0
        self.failures = 0
        self.run = 0
        self.place: str | None = None
        self.objects = _KnownObjects()

    @property
    def last_words(self) -> Ids:
        if self._last_words is None:
            words = dict.fromkeys(TOKEN.findall(self._last_text))
            self._last_words = hashes_of([word.lower() for word in words])
        return self._last_words

    @property
    def state(self) -> State:
        return "first" if not self.calls else "after_failure" if self.run else "after_success"

    def record(self, call: MadeCall, result: str, error_class: str | None = None) -> None:
        tool, text = call.tool, call.text
        names = names_of(text[:CALL_CHARACTERS])
        if error_class is not None:
            self.failed |= names & names_of(result[:ERROR_CHARACTERS])
            self.place = place_in(result, text) or self.place
            self.last = f"E{error_class}"
            self.failures += 1
            self.run += 1
        else:
            self.failed -= names
            _add(self.worked, names - KEYWORDS)
            _add(self.seen, names_of(result[:RESULT_CHARACTERS]))
            self.objects.record(tool, call.json, result)
            self.last = "ok" if result.strip() else "empty"
            self.run = 0
        self._last_text, self._last_words = result[:_LAST_CHARACTERS], None
        failed = self.tried.get(call.trajectory_key, 0) + 1 if error_class is not None else 0
        keep_newest(self.tried, call.trajectory_key, failed, KEPT_CALLS)
        self.calls += 1


def warning_id(tool: str, state: State) -> str:
    """Return the id by which warnings of a tool are withheld and measured."""
    return pattern_id("warning", tool, state)


def place_in(error: str, text: str) -> str | None:
    """Return the place in an error that the call left out: `shop` in `Table 'shop.cars' doesn't exist`."""
    found = _QUALIFIED.findall(error[:ERROR_CHARACTERS])
    held = {token.lower() for token in TOKEN.findall(text[:CALL_CHARACTERS])} if found else ()
    return next((place for place, name in found if name.lower() in held and place.lower() not in held), None)


def _add(kept: set[str], names: set[str]) -> None:
    if len(kept) < KEPT_NAMES:
        kept |= names
