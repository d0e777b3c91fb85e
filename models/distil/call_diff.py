"""Compare two calls: is the later one a repair of the earlier one, and what was changed?

Texts are compared as bags of tokens, JSON objects by keys and values. `distance` is cheap, since every pair of calls
needs it; `masked_difference` describes the one chosen pair. Results are cached, because a stuck agent repeats the same
few calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from fleetlore.fingerprint.fingerprint import parsed
from fleetlore.fingerprint.literals import is_code, masked_text, masked_tokens, masked_value

MAX_TOKENS = 300
# Of equal words in two texts.
_MAX_PAIRS = 40_000
# Share of words that two attempts at the same thing have in common.
RELATED = 0.5
# A change in more places, or in more characters, is not quoted.
MAX_RUNS = 3
MAX_SAID = 200
# Words quoted on each side of a change.
AROUND = 2

# A flag, a decimal and an operator are one token each.
_TOKEN = re.compile(r"(?<=\s)--?[A-Za-z][\w-]*|\d+\.\d+|\w+|[-+*/%<>=!]=|\*\*|//|->|[^\w\s]")
_MARKS = {" ": "·", "\t": "⇥", "\n": "⏎", "\r": "␍"}
# White space that two words have not always between them.
_SPACE = re.compile(r"(?<!\S) +|\s{2,}|[^\S ]")
_DIGITS = re.compile(r"\d+")
_IDENTITY = re.compile(r"(?:^|_|[a-z])(?:id|Id|ID|uuid|number|index|offset|page)s?$")


class _Text(NamedTuple):
    """A text in tokens. `words` leaves out punctuation, which would make all calls alike."""

    tokens: tuple[str, ...]
    bag: frozenset[str]
    words: frozenset[str]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Text:
    tokens = tuple(_TOKEN.findall(text)[:MAX_TOKENS])
    bag = _bag(tokens)
    words = frozenset([token for token in bag if token[-1].isalnum() or token[-1] == "_"])
    return _Text(tokens, bag, words)


def _bag(tokens: tuple[str, ...]) -> frozenset[str]:
    """The bag of tokens as a set: the second "a" is "2 a", which is no token. Sets intersect faster than counts."""
    counts = Counter(tokens)
    again = [f"{time} {token}" for token, count in counts.items() if count > 1 for time in range(2, count + 1)]
    return frozenset(counts).union(again)


@lru_cache(maxsize=4096)
def _values(arguments: str) -> dict[str, Any] | None:
    value = parsed(arguments)
    return value if isinstance(value, dict) else None


def opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """How to turn one sequence into the other, as `SequenceMatcher` has it; all of it at once where they repeat
    themselves too much to be compared within milliseconds.
    """
    counts, others = Counter(old), Counter(new)
    if sum(count * others[each] for each, count in counts.items()) > _MAX_PAIRS:
        return [("replace", 0, len(old), 0, len(new))]
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


@lru_cache(maxsize=4096)
def distance(failed: str, worked: str) -> int | None:
    """How much was changed between two calls of a tool: tokens removed and added; 0 for the same call.

    None if the later call is no second attempt at the same thing: the calls share less than half of their words, or
    differ in numbers and ids only (the same call about another thing).

    Args:
        failed, worked: arguments as JSON or text.
    """
    if failed == worked:
        return 0
    old_values, new_values = _values(failed), _values(worked)
    if old_values is not None and new_values is not None:
        return _object_distance(old_values, new_values)
    old, new = _parsed(failed), _parsed(worked)
    if _overlap(old, new) < RELATED or _masked(failed) == _masked(worked):
        return None
    return _edited(old, new)


class Difference(NamedTuple):
    """What was changed between two calls, literals as placeholders.

    Attributes:
        text: on one line: "`FROM cars` → `FROM cars_data`".
        key: the change without the words around it: equal for the same change in other calls.
        removed, added: the words that are gone and those that came.
        is_value: nothing but values of arguments differ, so it may hold for one task only.
    """

    text: str
    key: str
    removed: frozenset[str]
    added: frozenset[str]
    is_value: bool = False


@lru_cache(maxsize=4096)
def masked_difference(
    failed: str, worked: str, known: frozenset[str] = frozenset(), named: frozenset[str] = frozenset()
) -> Difference | None:
    """What was changed, shown with a few words around it, or None.

    None if the calls are alike once their literals are masked, or if too much was changed to say. White space is shown
    where nothing else was changed.

    Args:
        failed, worked: arguments as JSON or text, not cut.
        known: words that are no literals to the reader (`fleetlore.fingerprint.literals.names`).
        named: words that the error names as wrong: of several changes in a text those of them are shown.
    """
    old, new = _values(failed), _values(worked)
    if old is None or new is None:
        return _text_difference(failed, worked, known, named)
    parts = []
    for key in _changed(old, new):
        part = _value_difference(key, old, new, known, named)
        if part is None:
            return None  # a change that is not seen may be the one that helped
        parts.append(part)
    return _joined(parts)


def _value_difference(
    key: str, old: Mapping[str, Any], new: Mapping[str, Any], known: frozenset[str], named: frozenset[str]
) -> Difference | None:
    before, after = old.get(key), new.get(key)
    if isinstance(before, str) and isinstance(after, str) and (is_code(key, before) or is_code(key, after)):
        return _text_difference(before, after, known, named)
    was, is_now = (f"{key}={_text(masked_value(key, value, known))}" for value in (before, after))
    words = frozenset([key.casefold()])
    if key not in old:
        return Difference(f"add `{is_now}`", f"+{is_now}", frozenset(), words)
    if key not in new:
        return Difference(f"drop `{was}`", f"-{was}", words, frozenset())
    if was == is_now:
        return None
    return Difference(f"`{was}` → `{is_now}`", f"{was}\t{is_now}", words, words, is_value=True)


def _joined(parts: Sequence[Difference]) -> Difference | None:
    text = ", ".join(part.text for part in parts)
    if not parts or len(parts) > MAX_RUNS or len(text) > MAX_SAID:
        return None
    return Difference(
        text,
        "\n".join(part.key for part in parts),
        frozenset().union(*(part.removed for part in parts)),
        frozenset().union(*(part.added for part in parts)),
        all(part.is_value for part in parts),
    )


def _text_difference(failed: str, worked: str, known: frozenset[str], named: frozenset[str]) -> Difference | None:
    old, new = _Shown(failed, known), _Shown(worked, known)
    edits: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[int, int, int, int]] = {}
    for tag, start, end, since, until in opcodes(old.words, new.words):
        if tag != "equal":
            edits.setdefault((old.words[start:end], new.words[since:until]), (start, end, since, until))
    if not edits:
        return _white_space(failed, worked, known) if "".join(failed.split()) == "".join(worked.split()) else None
    # What the error names was wrong; what else was changed may be for another reason.
    of_error = [edit for edit in edits if any(word.casefold() in named for word in edit[0])]
    chosen = of_error or [edit for edit in edits if "".join(edit[0]).casefold() != "".join(edit[1]).casefold()] or edits
    text = ", ".join([_run(old, new, *edits[edit]) for edit in chosen])
    if len(chosen) > MAX_RUNS or len(text) > MAX_SAID:
        return None
    removed, added = Counter(old.words), Counter(new.words)
    gone, came = (frozenset(map(str.casefold, words)) for words in (removed - added, added - removed))
    if of_error:
        parts = {
            "\t".join(" ".join(word for word in words if word[-1].isalnum()) for words in edit) for edit in of_error
        }
        return Difference(text, "\n".join(sorted(parts)), gone, came)
    # The words, whatever their order, number and punctuation; if none changed, punctuation or order did.
    plain = [sorted(filter(_is_word, words)) for words in (gone, came)]
    first, second = plain if any(plain) else (sorted(gone), sorted(came))
    return Difference(text, f"{' '.join(first)}\t{' '.join(second)}" if first or second else text, gone, came)


def _is_word(token: str) -> bool:
    return token[-1].isalnum() or token[-1] in "_>"


class _Shown:
    """A text in tokens with its literals masked, that can be quoted as it was written."""

    def __init__(self, text: str, known: frozenset[str]) -> None:
        self._text = text
        self._tokens = masked_tokens(text, known)
        self.words = tuple([word for _, _, word in self._tokens])

    def quote(self, start: int, end: int) -> str:
        """Tokens `start`..`end` on one line, joined where the text joins them."""
        said, last = "", None
        for begin, stop, word in self._tokens[start:end]:
            said += (" " if last is not None and begin > last else "") + word
            last = stop
        return said

    def touches(self, end: int) -> bool:
        """Whether the token before `end` and the one there are not apart."""
        return end < len(self._tokens) and self._tokens[end - 1][1] == self._tokens[end][0]

    def is_lines(self, start: int, end: int) -> bool:
        """Whether tokens `start`..`end` are whole lines."""
        before = self._text[self._tokens[start - 1][1] if start else 0 : self._tokens[start][0]]
        after = self._text[self._tokens[end - 1][1] : self._tokens[end][0] if end < len(self._tokens) else None]
        return (not start or "\n" in before) and (end == len(self._tokens) or "\n" in after)


def _run(old: _Shown, new: _Shown, start: int, end: int, since: int, until: int) -> str:
    """One change, with the words beside it; lines that came need none."""
    if start == end:
        before = min(start, since, AROUND)
        if not before or new.is_lines(since, until):
            return f"add `{new.quote(since, until)}`"
        after = int(new.touches(until))  # `pi` → `math.pi`
        return f"`{old.quote(start - before, start + after)}` → `{new.quote(since - before, until + after)}`"
    if since == until:
        place = f" after `{old.quote(max(0, start - AROUND), start)}`" if start else ""
        return f"drop `{old.quote(start, end)}`{place}"
    before, after = min(start, since, AROUND), AROUND
    return f"`{old.quote(start - before, end + after)}` → `{new.quote(since - before, until + after)}`"


def _white_space(failed: str, worked: str, known: frozenset[str]) -> Difference | None:
    """The first lines that differ, with their white space as marks."""
    old, new = failed.splitlines(keepends=True), worked.splitlines(keepends=True)
    for _, start, end, since, until in opcodes(old, new):
        was, is_now = (masked_text("".join(lines), known) for lines in (old[start:end], new[since:until]))
        if was != is_now:
            was, is_now = _visible(was), _visible(is_now)
            if len(was) + len(is_now) > MAX_SAID:
                return None
            key = "\t".join("".join(each for each in text if each in _MARKS.values()) for text in (was, is_now))
            return Difference(f"`{was}` → `{is_now}`", key, frozenset(), frozenset([key]))
    return None


def _visible(text: str) -> str:
    return _SPACE.sub(lambda match: "".join([_MARKS.get(each, each) for each in match.group()]), text)


def _object_distance(old: Mapping[str, Any], new: Mapping[str, Any]) -> int | None:
    changed = _changed(old, new)
    if not changed:
        return 0  # the same call in another spelling of JSON
    shared = old.keys() & new.keys()
    alike = sum(_value_overlap(old[key], new[key]) for key in shared)
    keys = len(old.keys() | new.keys())
    if keys > 1 and alike / keys < RELATED:
        return None
    if all(key in shared and _is_other_thing(key, old[key], new[key]) for key in changed):
        return None
    return sum(_edited(_parsed(_text(old.get(key, ""))), _parsed(_text(new.get(key, "")))) for key in changed)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = sorted(old.keys() | new.keys())
    return [key for key in keys if (key in old) != (key in new) or old[key] != new[key]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _value_overlap(old: Any, new: Any) -> float:
    return 1.0 if old == new else _overlap(_parsed(_text(old)), _parsed(_text(new)))


def _is_other_thing(key: str, old: Any, new: Any) -> bool:
    """Whether the value names another thing. A number under a key that is no id is a setting instead."""
    if isinstance(old, str) and isinstance(new, str):
        return _masked(old) == _masked(new)
    return _IDENTITY.search(key) is not None


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    return _DIGITS.sub("0", text)


def _overlap(old: _Text, new: _Text) -> float:
    """Dice coefficient of the two bags of words."""
    total = len(old.words) + len(new.words)
    return 2 * len(old.words & new.words) / total if total else 1.0


def _edited(old: _Text, new: _Text) -> int:
    """Tokens removed and added; at least 1, since a new order is a change too."""
    return max(1, len(old.bag ^ new.bag))
