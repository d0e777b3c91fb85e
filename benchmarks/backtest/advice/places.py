"""Recover which database each SQL task is about, from the log alone: for grouping test sessions, never for learning.

An error that names a database's table tells it (`Table 'shop.orders' doesn't exist`). A task without such an error has
that of the tasks whose queries that worked name the same tables and columns: ids of tasks may be shuffled, so
neighbours say nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from fleetlore.stats.hashing import stable_hash
from models.backtest.heard import CallLog
from models.backtest.report import Logged

L = TypeVar("L", bound=Logged)

Task = tuple[str, str]  # source, task

_DATABASE = re.compile(r"Table '(\w+)\.")
_TABLE = re.compile(r"\b(?:from|join)\s+`?(\w+)", re.IGNORECASE)
_NAME = re.compile(r"[a-z_]\w+")
# A table's name says more than any other word.
_TABLE_WEIGHT: Final = 3


def places_of(logs: Iterable[CallLog]) -> dict[Task, str]:
    """By source and task: its database. A task without any sign of one is left out."""
    told, named = _signs(logs)
    weights = _databases_by_name(told, named)
    return {task: found for task in named if (found := told.get(task) or _guess(named[task], weights))}


def guessed_right(logs: Iterable[CallLog]) -> tuple[int, int]:
    """Leave each task whose error tells its database out: how many are guessed right from the others, of how many."""
    told, named = _signs(logs)
    weights = _databases_by_name(told, named)
    right = sum(_guess(named[task], weights, without=database) == database for task, database in told.items())
    return right, len(told)


def split_by_place(
    train: Sequence[L], test: Sequence[L], places: Mapping[Task, str], seed: int, share: float
) -> tuple[list[L], list[L]]:
    """Hold out `share` of the places of each source that has several, drawn by hash.

    Returns:
        The training sessions of these sources at no held place, and all sessions at held places.
    """
    known = {each.source for each in train}
    held: set[tuple[str, str]] = set()
    for source in sorted({source for source, _ in places} & known):
        names = sorted(
            {name for (of, _), name in places.items() if of == source},
            key=lambda name: (stable_hash(f"{seed}/place/{source}/{name}"), name),
        )
        if len(names) > 1:
            held |= {(source, name) for name in names[: max(1, round(share * len(names)))]}
    sources = {source for source, _ in held}

    def place(each: L) -> tuple[str, str]:
        return each.source, places.get((each.source, each.task), "")

    outside = [each for each in train if each.source in sources and place(each) not in held]
    return outside, [each for each in (*train, *test) if place(each) in held]


def slices_by_place(
    train: Sequence[Logged], test: Sequence[Logged], places: Mapping[Task, str]
) -> list[tuple[str, ...]]:
    """Of each test session: P at a place that its source's training sessions were never at, AP if its agent is new too.

    None elsewhere, and where its place is not known.
    """
    agents = {(each.source, each.agent) for each in train}
    sources = {source for source, _ in agents}
    met = {(each.source, places.get((each.source, each.task))) for each in train}
    found: list[tuple[str, ...]] = []
    for each in test:
        place = places.get((each.source, each.task))
        if place is None or (each.source, place) in met or each.source not in sources:
            found.append(())
        else:
            found.append(("P",) if (each.source, each.agent) in agents else ("AP",))
    return found


def _signs(logs: Iterable[CallLog]) -> tuple[dict[Task, str], dict[Task, Counter[str]]]:
    """The databases that errors told, and the names in calls that worked of tools that ever told one; by task."""
    logs = list(logs)
    told: dict[Task, Counter[str]] = defaultdict(Counter)
    tools: set[tuple[str, str]] = set()
    for log in logs:
        for call in log.calls:
            for database in _DATABASE.findall(call.said):
                told[log.source, log.task][database] += 1
                tools.add((log.source, call.tool))
    named: dict[Task, Counter[str]] = defaultdict(Counter)
    for log in logs:
        for call in log.calls:
            if (log.source, call.tool) in tools:
                names = named[log.source, log.task]
                if call.failure is None:
                    names.update({f"table {each.casefold()}" for each in _TABLE.findall(call.text)})
                    names.update(set(_NAME.findall(call.text.casefold())))
    sure = {task: min(found, key=lambda each: (-found[each], each)) for task, found in told.items()}
    return sure, named


def _databases_by_name(told: Mapping[Task, str], named: Mapping[Task, Counter[str]]) -> dict[str, Counter[str]]:
    """By name: how many tasks of each database have it."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for task, database in told.items():
        for name in named[task]:
            found[name][database] += 1
    return found


def _guess(names: Counter[str], weights: Mapping[str, Counter[str]], without: str = "") -> str:
    """The database whose tasks share most names; empty where none does. `without`: leave one of its tasks out."""
    scores: dict[str, float] = defaultdict(float)
    for name in names:
        by_database = weights.get(name, Counter())
        total = by_database.total() - bool(without)
        for database, count in by_database.items():
            count -= database == without
            if count > 0 and total > 0:
                scores[database] += (_TABLE_WEIGHT if name.startswith("table ") else 1) * (count / total) ** 2
    return min(scores, key=lambda each: (-scores[each], each)) if scores else ""
