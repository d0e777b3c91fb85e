"""Keep a model's answers, and the tokens they cost, in one SQLite file.

An answer is kept under the hash of all that it depends on, so a restart or a replay asks nothing twice. The tokens
spent today survive a crash too. Several processes of a machine may share the file. Where the disk is full, an answer is
used and asked for again later, and the tokens count in this process alone.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fleetlore.errors import ConfigError

__all__ = ["Answers"]

log = logging.getLogger(__name__)

_BUSY_SECONDS = 5.0
_DAY_SECONDS = 86_400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ages (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spent (day INTEGER PRIMARY KEY, tokens INTEGER NOT NULL);
"""


class Answers:
    """Answers by key and tokens by day (UTC).

    Args:
        most: answers that are kept, the newest.
        trim_every: answers between two trims, because counting them costs a scan.
        unkept: called for each answer that could not be written.

    Raises:
        ConfigError: the file cannot be opened, or has another format.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        most: int = 200_000,
        trim_every: int = 1_000,
        unkept: Callable[[], None] = lambda: None,
    ) -> None:
        self._most, self._trim_every = most, trim_every
        self._unkept = unkept
        self._failing = False
        self._unwritten: Counter[int] = Counter()  # tokens by day
        self._path = path if str(path) == ":memory:" else Path(path).expanduser()
        self._added = 0
        try:
            if isinstance(self._path, Path):
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Answers are about sessions: only the owner may read them. SQLite gives its other files these rights.
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.executescript(_SCHEMA)
            except sqlite3.Error:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"the model's answers cannot be kept in {self._path}: {error}") from None

    def get(self, key: str) -> str | None:
        answer: str | None = self._first("SELECT answer FROM answers WHERE key = ?", (key,))
        return answer

    def put(self, key: str, answer: str) -> str:
        """Keep an answer; returns the kept one: of two asked for at the same time, the first."""
        try:
            if self._db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (key, answer)).rowcount:
                self._db.execute("INSERT INTO ages (key) VALUES (?)", (key,))
            self._added += 1
            if self._added % self._trim_every == 0:
                self._trim()
            self._failing = False
        except sqlite3.Error as error:
            self._fail(error)
            self._unkept()
        return self.get(key) or answer

    def spent(self, now: float) -> int:
        """Tokens of the day of `now` (seconds since the Unix epoch)."""
        day = int(now // _DAY_SECONDS)
        return (self._first("SELECT tokens FROM spent WHERE day = ?", (day,)) or 0) + self._unwritten[day]

    def spend(self, now: float, tokens: int) -> None:
        day = int(now // _DAY_SECONDS)
        try:
            self._db.execute(
                "INSERT INTO spent VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET tokens = tokens + excluded.tokens",
                (day, tokens),
            )
        except sqlite3.Error as error:
            self._fail(error)
            self._unwritten[day] += tokens

    def close(self) -> None:
        self._db.close()

    def _first(self, query: str, values: Sequence[object]) -> Any:
        try:
            row = self._db.execute(query, values).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
            return None
        return row[0] if row else None

    def _fail(self, error: sqlite3.Error) -> None:
        if not self._failing:
            log.error("the model's answers cannot be kept in %s: %s; going on without", self._path, error)
        self._failing = True

    def _trim(self) -> None:
        """Forget the oldest answers."""
        (newest,) = self._db.execute("SELECT COALESCE(MAX(number), 0) FROM ages").fetchone()
        old = newest - self._most
        self._db.execute("DELETE FROM answers WHERE key IN (SELECT key FROM ages WHERE number <= ?)", (old,))
        self._db.execute("DELETE FROM ages WHERE number <= ?", (old,))
