"""Copy an agent's values into plain JSON, masking secrets by form or by name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Any

from fleetlore.redact.named_values import FOLDER, KEYS, PASSWORDS, is_secret, mask_of
from fleetlore.redact.notations import kind_of_column
from fleetlore.redact.prefilter import uncovered
from fleetlore.redact.redact import fold, redact

__all__ = [
    "MAX_CHARACTERS", "cut_copies", "cut_text", "fitting", "plain_value", "redact_value", "weight", "whole_tokens",
]  # fmt: skip

# Limit of an event by `weight`. The pipeline keeps 2,000 characters of each text.
MAX_CHARACTERS = 8 * 1024
_LEAST_CUT = 1024
_UNCUT = 2**62
_MAX_DEPTH = 64  # deeper nesting would raise RecursionError in the agent
_MAX_INT = 2**64  # the JSON encoder refuses larger integers
# Lists with shared members can expand without bound.
_MAX_VALUES = 20_000
_LONG_KEY = 1024

_PASSWORD_KEY = re.compile(rf"(?:{PASSWORDS})\Z")
_SECRET_KEY = re.compile(rf"(?:{KEYS}|account[_-]?key|authorization|cookie)\Z")
# Programs with `-p` for the password.
_TAKES_PASSWORD = re.compile(r"(?:.*/)?(?:mysql\w*|mariadb\w*|sshpass|docker|podman|helm|twine|mongo\w*|sqlcmd)\Z")
_VALUES_BESIDE = ("value", "Value", "val", "text", "default")
_VALUES_WITHIN = frozenset({*_VALUES_BESIDE, "current", "new", "old", "plain", "data", "string"})
_NAMES_BESIDE = (
    "name", "Name", "key", "Key", "header", "field", "id", "label", "selector", "locator", "element", "target",
    "placeholder",
)  # fmt: skip
_OF_AN_ELEMENT = re.compile(r"[\"'\]\s]*(?:(?:text )?(?:field|input|box))?[\s:]*\Z", re.IGNORECASE)
_OF_A_VALUE = 8
_CONTAINERS = frozenset({dict, list, tuple})
_LONGEST_TOKEN = 512
_OF_NO_TOKEN = re.compile(r"[^\w+/=.~-]")


@lru_cache(maxsize=4096)
def _key(key: str) -> tuple[str, str | None]:
    folded = fold(uncovered(key))
    if _PASSWORD_KEY.search(folded):
        return redact(key), "password"
    return redact(key), "secret" if _SECRET_KEY.search(folded) else None


def redact_value(value: Any, longest: int = _UNCUT) -> Any:
    """Copy into JSON types with every secret masked. Never raises. `longest`: of a text and of a collection."""
    return _Copy(longest, masks=True).of(value, 0)


def plain_value(value: Any, longest: int = _UNCUT) -> Any:
    return _Copy(longest, masks=False).of(value, 0)


def cut_copies(value: Any) -> Iterator[Any]:
    """Yield ever shorter copies, until an event can hold one. Their structure stays, as it identifies a call."""
    longest = 2 * MAX_CHARACTERS // 3
    while longest > 1:
        if longest < _LEAST_CUT or weight(value, MAX_CHARACTERS, longest) <= MAX_CHARACTERS:
            copy = plain_value(value, longest)
            if weight(copy, MAX_CHARACTERS) <= MAX_CHARACTERS:
                yield copy
        longest = longest * 3 // 4


def fitting(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON as an event keeps it, for what a process holds of a sender's."""
    return value if weight(value, MAX_CHARACTERS) <= MAX_CHARACTERS else next(cut_copies(value), {})


