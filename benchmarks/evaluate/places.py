"""Recover which database each SQL task is about from the log alone. It groups sessions and is never learned from.

An error that names a database's table decides (`Table 'shop.orders' doesn't exist`). A task without such an error has
the database of the tasks whose successful queries name the same tables and columns. Neighbouring ids say nothing,
because they may be shuffled.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleetlore.transcripts.session import LoggedSession
from models.backtest import CallLog
from streams.offline.memory_pipeline import call_log

Task = tuple[str, str]  # source, task

_DATABASE = re.compile(r"Table '(\w+)\.")
_TABLE = re.compile(r"\b(?:from|join)\s+`?(\w+)", re.IGNORECASE)
_NAME = re.compile(r"[a-z_]\w+")
# A table's name says more than any other word.
_TABLE_WEIGHT: Final = 3


def at_places(sessions: Sequence[LoggedSession]) -> list[LoggedSession]:
    """The sessions, each with its recovered database as its place unless it states one."""
    places = places_of(map(call_log, sessions))
    return [replace(each, place=each.place or places.get((each.source, each.task), "")) for each in sessions]


def places_of(logs: Iterable[CallLog]) -> dict[Task, str]:
    """By source and task: its database. A task without any sign of one is left out."""
    told, named = _signs(logs)
    weights = _databases_by_name(told, named)
    return {task: found for task in named if (found := told.get(task) or _guess(named[task], weights))}


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


def _guess(names: Counter[str], weights: Mapping[str, Counter[str]]) -> str:
    """The database whose tasks share most names; empty where none does."""
    scores: dict[str, float] = defaultdict(float)
    for name in names:
        by_database = weights.get(name, Counter())
        for database, count in by_database.items():
            weight = _TABLE_WEIGHT if name.startswith("table ") else 1
            scores[database] += weight * (count / by_database.total()) ** 2
    return min(scores, key=lambda each: (-scores[each], each)) if scores else ""
