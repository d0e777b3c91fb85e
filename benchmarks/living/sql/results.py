"""Say whether the rows of a query answer a question, given queries that do.

The rules follow defog-ai/sql-eval. Several gold queries may be right, and `{a, b}` in one means any of its columns.
Names of columns do not count, and more columns than asked for are right too. The order of rows counts only if the
question asks for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

Row = tuple[Any, ...]

_CHOICE = re.compile(r"\{([^{}]*)\}")
_ORDER = re.compile(r"\b(order|sort|arrang|rank)", re.IGNORECASE)
DIGITS = 4


def golds(text: str) -> Iterator[str]:
    for query in filter(None, (each.strip() for each in text.split(";"))):
        choice = _CHOICE.search(query)
        if choice is None:
            yield query
            continue
        columns = [each.strip() for each in choice[1].split(",")]
        for count in range(1, len(columns) + 1):
            for some in combinations(columns, count):
                chosen = ", ".join(some)
                filled = query[: choice.start()] + chosen + query[choice.end() :]
                yield filled.replace("{}", chosen)


def ordered(category: str, question: str) -> bool:
    return category == "order_by" or _ORDER.search(question) is not None


def answers(gold: Sequence[Row], found: Sequence[Row], *, in_order: bool) -> bool:
    """Whether `found` has the columns of `gold`, in any order and among others, and its rows; each row once."""
    if not gold or not found:
        return not gold and not found
    wanted = [_column(gold, place) for place in range(len(gold[0]))]
    there = [_column(found, place) for place in range(len(found[0]))]
    fits = [[other for other, values in enumerate(there) if set(values) == set(mine)] for mine in wanted]
    rows = _rows(list(zip(*wanted, strict=True)), in_order)
    return any(
        _rows(list(zip(*(there[each] for each in chosen), strict=True)), in_order) == rows for chosen in _choices(fits)
    )


def _choices(fits: Sequence[Sequence[int]], taken: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Each way to give every column another one of those that fit."""
    if not fits:
        yield taken
        return
    for each in fits[0]:
        if each not in taken:
            yield from _choices(fits[1:], (*taken, each))


def _column(rows: Sequence[Row], place: int) -> list[Any]:
    return [_value(row[place]) for row in rows]


def _value(value: Any) -> Any:
    if isinstance(value, int | float):
        return round(float(value), DIGITS) + 0.0
    return value.strip() if isinstance(value, str) else value


def _rows(rows: list[Row], in_order: bool) -> list[Row]:
    once = list(dict.fromkeys(rows))
    return once if in_order else sorted(once, key=repr)
