"""Remember a session's shown advice, and redact the agent's quotes of it.

Recalled text must never become evidence: the fleet would learn its own words. So before an event leaves the process,
`MARK` replaces fenced advice and whole lines shown to this session, in any case, wrapping or escaping. Paraphrases,
parts of lines, encoded text, and text after the first 32 Ki characters are not recognised.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from secrets import token_hex
from typing import Any

from fleetlore.advice.gate import INVISIBLE
from fleetlore.calls.context import keep_newest
from fleetlore.redact.values import cut_text, plain_value, weight
from fleetlore.words import PART

__all__ = ["MARK", "OPENING", "AdviceLedger", "fence_name", "new_nonce", "redact_fenced"]

_FENCE = "fleet-memory"
MARK = "[fleet-memory]"

OPENING = f"<{_FENCE}"
# An unclosed fence hides only its line. Searching stops at the next opening: many would take quadratic time.
_FENCED = re.compile(
    rf"{OPENING}[^>\n]{{0,16}}>"
    rf"(?:(?:[^<]|<(?!/?{_FENCE}))*+"
    rf"</{_FENCE}[^>\n]{{0,16}}>|[^\n]*)"
)
# A shorter line may be the agent's own ("SELECT 1"): evidence.
_MIN_LINE = 24
_MAX_LINES = 64
# Blanks, wraps, quotes and JSON's escapes of them, between two words.
_BETWEEN = r"(?:\\u[0-9a-f]{4}|\\[nrt]|[\W_]){1,24}+"
_MIN_WORDS = 4
_MAX_ASKED = 64
# Quotations leave out the beginning of an item's line.
_LABEL = re.compile(r"(?:\| )?(?:\d{1,3}\.|[A-Z][a-z]{2,8}:) |\| ")
_MAX_TEXT = 32 * 1024
_MAX_FENCED = 64 * 1024
_MAX_DEPTH = 16
# 20,000 values: a list that holds itself expands without bound.
_MAX_WEIGHT = 8 * 20_000


def new_nonce() -> str:
    return token_hex(4)


def fence_name(nonce: str) -> str:
    return f"{_FENCE} {nonce}" if nonce else _FENCE


def fenced(lines: Iterable[str], nonce: str) -> str:
    name = fence_name(nonce)
    return "\n".join((f"<{name}>", *lines, f"</{name}>"))


def redact_fenced(value: Any) -> Any:
    return _marked(value, _redact_fenced_text)


class AdviceLedger:
    """The shown and the withheld advice of one session. `shown`: keys of the shown tips.

    Advice about a call belongs to it, even among parallel calls. If the call is not made, the next call of a later
    round gets the credit: the agent heeded the warning.
    """

    def __init__(self) -> None:
        self.shown: set[str] = set()
        # By call, or "" for the whole session: the round, the shown ids, the withheld ids.
        self._asked: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {}
        self._round = 0
        self._acted = False
        # The last shown lines, newest last, each with its longest word.
        self._lines: dict[str, str] = {}

    def show(self, call: str, ids: tuple[str, ...], withheld: tuple[str, ...], lines: Iterable[str]) -> None:
        """Note what was shown about a call, or with "" about the whole session."""
        if self._acted:
            self._round += 1
            self._acted = False
        _, before, kept_back = self._asked.get(call, (0, (), ()))
        keep_newest(self._asked, call, (self._round, (*before, *ids), (*kept_back, *withheld)), _MAX_ASKED)
        if not ids:
            return
        for line in (part for whole in lines for part in (whole, _LABEL.sub("", whole, 1))):
            if len(line) >= _MIN_LINE and line not in self._lines:
                longest = max(PART.findall(line.lower()), key=len, default=line)
                keep_newest(self._lines, line, longest, _MAX_LINES)

    def take(self, call: str) -> tuple[list[str], list[str]]:
        """Return the ids of what was shown and withheld about a call that begins."""
        self._acted = True
        of_call = [self._asked.pop(call)] if call in self._asked else []
        due = [known for known, (asked, _, _) in self._asked.items() if not known or asked < self._round]
        taken = of_call + [self._asked.pop(known) for known in due]
        shown = list(dict.fromkeys([id for _, ids, _ in taken for id in ids]))
        kept_back = list(dict.fromkeys([id for _, _, ids in taken for id in ids]))
        return shown, kept_back

    def redact_shown(self, value: Any) -> Any:
        """Return the value with recalled text replaced by the mark, or the same object."""
        return _marked(value, self._redact_shown_text if self._lines else _redact_fenced_text)

    def _redact_shown_text(self, text: str) -> str:
        marked = _redact_fenced_text(text)
        if INVISIBLE.search(marked, 0, _MAX_TEXT):
            seen = INVISIBLE.sub("", marked[:_MAX_TEXT]) + marked[_MAX_TEXT:]
            return changed if (changed := self._redact_lines(seen)) != seen else marked
        return self._redact_lines(marked)

    def _redact_lines(self, marked: str) -> str:
        folded = marked[:_MAX_TEXT].lower()
        found = [line for line, word in self._lines.items() if word in folded]
        for line in sorted(found, key=len, reverse=True):  # a shorter line may be a part of a longer one
            marked = marked.replace(line, MARK)
            if quoted := _quoted(line):
                marked = _marked_where(quoted, marked)
        return marked


@lru_cache(maxsize=1024)
def _quoted(line: str) -> re.Pattern[str] | None:
    words = PART.findall(line.lower())
    return re.compile(_BETWEEN.join(words)) if len(words) >= _MIN_WORDS else None


def _marked_where(quoted: re.Pattern[str], text: str) -> str:
    folded = text[:_MAX_TEXT].lower()
    if len(folded) != len(text[:_MAX_TEXT]):  # a letter whose lower case is two letters
        return text
    for match in reversed(list(quoted.finditer(folded))):
        text = text[: match.start()] + MARK + text[match.end() :]
    return text


def _redact_fenced_text(text: str) -> str:
    # Cut as the event will be.
    return _FENCED.sub(MARK, cut_text(text, _MAX_FENCED)) if OPENING in text else text


def _marked(value: Any, change: Callable[[str], str]) -> Any:
    try:
        is_small = not isinstance(value, dict | list | tuple) or weight(value, _MAX_WEIGHT, 0) <= _MAX_WEIGHT
        return _mapped(value if is_small else plain_value(value), change)
    except Exception:  # of the agent's own collection
        return _mapped(plain_value(value), change)


def _mapped(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    if isinstance(value, str):
        return change(value) if len(value) >= _MIN_LINE else value
    if depth < _MAX_DEPTH:
        if isinstance(value, dict):
            # Keys that become equal are the agent's own, and the last one is kept.
            pairs = [(_mapped(key, change, depth + 1), _mapped(each, change, depth + 1)) for key, each in value.items()]
            same = all(new is key and made is value[key] for (new, made), key in zip(pairs, value, strict=True))
            return value if same else dict(pairs)
        if isinstance(value, list | tuple):
            entries = [_mapped(each, change, depth + 1) for each in value]
            return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
    return value
