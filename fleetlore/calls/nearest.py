"""Find the recoveries of a tool whose goal, call and error share words with a failure.

An inverted index over hashed words (`fleetlore.calls.failed_call`). A first pass over all examples adds up the weights
of shared words, a second computes cosines (tf-idf, binary tf) of the best of them. What it says is a function of the
set of items, whatever their order of arrival.
"""

from __future__ import annotations

from array import array
from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.calls.context import hash_of
from fleetlore.calls.failed_call import MAX_WORDS, FailureWords, words
from fleetlore.stats.hashing import HASHES, stable_hash
from fleetlore.wire.lore import MemoryItem

Figures = npt.NDArray[np.float64]

# How the goal, the call and the error weigh where candidates are taken, and that it is the same kind of failure.
TEXTS = np.array([2.0, 1.0, 1.0])
SAME_KIND = 0.5
# So that a word of the goal is another one than the same word of the call.
_SALTS = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)
# In the first pass a word of more than this share of the examples is left out: it tells little and costs the most.
_COMMON, _FEW = 0.4, 20
_FIRST_PASS = 2
_NONE = -1
_TIE = 1e-6 / HASHES

_CHANGE = "Change: "
_ARROW = " → "


class Example(NamedTuple):
    """A failure that a session got past, with the recovery that it backs.

    Attributes:
        change: what was changed in the call, on one line.
        came: hashes of the words that came with the change; `added`: the words that were not in the call before.
    """

    item: MemoryItem
    words: FailureWords
    change: str
    came: frozenset[int]
    added: frozenset[str]


def examples(item: MemoryItem) -> list[Example]:
    """Those of a recovery; none where it says no change, or not what it is to be compared by."""
    lines = item.content.splitlines() if item.near else []
    change = next((line.removeprefix(_CHANGE) for line in lines if line.startswith(_CHANGE)), "")
    if not change:
        return []
    hashed = {word: hash_of(word) for word in words(new_part(change))}
    came = frozenset(hashed.values())
    return [
        Example(item, found, change, came, frozenset(word for word in hashed if hashed[word] not in found.call))
        for text in item.near
        if (found := FailureWords.from_text(text)) is not None
    ]


def new_part(change: str) -> str:
    """What came with a change: of "`a` → `b`, add `c`, drop `d`" it is "`b` `c`"."""
    parts = (part for part in change.split(", ") if not part.startswith("drop "))
    return " ".join(part.rpartition(_ARROW)[2].removeprefix("add ").removeprefix("call ") for part in parts)


class Near(NamedTuple):
    """Candidates for a failure, the nearest first, and the cosine of each text: float64 (n,), 0..1."""

    examples: list[Example]
    goal: Figures
    call: Figures
    error: Figures

    @classmethod
    def none(cls) -> Near:
        """Nothing is near."""
        return cls([], *(np.zeros(0) for _ in TEXTS))