class _Copy:
    __slots__ = ("left", "longest", "masks")

    def __init__(self, longest: int, masks: bool) -> None:
        self.longest = longest
        self.masks = masks
        self.left = min(longest, _MAX_VALUES)

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self._masked(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if -_MAX_INT // 2 <= value < _MAX_INT else self._masked(_text(value))
        if depth >= _MAX_DEPTH:
            return "[nested too deep]"
        try:
            return self._of_other(value, depth)
        except Exception:  # of the agent's own collection
            return f"<unreadable {kind.__name__}>"

    def _of_other(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            return self.of(value.value, depth + 1)
        if isinstance(value, Mapping):
            copy = {}
            for key, member in self._kept(value.items()):
                name = cut_text(key if type(key) is str else _text(key), self.longest)
                name, secret = _key(name) if self.masks else (name, None)
                masked = self.of(member, depth + 1)
                copy[name] = masked if secret is None else _under_secret_name(name, secret, masked)
            return _in_columns(self._named_beside(copy)) if self.masks else copy
        if isinstance(value, (list, tuple, set, frozenset)):
            kept = [self.of(member, depth + 1) for member in self._kept(value)]
            if self.masks and any(type(member) is str for member in kept[:-1]):
                kept = _after_options(kept)
            return kept if len(kept) == len(value) else [*kept, f"… [{len(value) - len(kept)} elements cut]"]
        return self._masked(_text(value))

    def _kept(self, members: Iterable[Any]) -> Iterator[Any]:
        for member in islice(members, self.longest):
            if self.left <= 0:
                return
            self.left -= 1
            yield member

    def _named_beside(self, copy: dict[str, Any]) -> dict[str, Any]:
        """`{"name": "DB_PASSWORD", "value": …}`, `{"element": "Password field", "text": …}`"""
        for held, value in [(held, copy[held]) for held in _VALUES_BESIDE if type(copy.get(held)) in (str, list, dict)]:
            for name in map(copy.get, _NAMES_BESIDE):
                if type(name) is str and len(name) <= _LONG_KEY:
                    name = _OF_AN_ELEMENT.sub("", name)
                    if (secret := _key(name)[1]) is not None:
                        copy[held] = _under_secret_name(name, secret, value, 1)
        return copy

    def _masked(self, text: str) -> str:
        text = cut_text(text, self.longest)
        return redact(text) if self.masks else text


def _in_columns(copy: dict[str, Any]) -> dict[str, Any]:
    """`{"columns": ["id", "password"], "rows": [[1, …]]}`"""
    names = next(
        (copy[each] for each in ("columns", "fields", "header", "headers") if type(copy.get(each)) is list), ()
    )
    kinds = [kind_of_column(name) if type(name) is str and len(name) <= _LONG_KEY else None for name in names]
    if any(kinds):
        for each in ("rows", "data", "values", "records"):
            for row in copy[each] if type(copy.get(each)) is list else ():
                if type(row) is list and len(row) == len(kinds):
                    row[:] = [
                        value if kind is None else _under_secret_name("", kind, value)
                        for value, kind in zip(row, kinds, strict=True)
                    ]
    return copy


def _after_options(members: list[Any]) -> list[Any]:
    """`["--password", …]`, `["mysql", "-p", …]`, and `["X-Api-Key", …]` if there are only two."""
    takes = type(members[0]) is str and len(members[0]) <= _LONG_KEY and _TAKES_PASSWORD.match(members[0]) is not None
    for place, name in enumerate(members[:-1]):
        if type(name) is str and len(name) <= _LONG_KEY and (name.startswith("-") or len(members) == 2):
            secret = "password" if takes and name == "-p" else _key(name)[1]
            value = members[place + 1]
            if secret is not None and type(value) is str and not value.startswith("-"):
                members[place + 1] = _under_secret_name(name, secret, value)
    return members


def _under_secret_name(name: str, kind: str, value: Any, depth: int = 0) -> Any:
    if kind == "password" and type(value) is int:
        return mask_of(kind)
    if type(value) is list:
        return [each if type(each) is int else _under_secret_name(name, kind, each, depth + 1) for each in value]
    if type(value) is dict:
        return {
            key: each
            if type(each) is int or (depth and key not in _VALUES_WITHIN)
            else _under_secret_name(name, kind, each, depth + 1)
            for key, each in value.items()
        }
    if type(value) is not str or "[redacted:" in value or (name.lower() == "pwd" and FOLDER.match(value)):
        return value
    return mask_of(kind) if is_secret(value, password=kind == "password") else value


def _text(value: Any) -> str:
    try:
        if isinstance(value, (bytes, bytearray)):
            return value.decode("utf-8", "replace")
        return str(value)
    except Exception:  # of the agent's own `__str__`
        return f"<unprintable {type(value).__name__}>"


def weight(value: Mapping[str, Any] | Sequence[Any], most: int, longest: int = _UNCUT) -> int:
    """A value's characters plus eight a member, shared parts each time, up to little above `most`."""
    found, places = 0, [value]
    for place in places:
        found += _OF_A_VALUE * len(place)
        if found > most:
            break
        for member in place.values() if type(place) is dict else place:
            kind = type(member)
            if kind is str:
                found += len(member) if len(member) < longest else longest
            elif kind in _CONTAINERS:
                places.append(member)
    return found


def cut_text(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    kept = whole_tokens(text, longest)
    return f"{text[:kept]}… [{len(text) - kept} characters cut]"


def whole_tokens(text: str, longest: int) -> int:
    """Return where to cut: half a secret is not recognised."""
    match = _OF_NO_TOKEN.search(text[max(0, longest - _LONGEST_TOKEN) : longest][::-1])
    return longest - match.start() if match else longest
