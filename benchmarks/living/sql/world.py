"""Read databases of SQLite and questions about them from a folder of `*.db` and `questions.json`.

A question has `id`, `db`, `question` and `gold` (queries that answer it, with `;` between them), and may have
`category` and `instructions`.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.living.llm.model import Message
from benchmarks.living.sql.results import Row, answers, golds, ordered
from benchmarks.living.world import Call, Ran, Task
from fleetlore.errors import ConfigError

# The databases' own: they were made as of then.
NOW = "2026-11-24 12:00:00"
SECONDS = 5.0
MOST_ROWS = 5_000
# Rows and characters of a result for the model, whose context is small, and for the agent's code.
SHOWN_ROWS = 12
SHOWN = 800
RETURNED_ROWS = 100
MOST_NOTE = 300
LOOK_UP = "SELECT sql FROM sqlite_master"
ERROR = "OperationalError"
_LOOK_UP = re.compile(r"sqlite_(master|schema)|^\s*(pragma|explain)\b", re.IGNORECASE)
_NOWS = (
    (re.compile(r"'now'", re.IGNORECASE), f"'{NOW}'"),
    (re.compile(r"\bCURRENT_TIMESTAMP\b(\(\))?", re.IGNORECASE), f"'{NOW}'"),
    (re.compile(r"\bCURRENT_DATE\b(\(\))?", re.IGNORECASE), f"'{NOW[:10]}'"),
)


@dataclass(frozen=True, slots=True)
class Question(Task):
    """A task with its `gold` queries and `category`."""

    gold: str
    category: str


class Result(NamedTuple):
    columns: tuple[str, ...]
    rows: list[Row]


class SqlWorld:
    """See the module. Raises ConfigError for a folder that is not such a world."""

    system = """You answer questions about a SQLite database by writing SQL. You have two tools. \
Reply with one line: a tool, a colon, and one SQLite query on that line.
sql: QUERY      runs a read-only query and shows its rows, or the database's error
submit: QUERY   hands in the query whose rows answer the question; if it runs, the task is over
You have few calls, the submit included. Never repeat a call that failed."""
    example: Sequence[Message] = (
        ("user", "Database: shop\nQuestion: How many articles cost more than 10?"),
        ("assistant", "sql: SELECT COUNT(*) FROM articles WHERE price > 10"),
        ("user", "Error: no such table: articles"),
        ("assistant", f"sql: {LOOK_UP}"),
        ("user", "sql\nCREATE TABLE item (itemNo INTEGER, label TEXT, unitPrice REAL)"),
        ("assistant", "submit: SELECT COUNT(*) FROM item WHERE unitPrice > 10"),
        ("user", "Accepted."),
    )
    grammar = 'root ::= ("sql: " | "submit: ") [A-Za-z] [^\\n]{3,600}\n'
    tools = ("sql", "submit")
    argument = "query"
    first_look: Call | None = Call("sql", LOOK_UP)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self.tasks: Sequence[Task] = [
                _question(each) for each in json.loads((folder / "questions.json").read_text())
            ]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{folder} has no questions: {error!r}") from error
        for name in {each.place for each in self.tasks}:
            if not (folder / f"{name}.db").exists():
                raise ConfigError(f"{folder} has no {name}.db")

    def run(self, task: Task, call: Call) -> Ran:
        assert isinstance(task, Question)
        try:
            if call.tool == "submit" and self.is_look_up(call):
                raise sqlite3.OperationalError("a look-up is no answer to the question: submit a query that answers it")
            found = self.query(task.place, call.text)
        except (sqlite3.Error, sqlite3.Warning) as error:
            return Ran(str(error), ERROR)
        if call.tool == "submit":
            return Ran("Accepted.", solved=self._is_right(task, found))
        text = _shown(found, SHOWN_ROWS)
        return Ran(text if len(text) <= SHOWN else f"{text[:SHOWN]} … (cut)", whole=_shown(found, RETURNED_ROWS))

    def query(self, place: str, text: str, seconds: float = SECONDS) -> Result:
        """Rows of a query; nothing is written. Raises sqlite3.Error, whose text is the database's own."""
        for pattern, now in _NOWS:
            text = pattern.sub(now, text)
        end = time.monotonic() + seconds
        with closing(sqlite3.connect(f"file:{self._folder / f'{place}.db'}?mode=ro", uri=True)) as database:
            database.set_progress_handler(lambda: time.monotonic() > end, 10_000)
            cursor = database.execute(text)
            if cursor.description is None:
                raise sqlite3.OperationalError("the statement returns no rows: only SELECT is allowed")
            return Result(tuple(each[0] for each in cursor.description), cursor.fetchmany(MOST_ROWS))

    def is_look_up(self, call: Call) -> bool:
        return _LOOK_UP.search(call.text) is not None

    def in_full(self, task: Task) -> str:
        tables = []
        for (name,) in self.query(task.place, "SELECT name FROM sqlite_master WHERE type = 'table'").rows:
            columns = self.query(task.place, f'PRAGMA table_info("{name}")').rows
            tables.append(f"{name}({', '.join(f'{each[1]} {each[2]}'.strip() for each in columns)})")
        return "Tables of this database:\n" + "\n".join(tables)

    def _is_right(self, question: Question, found: Result) -> bool:
        in_order = ordered(question.category, question.goal)
        for gold in golds(question.gold):
            with suppress(sqlite3.Error):  # not every choice of columns runs
                if answers(self.query(question.place, gold).rows, found.rows, in_order=in_order):
                    return True
        return False


def _question(of: dict[str, str]) -> Question:
    asked = f"Database: {of['db']}\nQuestion: {of['question']}"
    if note := of.get("instructions"):
        asked += f"\nNote: {note[:MOST_NOTE]}"
    return Question(of["id"], of["db"], of["db"], of["question"], asked, of["gold"], of.get("category", ""))


def _shown(result: Result, most: int) -> str:
    lines = [" | ".join(result.columns), *(" | ".join(map(str, row)) for row in result.rows[:most])]
    if len(result.rows) > most:
        lines.append(f"… {len(result.rows)} rows in all")
    if not result.rows:
        lines.append("(no rows)")
    return "\n".join(lines)