class NearestRecoveries:
    """The recoveries of one tool. Adding and dropping costs an item's words."""

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._at: list[Example | None] = []
        # A word's cell, the rows that hold it, and how many these are; no word has cell 0.
        self._cells: dict[int, int] = {}
        self._holding: list[array[int]] = [array("i")]
        self._counts = np.zeros(1024, np.int32)
        # By row: kind of failure; cells of the words of each text, filled up with cell 0; 1 / root of their number; and
        # an order of its own among equally near ones, that does not depend on what came first.
        self._kinds = np.full(64, _NONE)
        self._words = np.zeros((64, len(TEXTS), MAX_WORDS), np.int32)
        self._scales = np.ones((len(TEXTS), 64))
        self._ties = np.zeros(64)
        # One failure is asked about after it and before the next call.
        self._last: tuple[FailureWords, int, Near] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, item: MemoryItem) -> None:
        """Add or replace an item; one that cannot be ranked is left out."""
        new, rows = examples(item), self._rows.get(item.id, [])
        # Most news of an item is one more session that backs it.
        if [each.words for each in new] == [each.words for row in rows if (each := self._at[row]) is not None]:
            for row, each in zip(rows, new, strict=True):
                self._at[row] = each
            self._last = None
            return
        self.drop(item.id)
        if new:
            self._rows[item.id] = [self._add(example, number) for number, example in enumerate(new)]

    def drop(self, id: str) -> None:
        """Drop an item; unknown ids are fine."""
        self._last = None
        for row in self._rows.pop(id, ()):
            self._at[row], self._kinds[row] = None, _NONE
            self._free.append(row)
            for cell in self._words[row][self._words[row] > 0].tolist():
                self._holding[cell].remove(row)
                self._counts[cell] -= 1

    def near(self, asked: FailureWords, most: int) -> Near:
        """At most `most` examples that share a word with the failure, or are of its kind."""
        count = len(self._at) - len(self._free)
        if not count:
            return Near.none()
        if self._last is not None and self._last[:2] == (asked, most):
            return self._last[2]
        parts = [self._known(asked, part, count) for part in range(len(TEXTS))]
        is_same = SAME_KIND * (self._kinds[: len(self._at)] == asked.kind)
        rough = is_same + self._rough(parts, count)
        rows = _best(np.where(rough > 0.0, rough + self._ties[: len(rough)], 0.0), _FIRST_PASS * most)
        cosines = self._cosines(parts, rows, count)
        score = np.round(is_same[rows] + TEXTS @ cosines + self._ties[rows], 12)
        order = np.argsort(-score, kind="stable")[:most]
        chosen = [example for row in rows[order].tolist() if (example := self._at[row]) is not None]
        near = Near(chosen, *cosines[:, order])
        self._last = asked, most, near
        return near

    def _add(self, example: Example, number: int) -> int:
        if self._free:
            row = self._free.pop()
            self._at[row] = example
        else:
            row = len(self._at)
            self._at.append(example)
            if row >= len(self._words):
                self._kinds = np.concatenate([self._kinds, np.full_like(self._kinds, _NONE)])
                self._words = np.concatenate([self._words, np.zeros_like(self._words)])
                self._scales = np.concatenate([self._scales, np.ones_like(self._scales)], axis=1)
                self._ties = np.concatenate([self._ties, np.zeros_like(self._ties)])
        self._kinds[row] = example.words.kind
        self._words[row] = 0
        self._ties[row] = _TIE * stable_hash(f"{example.item.id}/{number}")
        for part, salt in enumerate(_SALTS):
            cells = [self._cell(word ^ salt) for word in example.words.texts[part]]
            self._words[row, part, : len(cells)] = cells
            self._scales[part, row] = 1.0 / max(1, len(cells)) ** 0.5
            for cell in cells:
                self._holding[cell].append(row)
                self._counts[cell] += 1
        return row

    def _cell(self, word: int) -> int:
        cell = self._cells.setdefault(word, len(self._holding))
        if cell == len(self._holding):
            self._holding.append(array("i"))
            if cell >= len(self._counts):
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        return cell

    def _known(self, asked: FailureWords, part: int, count: int) -> _Known:
        salt = _SALTS[part]
        cells = [cell for word in asked.texts[part] if (cell := self._cells.get(word ^ salt)) and self._holding[cell]]
        weights = [log(1.0 + count / (1.0 + len(self._holding[cell]))) ** 2 for cell in cells]
        total = sum(weights) + (len(asked.texts[part]) - len(cells)) * log(1.0 + count) ** 2
        return _Known(cells, weights, total**0.5 or 1.0)

    def _rough(self, parts: list[_Known], count: int) -> Figures:
        """About the weighted sum of the cosines, of each row: float64 (rows,). As if all its words were rare."""
        size, common, rare = len(self._at), max(_FEW, _COMMON * count), log(1.0 + count)
        score = np.zeros(size)
        for part, known in enumerate(parts):
            kept = [
                (rows, weight)
                for cell, weight in zip(known.cells, known.weights, strict=True)
                if len(rows := self._holding[cell]) <= common
            ]
            if kept:
                at = np.frombuffer(b"".join([rows for rows, _ in kept]), np.intc)
                weights = np.repeat([weight for _, weight in kept], [len(rows) for rows, _ in kept])
                scale = TEXTS[part] / (known.length * rare)
                score += np.bincount(at, weights, size) * self._scales[part, :size] * scale
        return score

    def _cosines(self, parts: list[_Known], rows: npt.NDArray[np.int64], count: int) -> Figures:
        """Of each text of these rows: float64 (texts, n)."""
        words = self._words[rows]
        weights = np.log(1.0 + count / (1.0 + self._counts[words])) ** 2 * (words > 0)
        is_asked = np.zeros(len(self._counts))
        for known in parts:
            is_asked[known.cells] = 1.0
        lengths = np.sqrt(weights.sum(axis=2)) * [known.length for known in parts]
        cosines: Figures = ((weights * is_asked[words]).sum(axis=2) / np.maximum(lengths, 1e-9)).T
        return cosines


class _Known(NamedTuple):
    """The words of one text that examples hold.

    Attributes:
        cells, weights: of each such word, the weight being its squared idf.
        length: root of the sum of the squared idf of all words of the text, held by an example or not.
    """

    cells: list[int]
    weights: list[float]
    length: float


def _best(score: Figures, most: int) -> npt.NDArray[np.int64]:
    """Rows of the highest positive scores."""
    rows = np.flatnonzero(score > 0.5 * score.max(initial=0.0))  # mostly enough, and few to choose from
    if len(rows) < most:
        rows = np.flatnonzero(score > 0.0)
    best: npt.NDArray[np.int64] = rows
    return best[np.argpartition(score[rows], -most)[-most:]] if len(rows) > most else best
