"""Keep what results say of the things that calls are about, and mark a call with what is known of them.

A result that is JSON tells of each object in it, by its id, its fields that are one word (`"status": "pending"`). A
call that takes the id is then about an order that is pending; and it comes after the calls that took the id before it.
No tool and no field is known beforehand. What a field says is told to other agents (`models.calls.needs`), so those
that name a person or a place are left out. Results may be cut: what stands before the cut is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeVar

from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.fingerprint.literals import is_identity

__all__ = ["KnownObjects", "Mark", "values_of"]

_MAX_RESULT = 3_000
# Of a session: more are those of a listing, and the newest say most.
KEPT = 512
_MAX_FIELDS = 12
# A longer value is a sentence.
_MAX_WORDS = 3
_MAX_AFTER = 6
# Of one argument, and of a call.
_MAX_OF_LIST = 4
MAX_MARKS = 24

# A bracket, or a key with a value that is no object; as JSON or Python writes them.
_PART = re.compile(
    r"(?P<bracket>[{}])|(?P<quote>[\"'])(?P<key>\w{1,40})(?P=quote)\s*:\s*"
    r"(?:\"(?P<text>[^\"\n]{0,64})\"|'(?P<other>[^'\n]{0,64})'|(?P<word>true|false|True|False)\b)"
)
_ID_KEY = re.compile(r"(?:^|_|\b)(?:id|uuid|number|code|key|path|name)$|[a-z]I[dD]$", re.IGNORECASE)
_FIELD = re.compile(r"[A-Za-z][A-Za-z _()-]{0,39}")
# What names one thing among many: a digit in it, and no sentence.
_ID = re.compile(r"(?=.*\d)[^\s]{3,64}")


_Known = TypeVar("_Known")


class Mark(NamedTuple):
    """What is known of the thing that an argument names: `status` is `pending`; or an earlier call took it.

    Attributes:
        field: of the thing; empty where `value` is the tool of an earlier call that took it and worked.
    """

    argument: str
    field: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.argument} {self.field}={self.value}" if self.field else f"{self.argument} after {self.value}"


class KnownObjects:
    """What one session knows of the things that its calls may take, by their ids."""

    __slots__ = ("_after", "_fields")

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, str]] = {}
        self._after: dict[str, dict[str, None]] = {}

    def record(self, tool: str, arguments: str, result: str) -> None:
        """Take in a call that worked."""
        for value in {value for _, value in _ids(arguments)}:
            taken = self._after.pop(value, {})
            if len(taken) < _MAX_AFTER:
                taken[tool] = None
            _keep(self._after, value, taken)
        for id, fields in _objects(result):
            _keep(self._fields, id, fields)

    def marks(self, arguments: str) -> list[Mark]:
        """What is known of the things that these arguments name; each mark once, at most `MAX_MARKS`."""
        if not self._fields and not self._after:
            return []
        found: dict[Mark, None] = {}
        for argument, value in _ids(arguments):
            for field, said in self._fields.get(value, {}).items():
                if field != argument:
                    found[Mark(argument, field, said)] = None
            for tool in self._after.get(value, {}):
                found[Mark(argument, "", tool)] = None
        return list(found)[:MAX_MARKS]


def values_of(arguments: str) -> dict[str, object]:
    """The values of arguments that are an object, by name; none of any others."""
    value = parsed(arguments) if arguments[:1] == "{" else None
    return value if isinstance(value, dict) else {}


def _keep(kept: dict[str, _Known], id: str, what: _Known) -> None:
    kept.pop(id, None)
    kept[id] = what
    if len(kept) > KEPT:
        del kept[next(iter(kept))]


def _ids(arguments: str) -> Iterator[tuple[str, str]]:
    """The ids that arguments name, each with the argument that takes it."""
    for name, value in values_of(arguments).items():
        for each in value[:_MAX_OF_LIST] if isinstance(value, list) else (value,):
            if isinstance(each, str) and _ID.fullmatch(each):
                yield name, each


def _is_state(said: str) -> bool:
    """Whether a value may be a state of a thing: a few words, and no person (`Jane Doe`)."""
    if not _FIELD.fullmatch(said):
        return False
    words = said.split()
    return len(words) == 1 or (len(words) <= _MAX_WORDS and not all(word[0].isupper() for word in words))


@lru_cache(maxsize=4096)  # keys repeat
def _is_id(key: str) -> bool:
    return _ID_KEY.search(key) is not None


def _objects(result: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(id, fields) of each object of a result; its id is the first value that is one."""
    if result[:1] not in ("{", "[") or "{" not in result[:_MAX_RESULT]:  # rows of a database are lists of values
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
            if _is_id(key) and _ID.fullmatch(said):
                ids.append(said)
            elif len(fields) < _MAX_FIELDS and _is_state(said) and not is_identity(key):
                fields[key] = said.lower()
    yield from ((ids[0], fields) for ids, fields in done if ids and fields)
